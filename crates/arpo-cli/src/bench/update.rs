//! `arpo bench update`: a training step on one complete episode; with several ranks, on one for each of them.

use super::episode::{SyntheticEpisode, TURN_TOKENS};
use super::{ModelName, compute_kind, device_memory_gib, timed, warn_without_kernels, write_json};
use crate::Failure;
use crate::device::DeviceName;
use arpo_agent::geometry::Size;
use arpo_core::config::{Config, Moments, OptimiserConfig};
use arpo_model::checkpoint::Weights;
use arpo_model::config::ModelConfig;
use arpo_model::model::Model;
use arpo_model::positions::Grid;
use arpo_model::training::adamw::{AdamW, Update};
use arpo_model::training::shard::{Shard, broadcast};
use arpo_model::training::{ImageInput, MicroBatch, PassOptions, TrainableModel};
use arpo_ranks::rendezvous::{self, Rendezvous};
use arpo_ranks::{GroupOptions, token};
use arpo_torch::kernels::Kernels;
use arpo_train::learner::ranks::RankTensors;
use arpo_train::memory::resident_mib;
use arpo_train::memory_plan::{DeviceMemory, MemoryPlan, Work};
use arpo_train::run::notices::Notices;
use arpo_train::trainer::ranks::{Processes, connect, visible_devices};
use arpo_train::trainer::setup;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tch::{Device, Tensor};

