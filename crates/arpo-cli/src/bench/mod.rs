//! `arpo bench`: benchmarks on this machine, with random weights and inputs.

mod cluster;
mod collect;
mod env;
mod episode;
mod iteration;
mod kernel_times;
mod kernels;
mod load;
mod preprocess;
mod rollout;
mod serve;
mod slow;
mod sums;
mod update;
mod view;
mod vision;
mod workers;

use crate::{Failure, write_json};
use arpo_image::ImageProcessor;
use arpo_model::config::{self, ModelConfig};
use arpo_model::positions::Grid;
use arpo_torch::kernels::Kernels;
use arpo_torch::shim::cuda_peak_bytes;
use clap::{Args, Subcommand, ValueEnum};
use std::io::Write;
use std::time::Instant;
use tch::{Device, Kind};

/// The arguments of `arpo bench`.
#[derive(Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

impl BenchArguments {
    /// Whether the model is computed beside other threads.
    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.benchmark, Benchmark::Serve(_))
    }
}

#[derive(Subcommand)]
enum Benchmark {
    /// One optimiser update from one episode
    Update(update::UpdateArguments),
    /// One agent step with earlier screenshots in the context: encode, prefill, decode
    Rollout(rollout::RolloutArguments),
    /// Complete training iterations, from collection to update, with forced responses
    Iteration(iteration::IterationArguments),
    /// The vision tower: patches to features
    Vision(vision::VisionArguments),
    /// Image preprocessing: a screenshot to patches, on one core
    Preprocess(preprocess::PreprocessArguments),
    /// The embedded desktop: steps per second, on one core
    Env(env::EnvArguments),
    /// A chat server over HTTP: requests per second, time to the first token
    Serve(serve::ServeArguments),
    /// Collection on slow and uneven simulated desktops: arrival order against lock-step
    Collect(collect::CollectArguments),
    /// Many desktops on workers, simulated over loopback: what a trainer needs for them, and where it saturates
    Cluster(cluster::ClusterArguments),
    /// The pages of a long run: opening it, listing and watching its episodes
    View(view::ViewArguments),
    /// A worker with simulated desktops, for `collect` and `cluster`
    #[command(hide = true)]
    Worker(workers::WorkerArguments),
    /// Gradient accumulation over many micro-batches, against sums in f32
    Sums(sums::SumsArguments),
    /// Our CUDA kernels against their plain versions: agreement and speed
    Kernels(kernels::KernelsArguments),
    /// What each of our CUDA kernels saves in an update
    KernelTimes(kernel_times::KernelTimesArguments),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelName {
    Pocket,
    /// Qwen2.5-VL-7B
    #[value(name = "7b")]
    SevenBillion,
    /// Qwen3-VL-8B
    #[value(name = "qwen3-8b")]
    Qwen3EightBillion,
}

impl ModelName {
    fn config(self) -> ModelConfig {
        match self {
            Self::Pocket => config::pocket(),
            Self::SevenBillion => config::qwen2_5_vl_7b(),
            Self::Qwen3EightBillion => config::qwen3_vl_8b(),
        }
    }

    /// Width and height of a screenshot.
    fn screen(self) -> (u32, u32) {
        match self {
            Self::Pocket => (168, 112),
            Self::SevenBillion | Self::Qwen3EightBillion => (1920, 1080),
        }
    }

    /// The size of a screenshot in patches, after the resize.
    fn grid(self) -> Grid {
        match self {
            Self::Pocket => Grid { height: 8, width: 12 },
            Self::SevenBillion => Grid { height: 78, width: 138 },
            Self::Qwen3EightBillion => Grid { height: 68, width: 120 },
        }
    }

    /// The image processor that its files ask for.
    fn processor(self) -> ImageProcessor {
        const QWEN3: &[u8] =
            br#"{"patch_size": 16, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
            "size": {"shortest_edge": 65536, "longest_edge": 16777216}}"#;
        match self {
            Self::Pocket | Self::SevenBillion => ImageProcessor::published(),
            Self::Qwen3EightBillion => ImageProcessor::parse(QWEN3).expect("legal settings"),
        }
    }
}

pub(crate) fn run(arguments: &BenchArguments, out: &mut impl Write) -> Result<(), Failure> {
    match &arguments.benchmark {
        Benchmark::Update(arguments) => update::run(arguments, out),
        Benchmark::Rollout(arguments) => rollout::run(arguments, out),
        Benchmark::Iteration(arguments) => iteration::run(arguments, out),
        Benchmark::Vision(arguments) => vision::run(arguments, out),
        Benchmark::Preprocess(arguments) => preprocess::run(arguments, out),
        Benchmark::Env(arguments) => env::run(arguments, out),
        Benchmark::Serve(arguments) => serve::run(arguments, out),
        Benchmark::Collect(arguments) => collect::run(arguments, out),
        Benchmark::Cluster(arguments) => cluster::run(arguments, out),
        Benchmark::View(arguments) => view::run(arguments, out),
        Benchmark::Worker(arguments) => workers::serve(arguments),
        Benchmark::Sums(arguments) => sums::run(arguments, out),
        Benchmark::Kernels(arguments) => kernels::run(arguments, out),
        Benchmark::KernelTimes(arguments) => kernel_times::run(arguments, out),
    }
}

/// Runs `work` and returns its result and its duration in seconds, including the work on the device.
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

/// The data type of weights and activations: f32 on the CPU, bf16 on a GPU.
fn compute_kind(device: Device) -> Kind {
    if device == Device::Cpu { Kind::Float } else { Kind::BFloat16 }
}

fn warn_without_kernels(kernels: &Kernels) {
    if let Some(message) = kernels.missing() {
        let _ = writeln!(std::io::stderr(), "warning: {message}");
    }
}

/// Peak memory reserved by libtorch on the device so far, in GiB.
fn device_memory_gib(device: Device) -> Option<f64> {
    let Device::Cuda(number) = device else { return None };
    let (_, reserved) = cuda_peak_bytes(number).ok()?;
    Some(reserved as f64 / f64::from(1 << 30))
}
