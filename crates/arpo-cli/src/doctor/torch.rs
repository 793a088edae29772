//! Checks of libtorch and the NVIDIA driver.

use super::Finding;
use arpo_torch::driver::{self, Driver, DriverError, GpuDevice};
use arpo_torch::kernels::Kernels;
use arpo_torch::runtime::{self, CudaLibrary};
use std::fs;
use std::sync::OnceLock;

/// Name of the finding.
pub(super) const CUDA: &str = "CUDA";

/// Libtorch is started once, before its first use.
static TORCH: OnceLock<Result<runtime::Torch, String>> = OnceLock::new();

const USE_OWN_PYTORCH: &str =
    "LIBTORCH=$(python3 -c 'import torch, os; print(os.path.dirname(torch.__file__))') ./x doctor";

const NVIDIA_PCI_VENDOR: &str = "0x10de";

fn torch() -> Result<&'static runtime::Torch, &'static str> {
    let started = TORCH.get_or_init(|| runtime::start().map_err(|error| error.to_string()));
    started.as_ref().map_err(String::as_str)
}

/// Libtorch itself, and whether it can compute on this machine at all.
pub(super) fn libtorch() -> (Finding, bool) {
    let needed_for = "everything";
    let torch = match torch() {
        Ok(torch) => torch,
        Err(problem) => return (Finding::broken("libtorch", problem, needed_for, "unset LIBTORCH"), false),
    };
    let version = torch.version.as_deref().unwrap_or("of unknown version");
    let folder =
        torch.folder.as_deref().map_or_else(|| "an unknown folder".into(), |path| path.display().to_string());
    match runtime::computes_on(tch::Device::Cpu) {
        Ok(()) => (Finding::usable("libtorch", format!("{version}, computes on the CPU ({folder})")), true),
        Err(problem) => {
            let detail = format!("{version} in {folder}: {problem}");
            (Finding::broken("libtorch", detail, needed_for, "rm -r .libtorch && ./x build"), false)
        }
    }
}

/// The driver, its devices, and whether libtorch can use them.
pub(super) fn cuda() -> Finding {
    let needed_for = "training a model of billions of parameters";
    let driver = match driver::query() {
        Ok(driver) => driver,
        Err(DriverError::NotInstalled) if !has_nvidia_hardware() => {
            let detail = "no NVIDIA GPU in this machine";
            return Finding { command: None, ..Finding::missing(CUDA, detail, needed_for, "") };
        }
        Err(DriverError::NotInstalled) => {
            let detail = DriverError::NotInstalled.to_string();
            return Finding::missing(CUDA, detail, needed_for, "apt-get install nvidia-driver");
        }
        Err(problem) => return Finding::broken(CUDA, problem.to_string(), needed_for, "nvidia-smi"),
    };
    let found = describe(&driver);
    let half = torch().map(|torch| &torch.cuda);
    match half {
        Ok(CudaLibrary::Loaded) if runtime::usable_cuda_devices() > 0 => {
            match runtime::computes_on(tch::Device::Cuda(0)) {
                Ok(()) if !driver.devices.first().is_some_and(GpuDevice::has_bf16) => {
                    let detail = format!("{found}; it has no bf16: expected compute capability 8.0 or newer");
                    Finding { command: None, ..Finding::broken(CUDA, detail, needed_for, "") }
                }
                Ok(()) => {
                    let slower = Kernels::of(tch::Device::Cuda(0)).missing();
                    let mut found = vec![found, "libtorch computes on it".into()];
                    found.extend(slower.into_iter().chain(problems_of_others(&driver)));
                    Finding::usable(CUDA, found.join("; "))
                }
                Err(problem) => {
                    Finding::broken(CUDA, format!("{found}; {problem}"), needed_for, "nvidia-smi")
                }
            }
        }
        Ok(CudaLibrary::Loaded) => {
            let detail = format!("{found}; libtorch finds no device it can use");
            Finding::broken(CUDA, detail, needed_for, "nvidia-smi")
        }
        Ok(CudaLibrary::Failed(problem)) => {
            let detail = format!("{found}; libtorch_cuda.so does not open: {problem}");
            Finding::broken(CUDA, detail, needed_for, USE_OWN_PYTORCH)
        }
        Ok(CudaLibrary::Missing) | Err(_) => {
            let detail = format!("{found}; this libtorch is for CPUs");
            Finding::missing(CUDA, detail, needed_for, USE_OWN_PYTORCH)
        }
    }
}

/// Why GPUs other than the first cannot be used, those that cannot: `model.gpu` may choose one, and further ranks get them.
fn problems_of_others(driver: &Driver) -> Vec<String> {
    let problem = |number: usize| {
        let problem = match runtime::computes_on(tch::Device::Cuda(number)) {
            Err(problem) => problem,
            Ok(()) if driver.devices.get(number).is_some_and(GpuDevice::has_bf16) => return None,
            Ok(()) => "no bf16".into(),
        };
        Some(format!("GPU {number} cannot be used: {problem}"))
    };
    (1..runtime::usable_cuda_devices()).filter_map(problem).collect()
}

/// Whether the kernel lists a PCI device of NVIDIA.
fn has_nvidia_hardware() -> bool {
    let devices = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let vendor = |device: fs::DirEntry| fs::read_to_string(device.path().join("vendor")).unwrap_or_default();
    devices.map(vendor).any(|vendor| vendor.trim() == NVIDIA_PCI_VENDOR)
}

fn describe(driver: &Driver) -> String {
    let (major, minor) = driver.cuda_version;
    let devices: Vec<String> = driver
        .devices
        .iter()
        .map(|device| format!("{}, {:.0} GiB", device.name, device.memory_bytes as f64 / (1u64 << 30) as f64))
        .collect();
    let devices = if devices.is_empty() { "no device".to_owned() } else { devices.join("; ") };
    format!("driver for CUDA {major}.{minor}: {devices}")
}
