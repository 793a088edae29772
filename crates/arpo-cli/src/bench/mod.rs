//! `arpo bench`: how fast a part is, on this machine, with random weights and inputs.

mod collect;
mod env;
mod episode;
mod iteration;
mod kernels;
mod preprocess;
mod rollout;
mod single_token;
mod sums;
mod update;
mod vision;

use crate::{Failure, write_json};
use arpo_model::config::{self, ModelConfig};
use arpo_model::positions::Grid;
use arpo_torch::kernels as own_kernels;
use arpo_torch::shim::cuda_peak_bytes;
use clap::{Args, Subcommand, ValueEnum};
use std::io::Write;
use std::time::Instant;
use tch::{Device, Kind};

/// What `arpo bench` takes.
#[derive(Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// One update of all parameters from one episode
    Update(update::UpdateArguments),
    /// One step of agents with screenshots behind them: encode, read, answer
    Rollout(rollout::RolloutArguments),
    /// Whole iterations, from collecting to the update, of a model that is told what to say
    Iteration(iteration::IterationArguments),
    /// From patches to features
    Vision(vision::VisionArguments),
    /// From a screenshot to patches, on one core
    Preprocess(preprocess::PreprocessArguments),
    /// Steps of the embedded desktop, on one core
    Env(env::EnvArguments),
    /// Episodes on slow and uneven desktops: each on its own against all in lock-step
    Collect(collect::CollectArguments),
    /// Gradients of many micro-batches added up, against sums in f32
    Sums(sums::SumsArguments),
    /// Our own CUDA kernels against their plain versions: the same gradients, and how fast
    Kernels(kernels::KernelsArguments),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelName {
    Pocket,
    #[value(name = "7b")]
    SevenBillion,
}

impl ModelName {
    fn config(self) -> ModelConfig {
        match self {
            Self::Pocket => config::pocket(),
            Self::SevenBillion => config::qwen2_5_vl_7b(),
        }
    }

    /// Width and height of a screenshot.
    fn screen(self) -> (u32, u32) {
        match self {
            Self::Pocket => (168, 112),
            Self::SevenBillion => (1920, 1080),
        }
    }

    /// Its size in patches after the resize.
    fn grid(self) -> Grid {
        match self {
            Self::Pocket => Grid { height: 8, width: 12 },
            Self::SevenBillion => Grid { height: 78, width: 138 },
        }
    }
}

pub(crate) fn run(arguments: &BenchArguments, out: &mut impl Write) -> Result<(), Failure> {
    match &arguments.part {
        Part::Update(arguments) => update::run(arguments, out),
        Part::Rollout(arguments) => rollout::run(arguments, out),
        Part::Iteration(arguments) => iteration::run(arguments, out),
        Part::Vision(arguments) => vision::run(arguments, out),
        Part::Preprocess(arguments) => preprocess::run(arguments, out),
        Part::Env(arguments) => env::run(arguments, out),
        Part::Collect(arguments) => collect::run(arguments, out),
        Part::Sums(arguments) => sums::run(arguments, out),
        Part::Kernels(arguments) => kernels::run(arguments, out),
    }
}

/// Runs something and returns its result and its seconds, the device's work included.
fn timed<T>(device: Device, work: impl FnOnce() -> T) -> (T, f64) {
    synchronise(device);
    let started = Instant::now();
    let result = work();
    synchronise(device);
    (result, started.elapsed().as_secs_f64())
}

fn synchronise(device: Device) {
    if let Device::Cuda(number) = device {
        tch::Cuda::synchronize(number as i64);
    }
}

/// What numbers are computed in: f32 on the CPU, bf16 on a GPU.
fn number_kind(device: Device) -> Kind {
    if device == Device::Cpu { Kind::Float } else { Kind::BFloat16 }
}

fn warn_without_kernels(device: Device) {
    if device != Device::Cpu
        && let Some(slower) = own_kernels::slower()
    {
        let _ = writeln!(std::io::stderr(), "warning: {slower}");
    }
}

/// The most memory libtorch had taken on the device so far.
fn device_memory_gib(device: Device) -> Option<f64> {
    let Device::Cuda(number) = device else { return None };
    let (_, reserved) = cuda_peak_bytes(number).ok()?;
    Some(reserved as f64 / f64::from(1 << 30))
}