/// The arguments of `arpo bench update`.
#[derive(Args)]
pub(crate) struct UpdateArguments {
    /// The device
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// The model's shapes: the published 7B, or the pocket model of the quick preset
    #[arg(long, value_enum, default_value = "pocket")]
    model: ModelName,
    /// Screenshots in the episode
    #[arg(long, alias = "pictures", default_value_t = 15)]
    screenshots: usize,
    /// Measured updates, after one warm-up
    #[arg(long, default_value_t = 3)]
    updates: usize,
    /// Train only the language model
    #[arg(long)]
    freeze_vision: bool,
    /// Do not use our own CUDA kernels
    #[arg(long)]
    plain: bool,
    /// GiB for activations kept between the passes [default: what the memory plan of a training run on one device leaves]
    #[arg(long)]
    activation_gib: Option<u64>,
    /// Ranks that learn together, each from one episode, on GPUs of their own: how much longer an update takes than alone
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    gpus: u16,
    /// This process is one of them
    #[arg(long, value_name = "HOST:PORT", hide = true)]
    join: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Seconds, means over the measured updates.
#[derive(Serialize)]
struct Report {
    ranks: usize,
    parameters: i64,
    tokens: usize,
    screenshots: usize,
    trained_tokens: usize,
    freeze_vision: bool,
    encode_seconds: f64,
    forward_seconds: f64,
    backward_seconds: f64,
    optimiser_seconds: f64,
    update_seconds: f64,
    tokens_per_second: f64,
    /// What activations may take.
    activation_gib: f64,
    /// With several ranks: the update of one rank alone, on the same machine, and what it is of theirs.
    alone_seconds: Option<f64>,
    efficiency: Option<f64>,
    /// With several ranks: for how much of the backward pass it waited for the sums that go on beside it. With NCCL the time for
    /// which the GPU was held; over TCP only until sums have arrived, without their copies to and from the host's tensors.
    communication_wait_seconds: Option<f64>,
    device_memory_gib: Option<f64>,
    /// After a tenth of the updates, and after the last.
    resident_mib: Option<[f64; 2]>,
}

/// Longest wait for the other ranks.
const START_TIMEOUT: Duration = Duration::from_mins(5);

pub(crate) fn run(arguments: &UpdateArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = arguments.device.device()?;
    if let Some(address) = &arguments.join {
        let group = rendezvous::join(address, &token::from_environment(), START_TIMEOUT, &mut || Ok(()));
        let group = group.map_err(Failure::failed)?;
        let mut tensors = connect(group, device, &Notices::default()).map_err(Failure::of)?;
        measure(arguments, device, Some(tensors.as_mut()))?;
        // a rank that leaves before rank 0 is done would end the group
        let _ = tensors.group().receive(0, None);
        return Ok(());
    }
    let alone = measure(arguments, device, None)?;
    let ranks = usize::from(arguments.gpus);
    if ranks == 1 {
        return print(&alone, arguments.json, out);
    }
    let (mut tensors, processes) = started(ranks, device)?;
    let together = measure(arguments, device, Some(tensors.as_mut()))?;
    drop(tensors);
    drop(processes);
    let alone_seconds = Some(alone.update_seconds);
    let efficiency = Some(alone.update_seconds / together.update_seconds);
    print(&Report { alone_seconds, efficiency, ..together }, arguments.json, out)
}

/// The other ranks: this command again, told to join.
fn started(ranks: usize, device: Device) -> Result<(Box<dyn RankTensors>, Processes), Failure> {
    let token = token::random().map_err(Failure::failed)?;
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let rendezvous = Rendezvous::listen("address", here, &token).map_err(Failure::failed)?;
    let devices = match device {
        Device::Cuda(_) => Some(visible_devices(ranks).map_err(Failure::of)?),
        _ => None,
    };
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    arguments.extend(["--join".into(), rendezvous.address().to_string()]);
    let mut processes = Processes::default();
    for number in 1..ranks {
        let device = devices.as_ref().map(|devices| devices[number].as_str());
        processes.start(&arguments, &token, number, device, None).map_err(Failure::of)?;
    }
    let news = &mut |_: &str| {};
    let group =
        rendezvous.gather(ranks, GroupOptions::default(), START_TIMEOUT, news, &mut || processes.check());
    let group = group.map_err(Failure::failed)?;
    let tensors = connect(group, device, &Notices::default()).map_err(Failure::of)?;
    Ok((tensors, processes))
}

fn measure(
    arguments: &UpdateArguments,
    device: Device,
    mut ranks: Option<&mut dyn RankTensors>,
) -> Result<Report, Failure> {
    let kernels = if arguments.plain { Kernels::none() } else { Kernels::of(device) };
    warn_without_kernels(&kernels);
    let kind = compute_kind(device);
    let config = arguments.model.config();
    let freeze = arguments.freeze_vision;
    let activation_bytes = match arguments.activation_gib {
        Some(gib) => gib << 30,
        None => planned(arguments, &config, setup::device_memory(device)).map_err(Failure::failed)?,
    };
    let weights = Weights::random(&config, kind, device)
        .with_kernels(kernels)
        .with_gradients(|layout| !(freeze && layout.is_vision()));
    let options = PassOptions {
        temperature: 1.0,
        forbidden: vec![config.image_token, config.video_token],
        activation_bytes,
        logit_rows: 512,
        pad_to_multiple: 1,
        share_prefixes: false,
    };
    let synthetic = SyntheticEpisode::new(&config, arguments.model.grid(), arguments.screenshots, device);
    let trainable = TrainableModel::new(Model::new(config, weights), options);
    let shard = ranks.as_deref().map_or(Shard::WHOLE, |ranks| Shard::of_rank(ranks));
    let mut optimiser = AdamW::of_shard(trainable.model().weights(), OptimiserConfig::default(), shard);
    if let Some(ranks) = ranks.as_deref_mut() {
        broadcast(trainable.model().weights(), ranks).map_err(Failure::failed)?;
    }
    let coefficients = synthetic.coefficients();
    let trained_tokens = coefficients[0].len();
    let episodes = [synthetic.episode()];
    let batch = MicroBatch { sequences: &episodes, images: &synthetic.images };
    let mut seconds = [0.0; 5];
    let mut resident_early = None;
    for update in 0..=arguments.updates {
        let ((), encode) = timed(device, || encode(&trainable, &synthetic.images));
        let (pass, forward) = timed(device, || trainable.forward(batch));
        let pass = pass.map_err(Failure::failed)?;
        let (done, backward) = timed(device, || match ranks.as_deref_mut() {
            None => pass.backward(&coefficients),
            Some(ranks) => pass.backward_summing(&coefficients, ranks),
        });
        done.map_err(Failure::failed)?;
        let wait = ranks.as_deref_mut().map_or(0.0, |ranks| ranks.take_wait_time().as_secs_f64());
        let (moved, step) = timed(device, || match ranks.as_deref_mut() {
            None => Ok(optimiser.update(trainable.model().weights(), 1e-6)),
            Some(ranks) => optimiser.update_summed(trainable.model().weights(), 1e-6, ranks),
        });
        if let Update::Skipped { gradient_norm } = moved.map_err(Failure::failed)? {
            return Err(Failure::failed(format!("the gradient's norm is {gradient_norm}")));
        }
        if update == arguments.updates / 10 {
            resident_early = resident_mib();
        }
        if update > 0 {
            for (total, one) in seconds.iter_mut().zip([encode, forward, backward, step, wait]) {
                *total += one / arguments.updates as f64;
            }
        }
    }
    let [encode_seconds, forward_seconds, backward_seconds, optimiser_seconds, wait_seconds] = seconds;
    let update_seconds = forward_seconds + backward_seconds + optimiser_seconds;
    Ok(Report {
        communication_wait_seconds: ranks.is_some().then_some(wait_seconds),
        ranks: ranks.map_or(1, |ranks| ranks.size()),
        parameters: trainable.model().weights().count(),
        tokens: synthetic.tokens.len(),
        screenshots: arguments.screenshots,
        trained_tokens,
        freeze_vision: freeze,
        encode_seconds,
        forward_seconds,
        backward_seconds,
        optimiser_seconds,
        update_seconds,
        alone_seconds: None,
        efficiency: None,
        tokens_per_second: synthetic.tokens.len() as f64 / update_seconds,
        activation_gib: activation_bytes as f64 / f64::from(1 << 30),
        device_memory_gib: device_memory_gib(device),
        resident_mib: resident_early.zip(resident_mib()).map(|(early, late)| [early, late]),
    })
}

/// Bytes for activations in a training run on such episodes, or why it does not fit.
fn planned(arguments: &UpdateArguments, model: &ModelConfig, memory: DeviceMemory) -> Result<u64, String> {
    let mut config = Config::default();
    config.collect.max_steps = arguments.screenshots;
    config.agent.max_screenshots = arguments.screenshots;
    config.agent.max_tokens = TURN_TOKENS;
    config.model.freeze_vision = arguments.freeze_vision;
    (config.model.cache_gib, config.model.activation_gib) = (0.0, 0.0);
    // where they are here
    config.optimiser.moments = Moments::Device;
    let (width, height) = arguments.model.screen();
    let plan = MemoryPlan::new(model, &config, Size { width, height }, memory, Work::Training);
    match plan.problem() {
        None => Ok(plan.activation_bytes),
        Some(problem) => Err(format!(
            "{problem}; expected a larger device, a smaller --model, fewer --screenshots or --activation-gib"
        )),
    }
}

/// The vision tower's forward pass alone.
fn encode(trainable: &TrainableModel, images: &[ImageInput]) {
    let pixels: Vec<&Tensor> = images.iter().filter_map(ImageInput::pixels).collect();
    let grids: Vec<Grid> = images.iter().map(|image| image.grid).collect();
    let _ = tch::no_grad(|| trainable.model().vision().forward(&Tensor::cat(&pixels, 0), &grids));
}

fn print(report: &Report, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        return write_json(report, out);
    }
    let Report { parameters, tokens, screenshots, trained_tokens, .. } = report;
    let frozen = if report.freeze_vision { ", the vision tower frozen" } else { "" };
    writeln!(
        out,
        "{parameters} parameters{frozen}; {tokens} tokens, {screenshots} screenshots, {trained_tokens} trained"
    )?;
    for (name, seconds) in [
        ("encoding alone", report.encode_seconds),
        ("forward", report.forward_seconds),
        ("backward", report.backward_seconds),
        ("optimiser", report.optimiser_seconds),
        ("update", report.update_seconds),
    ] {
        writeln!(out, "  {name:<15} {seconds:9.4} s")?;
    }
    writeln!(out, "  {:<15} {:9.0} tokens/s", "speed", report.tokens_per_second)?;
    if let Some((alone, efficiency)) = report.alone_seconds.zip(report.efficiency) {
        let ranks = report.ranks;
        writeln!(
            out,
            "  {:<15} {:9.1} % with {ranks} ranks; alone {alone:.4} s",
            "efficiency",
            100.0 * efficiency
        )?;
    }
    if let Some(seconds) = report.communication_wait_seconds {
        writeln!(out, "  {:<15} {seconds:9.4} s of the backward pass", "wait for sums")?;
    }
    writeln!(out, "  {:<15} {:9.1} GiB at most", "activations", report.activation_gib)?;
    if let Some(gib) = report.device_memory_gib {
        writeln!(out, "  {:<15} {gib:9.1} GiB", "device memory")?;
    }
    if let Some([early, late]) = report.resident_mib {
        writeln!(
            out,
            "  {:<15} {early:9.1} MiB after a tenth of the updates, {late:.1} at the end",
            "resident"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A training run on a device of 80 GiB would have the moments of the 7B on the host; this benchmark has not.
    #[test]
    fn the_plan_has_the_moments_on_the_device() {
        let arguments = UpdateArguments {
            device: DeviceName::Cuda,
            model: ModelName::SevenBillion,
            screenshots: 15,
            updates: 1,
            freeze_vision: false,
            plain: false,
            activation_gib: None,
            gpus: 1,
            join: None,
            json: false,
        };
        let model = arguments.model.config();
        let on = |gib: u64| planned(&arguments, &model, DeviceMemory::Gpu(gib << 30));
        let gib = on(140).unwrap() >> 30;
        assert!((40..71).contains(&gib), "{gib}");
        let refused = on(80).unwrap_err();
        assert!(refused.contains(" GiB of 80.0: ") && refused.contains(", moments "), "{refused}");
        assert!(refused.ends_with("fewer --screenshots or --activation-gib"), "{refused}");
    }
}
