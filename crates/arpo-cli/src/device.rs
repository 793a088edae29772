//! The device as a command-line option.

use crate::Failure;
use arpo_torch::runtime::{self, CudaLibrary};
use clap::ValueEnum;
use tch::Device;

/// A device on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    Cpu,
    Cuda,
}

impl DeviceName {
    /// The device, or why it cannot be used.
    pub(crate) fn device(self) -> Result<Device, Failure> {
        let torch = runtime::start().map_err(Failure::failed)?;
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda if matches!(torch.cuda, CudaLibrary::Loaded) && runtime::usable_cuda_devices() > 0 => {
                Ok(Device::Cuda(0))
            }
            Self::Cuda => {
                Err(Failure::failed("no CUDA device that libtorch can use: run `arpo doctor` for the reason"))
            }
        }
    }
}
