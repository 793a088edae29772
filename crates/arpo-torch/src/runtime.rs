//! Starting libtorch: which one, and with or without CUDA.

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The libtorch version this program is built for: another one has other symbols.
pub const TORCH_VERSION: &str = "2.11";

/// Set in a process that was re-executed for `LIBTORCH`, so that it is not re-executed again.
const REEXECUTED: &str = "ARPO_STARTED_FOR_LIBTORCH";

/// A libtorch that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TorchError {
    /// `LIBTORCH` is not a libtorch folder.
    #[error(
        "LIBTORCH={0} has no lib/libtorch_cpu.so: expected the folder of an installed PyTorch {TORCH_VERSION}"
    )]
    NotLibtorch(PathBuf),
    /// `LIBTORCH` is another version.
    #[error("LIBTORCH={folder} is PyTorch {found}: expected {TORCH_VERSION}")]
    WrongVersion {
        /// The folder.
        folder: PathBuf,
        /// Its version.
        found: String,
    },
    /// The loader took another one.
    #[error("LIBTORCH asks for {}, but the loader took {}", wanted.display(), loaded.as_deref().unwrap_or(Path::new("another")).display())]
    NotLoaded {
        /// The library folder asked for.
        wanted: PathBuf,
        /// The one in use.
        loaded: Option<PathBuf>,
    },
    /// The program could not be re-executed with the right library path.
    #[error("cannot restart with LIBTORCH's libraries: {0}")]
    Reexecute(io::Error),
}

/// The libtorch in use.
#[derive(Debug)]
pub struct Torch {
    /// Where its libraries are; `None` if the system does not tell.
    pub folder: Option<PathBuf>,
    /// Its version, from its own files.
    pub version: Option<String>,
    /// Its CUDA library.
    pub cuda: CudaLibrary,
}

/// The state of `libtorch_cuda.so`.
#[derive(Debug)]
pub enum CudaLibrary {
    /// Loaded: CUDA can be used if there is a device.
    Loaded,
    /// Missing: a CPU-only libtorch.
    Missing,
    /// It does not load; the loader's message.
    Failed(String),
}

/// Names of the allocator's settings, new and old.
const ALLOCATOR_SETTINGS: [&str; 2] = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];

/// Makes the CUDA allocator grow its segments instead of allocating new ones: episodes of varying length would
/// otherwise fragment gigabytes. A setting of the user's own wins.
fn prefer_growing_segments() {
    if ALLOCATOR_SETTINGS.iter().all(|name| env::var_os(name).is_none()) {
        // SAFETY: `start` comes before anything else, so no other thread reads the environment.
        unsafe { env::set_var(ALLOCATOR_SETTINGS[0], "expandable_segments:True") };
    }
}

/// Call this before any other use of libtorch. If `LIBTORCH` names another libtorch than the loader found, the program
/// re-executes itself with that one, and this does not return.
pub fn start() -> Result<Torch, TorchError> {
    let folder = loaded_folder();
    if let Some(wanted) = env::var_os("LIBTORCH").filter(|value| !value.is_empty()).map(PathBuf::from) {
        let wanted_lib = library_folder(&wanted)?;
        if folder.as_ref() != Some(&wanted_lib) {
            if env::var_os(REEXECUTED).is_some() {
                return Err(TorchError::NotLoaded { wanted: wanted_lib, loaded: folder });
            }
            return Err(TorchError::Reexecute(reexecute(&wanted_lib)));
        }
    }
    prefer_growing_segments();
    let version = folder.as_deref().and_then(Path::parent).and_then(version_of);
    let cuda = folder.as_deref().map_or(CudaLibrary::Missing, open_cuda_library);
    Ok(Torch { folder, version, cuda })
}

/// Multiplies two small matrices and checks the result: the shortest proof that libtorch works on a device.
pub fn computes_on(device: tch::Device) -> Result<(), String> {
    let sum_of_product = || -> Result<f64, tch::TchError> {
        let ones = tch::Tensor::f_ones([16, 16], (tch::Kind::Float, device))?;
        ones.f_matmul(&ones)?.f_sum(tch::Kind::Double)?.f_double_value(&[])
    };
    match sum_of_product() {
        Ok(sum) if (sum - 4096.0).abs() < 1e-6 => Ok(()),
        Ok(sum) => Err(format!("16 x 16 ones times themselves sum to {sum}, expected 4096")),
        Err(error) => Err(error.to_string().lines().next().unwrap_or("").to_owned()),
    }
}

