//! `arpo bench kernel-times`: what each of our CUDA kernels saves in an update, and how long attention of the vision tower
//! takes with heads padded to other widths.

use super::episode::SyntheticTurns;
use super::{ModelName, timed};
use crate::Failure;
use crate::device::DeviceName;
use arpo_core::config::OptimiserConfig;
use arpo_model::checkpoint::Weights;
use arpo_model::checkpoint::layout::parameters;
use arpo_model::config::ModelConfig;
use arpo_model::kernel_times::{KernelTime, kernel_times};
use arpo_model::training::adamw::AdamW;
use arpo_torch::kernels::Kernels;
use arpo_torch::shim;
use clap::{Args, value_parser};
use std::io::Write;
use tch::{Device, Kind, Tensor, no_grad};

/// Widths of heads that kernels of attention are made for.
const HEAD_WIDTHS: [i64; 4] = [64, 80, 96, 128];

/// The arguments of `arpo bench kernel-times`.
#[derive(Args)]
pub(crate) struct KernelTimesArguments {
    /// The model's shapes
    #[arg(long, value_enum, default_value = "qwen3-8b")]
    model: ModelName,
    /// Screenshots in the episode
    #[arg(long, alias = "pictures", value_name = "N", default_value_t = 15, value_parser = value_parser!(u16).range(1..))]
    screenshots: u16,
    /// Measured calls of every operation, after one warm-up
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u16).range(1..))]
    calls: u16,
}

pub(crate) fn run(arguments: &KernelTimesArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = DeviceName::Cuda.device()?;
    if let Some(missing) = Kernels::of(device).missing() {
        return Err(Failure::failed(missing));
    }
    let (config, grid, screenshots) =
        (arguments.model.config(), arguments.model.grid(), usize::from(arguments.screenshots));
    let tokens = SyntheticTurns::new(&config, grid, screenshots, 0, false).tokens.len() as i64;
    let time = |work: &mut dyn FnMut()| mean_seconds(device, arguments.calls, work);
    let mut times = kernel_times(&config, tokens, (grid.patches() * screenshots) as i64, device, time);
    times.push(adamw(&config, device, time));
    print(&times, out)?;
    for width in widths(config.vision.head_width()) {
        let size = [screenshots as i64, grid.patches() as i64, config.vision.heads, width];
        write!(out, "attention of the vision tower, heads of {width:3}: ")?;
        match attention(size, device, time) {
            Some([forward, backward]) => {
                writeln!(out, "{:7.2} ms forward, {:7.2} ms backward", 1e3 * forward, 1e3 * backward)?;
            }
            None => writeln!(out, "no kernel")?,
        }
    }
    Ok(())
}

/// The mean over several calls, after one that is not counted.
fn mean_seconds(device: Device, calls: u16, work: &mut dyn FnMut()) -> f64 {
    work();
    let ((), seconds) = timed(device, || (0..calls).for_each(|_| work()));
    seconds / f64::from(calls)
}

/// The optimiser, timed with a few of the model's layers.
fn adamw(whole: &ModelConfig, device: Device, time: impl Fn(&mut dyn FnMut()) -> f64) -> KernelTime {
    let mut config = whole.clone();
    (config.text.layers, config.text.vocabulary, config.vision.blocks) = (1, 4096, 1);
    config.vision.deepstack.clear();
    if let Some(windows) = &mut config.vision.windows {
        windows.full_attention.clear();
    }
    let weights = Weights::random(&config, Kind::BFloat16, device);
    let values: i64 = parameters(whole).iter().map(|layout| layout.shape.iter().product::<i64>()).sum();
    let share = values as f64 / weights.count() as f64;
    let [fused, plain] = [Kernels::of(device), Kernels::none()].map(|kernels| {
        let weights = weights.share().with_kernels(kernels).with_gradients(|_| true);
        let mut optimiser = AdamW::new(&weights, OptimiserConfig::default());
        let seconds = time(&mut || {
            optimiser.update(&weights, 1e-6);
        });
        share * seconds
    });
    KernelTime { part: "optimiser", operation: "AdamW", calls: 1, fused, plain }
}

/// The width itself, and those that its heads could be padded to.
fn widths(own: i64) -> Vec<i64> {
    let wider = HEAD_WIDTHS.into_iter().filter(|&width| width > own);
    std::iter::once(own).chain(wider).collect()
}

/// Seconds of attention forward and backward, of queries, keys and values `[sequences, tokens, heads, width]`; `None`
/// without a kernel for them.
fn attention(size: [i64; 4], device: Device, time: impl Fn(&mut dyn FnMut()) -> f64) -> Option<[f64; 2]> {
    let random = || Tensor::randn(size, (Kind::Float, device)).to_kind(Kind::BFloat16).transpose(1, 2);
    no_grad(|| {
        let (inputs, gradient) = ([random(), random(), random()], random());
        let (result, statistics) = shim::attention(inputs.each_ref(), false)?;
        let forward = time(&mut || drop(shim::attention(inputs.each_ref(), false)));
        let backward = time(&mut || drop(statistics.backward(inputs.each_ref(), &result, &gradient)));
        Some([forward, backward])
    })
}

fn print(times: &[KernelTime], out: &mut impl Write) -> Result<(), Failure> {
    let [part, operation] = ["part", "operation"];
    writeln!(out, "{part:<15} {operation:<34} calls   ours, ms  plain, ms  saved, s")?;
    for time in times {
        let KernelTime { part, operation, calls, fused, plain } = time;
        let saved = time.saved();
        writeln!(
            out,
            "{part:<15} {operation:<34} {calls:5} {:10.3} {:10.3} {saved:9.3}",
            1e3 * fused,
            1e3 * plain
        )?;
    }
    let saved: f64 = times.iter().map(KernelTime::saved).sum();
    writeln!(out, "together {saved:.3} s of an update")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_padded_to_wider_ones_only() {
        assert_eq!(widths(72), [72, 80, 96, 128]);
        assert_eq!(widths(80), [80, 96, 128]);
    }
}
