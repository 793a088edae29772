//! `arpo bench`: how fast a part is, on this machine, with random weights and inputs.

mod episode;
mod kernels;
mod update;

use crate::Failure;
use arpo_torch::runtime::{self, CudaHalf};
use clap::{Args, Subcommand, ValueEnum};
use std::io::Write;
use std::time::Instant;
use tch::Device;

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
    /// Our own CUDA kernels against their plain versions: the same gradients, and how fast
    Kernels(kernels::KernelsArguments),
}

/// Where to compute.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeviceName {
    Cpu,
    Cuda,
}

impl DeviceName {
    /// The device, or why it cannot be used.
    fn device(self) -> Result<Device, Failure> {
        let torch = runtime::start().map_err(Failure::failed)?;
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda if matches!(torch.cuda, CudaHalf::Open) && runtime::usable_cuda_devices() > 0 => {
                Ok(Device::Cuda(0))
            }
            Self::Cuda => {
                Err(Failure::failed("no CUDA device that libtorch can use: `arpo doctor` says why"))
            }
        }
    }
}

pub(crate) fn run(arguments: &BenchArguments, out: &mut impl Write) -> Result<(), Failure> {
    match &arguments.part {
        Part::Update(arguments) => update::run(arguments, out),
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