/// The number of CUDA devices libtorch can use.
pub fn usable_cuda_devices() -> usize {
    usize::try_from(tch::Cuda::device_count()).unwrap_or(0)
}

/// The folder the loader took `libtorch_cpu.so` from, as the kernel lists it.
pub(crate) fn loaded_folder() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("/libtorch_cpu.so"))?;
    Path::new(&line[line.find('/')?..]).parent().map(Path::to_path_buf)
}

fn library_folder(libtorch: &Path) -> Result<PathBuf, TorchError> {
    let missing = || TorchError::NotLibtorch(libtorch.to_path_buf());
    // the kernel lists real paths, so these are compared as such
    let library = libtorch.join("lib/libtorch_cpu.so").canonicalize().map_err(|_| missing())?;
    match version_of(libtorch) {
        Some(found) if !is_supported(&found) => {
            Err(TorchError::WrongVersion { folder: libtorch.to_path_buf(), found })
        }
        _ => library.parent().map(Path::to_path_buf).ok_or_else(missing),
    }
}

fn is_supported(version: &str) -> bool {
    version.strip_prefix(TORCH_VERSION).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+']))
}

/// `__version__ = '2.11.0+cu130'` in PyTorch's own file.
fn version_of(libtorch: &Path) -> Option<String> {
    let text = fs::read_to_string(libtorch.join("version.py")).ok()?;
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    Some(line.split_once('=')?.1.trim().trim_matches(['\'', '"']).to_owned())
}

/// Replaces this process by itself with `lib` first on the loader's path. Returns only if that fails.
fn reexecute(lib: &Path) -> io::Error {
    let mut path = OsString::from(lib);
    if let Some(before) = env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    match env::current_exe() {
        Ok(program) => Command::new(program)
            .args(env::args_os().skip(1))
            .env("LD_LIBRARY_PATH", path)
            .env(REEXECUTED, "1")
            .exec(),
        Err(error) => error,
    }
}

fn open_cuda_library(folder: &Path) -> CudaLibrary {
    let library = folder.join("libtorch_cuda.so");
    if !library.exists() {
        return CudaLibrary::Missing;
    }
    // SAFETY: opening runs the library's initialisers, which register CUDA kernels with the libtorch_cpu of the
    // same folder and version; no thread of ours runs yet that could race with them.
    match unsafe { Library::open(Some(&library), RTLD_NOW | RTLD_GLOBAL) } {
        Ok(opened) => {
            // it must stay loaded for the life of the process: kernels are registered in it
            std::mem::forget(opened);
            CudaLibrary::Loaded
        }
        Err(error) => CudaLibrary::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtorch_is_found_and_computes() {
        let torch = start().unwrap();
        assert!(torch.folder.unwrap().join("libtorch_cpu.so").is_file());
        assert!(is_supported(&torch.version.unwrap()));
        computes_on(tch::Device::Cpu).unwrap();
    }

    #[test]
    fn versions_are_compared_by_their_parts() {
        for (version, right) in
            [("2.11.0+cu130", true), ("2.11", true), ("2.11+cpu", true), ("2.110.0", false), ("2.1", false)]
        {
            assert_eq!(is_supported(version), right, "{version}");
        }
    }

    #[test]
    fn a_wrong_libtorch_is_named() {
        let folder = env::temp_dir().join(format!("arpo-libtorch-{}", std::process::id()));
        assert_eq!(
            library_folder(&folder).unwrap_err().to_string(),
            format!(
                "LIBTORCH={} has no lib/libtorch_cpu.so: expected the folder of an installed PyTorch 2.11",
                folder.display()
            )
        );
        fs::create_dir_all(folder.join("lib")).unwrap();
        fs::write(folder.join("lib/libtorch_cpu.so"), "").unwrap();
        fs::write(folder.join("version.py"), "__version__ = '2.10.1+cpu'\n").unwrap();
        assert_eq!(
            library_folder(&folder).unwrap_err().to_string(),
            format!("LIBTORCH={} is PyTorch 2.10.1+cpu: expected 2.11", folder.display())
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
