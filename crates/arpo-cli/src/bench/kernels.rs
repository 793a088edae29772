//! `arpo bench kernels`: a training step with our CUDA kernels and with the plain versions. Their gradients agree up
//! to bf16 rounding; each kernel by itself is tested by `./x test --gpu`.

use super::episode::SyntheticEpisode;
use super::timed;
use crate::Failure;
use crate::device::DeviceName;
use arpo_core::config::OptimiserConfig;
use arpo_model::checkpoint::Weights;
use arpo_model::config;
use arpo_model::model::Model;
use arpo_model::positions::Grid;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::{MicroBatch, PassOptions, TrainableModel};
use arpo_torch::kernels::Kernels;
use clap::Args;
use std::io::Write;
use tch::{Device, Kind, Tensor};

/// Tolerance for gradients with bf16 rounding in different places, relative to the gradient's norm.
const TOLERANCE: f64 = 0.03;

/// The arguments of `arpo bench kernels`.
#[derive(Args)]
pub(crate) struct KernelsArguments {
    /// Screenshots in the episode
    #[arg(long, alias = "pictures", default_value_t = 2)]
    screenshots: usize,
}

pub(crate) fn run(arguments: &KernelsArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = DeviceName::Cuda.device()?;
    let kernels = Kernels::of(device);
    if let Some(missing) = kernels.missing() {
        return Err(Failure::failed(missing));
    }
    // the 7B's widths, a few of its layers, windowed and full attention
    let mut config = config::qwen2_5_vl_7b();
    config.text.layers = 2;
    config.vision.blocks = 3;
    if let Some(windows) = &mut config.vision.windows {
        windows.full_attention = vec![1];
    }
    let synthetic =
        SyntheticEpisode::new(&config, Grid { height: 78, width: 138 }, arguments.screenshots, device);
    let weights = Weights::random(&config, Kind::BFloat16, device);
    let trainable = |kernels: Kernels| {
        let weights = weights.share().with_kernels(kernels).with_gradients(|_| true);
        let options = PassOptions {
            temperature: 1.0,
            forbidden: vec![],
            activation_bytes: 16 << 30,
            logit_rows: 512,
            pad_to_multiple: 1,
            share_prefixes: false,
        };
        TrainableModel::new(Model::new(config.clone(), weights), options)
    };
    let (plain, fused) = (trainable(Kernels::none()), trainable(kernels));
    let plain_seconds = pass(&plain, &synthetic, device)?;
    let fused_seconds = pass(&fused, &synthetic, device)?;
    let mut worst = (0.0, "");
    let both = plain.model().weights().trained().zip(fused.model().weights().trained());
    for ((layout, _, plain), (_, _, fused)) in both {
        let error = relative_error(fused, plain);
        writeln!(out, "  {:<28} {error:9.5}", layout.name)?;
        if error > worst.0 || error.is_nan() {
            worst = (error, &layout.name);
        }
    }
    let weights = fused.model().weights();
    let mut optimiser = AdamW::new(weights, OptimiserConfig::default());
    let (_, optimiser_seconds) = timed(device, || optimiser.update(weights, 1e-6));
    writeln!(out, "largest relative error of a gradient: {:.5}, {}", worst.0, worst.1)?;
    writeln!(out, "forward and backward: {plain_seconds:.4} s plain, {fused_seconds:.4} s with our kernels")?;
    writeln!(out, "optimiser with our kernels: {optimiser_seconds:.4} s")?;
    if worst.0 <= TOLERANCE {
        Ok(())
    } else {
        Err(Failure::failed(format!("the kernels have a relative error of {:.5} in {}", worst.0, worst.1)))
    }
}

/// Seconds of a forward and backward pass, which leaves its gradients in the model's weights.
fn pass(trainable: &TrainableModel, synthetic: &SyntheticEpisode, device: Device) -> Result<f64, Failure> {
    let episodes = [synthetic.episode()];
    let batch = MicroBatch { sequences: &episodes, images: &synthetic.images };
    let mut seconds = 0.0;
    // the first is a warm-up
    for _ in 0..2 {
        trainable.model().weights().zero_gradients();
        let (done, took) = timed(device, || {
            trainable.forward(batch).and_then(|forward| forward.backward(&synthetic.coefficients()))
        });
        done.map_err(Failure::failed)?;
        seconds = took;
    }
    Ok(seconds)
}

fn relative_error(one: &Tensor, other: &Tensor) -> f64 {
    let norm = |tensor: &Tensor| tensor.to_kind(Kind::Float).norm().double_value(&[]);
    norm(&(one.to_kind(Kind::Float) - other.to_kind(Kind::Float))) / norm(other).max(1e-12)
}
