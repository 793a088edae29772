//! The NVIDIA driver's devices, queried directly: this works also where libtorch was built without CUDA, and that
//! difference is what a user needs to know.

use libloading::os::unix::Library;
use std::ffi::{CStr, c_char, c_int};

/// What the driver reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// The CUDA version it supports, as (major, minor).
    pub cuda_version: (i32, i32),
    /// Its devices.
    pub devices: Vec<GpuDevice>,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuDevice {
    /// The model's name.
    pub name: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// What NVIDIA calls its compute capability, as (major, minor).
    pub compute_capability: (i32, i32),
}

impl GpuDevice {
    /// Whether it computes in bf16, which large models use here: since Ampere.
    pub fn has_bf16(&self) -> bool {
        self.compute_capability >= (8, 0)
    }
}

/// Why the driver cannot be queried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// There is no driver.
    #[error("no NVIDIA driver (libcuda.so.1 not found)")]
    NotInstalled,
    /// A call failed.
    #[error("the NVIDIA driver's {call} returned error {code}")]
    Failed {
        /// The call.
        call: &'static str,
        /// The driver's error code.
        code: i32,
    },
    /// The library lacks a call.
    #[error("the NVIDIA driver has no {0}")]
    MissingCall(&'static str),
}

/// Long enough for every device name, by the driver's documentation.
const NAME_BYTES: u16 = 256;

/// Queries the driver.
pub fn query() -> Result<Driver, DriverError> {
    // SAFETY: libcuda's initialisers have no preconditions; it is closed again at the end of this function.
    let library = unsafe { Library::new("libcuda.so.1") }.map_err(|_| DriverError::NotInstalled)?;
    let calls = Calls { library: &library };
    calls.init()?;
    let version = calls.int("cuDriverGetVersion")?;
    let count = calls.int("cuDeviceGetCount")?;
    let devices = (0..count).map(|ordinal| calls.device(ordinal)).collect::<Result<_, _>>()?;
    // the driver writes 13.0 as 13000
    Ok(Driver { cuda_version: (version / 1000, version % 1000 / 10), devices })
}

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;

struct Calls<'a> {
    library: &'a Library,
}

impl Calls<'_> {
    /// SAFETY of the callers: `Function` is the C signature of the call, as in `cuda.h`.
    unsafe fn find<Function: Copy>(&self, call: &'static str) -> Result<Function, DriverError> {
        // SAFETY: by this function's own condition.
        let symbol = unsafe { self.library.get::<Function>(call) };
        symbol.map(|symbol| *symbol).map_err(|_| DriverError::MissingCall(call))
    }

    fn init(&self) -> Result<(), DriverError> {
        // SAFETY: CUresult cuInit(unsigned int Flags), which is 0.
        let code = unsafe { self.find::<unsafe extern "C" fn(u32) -> c_int>("cuInit")?(0) };
        check("cuInit", code)
    }

    /// A call that returns one integer.
    fn int(&self, call: &'static str) -> Result<c_int, DriverError> {
        let mut value = 0;
        // SAFETY: CUresult call(int *answer); the pointer is valid for the call.
        let code = unsafe { self.find::<unsafe extern "C" fn(*mut c_int) -> c_int>(call)?(&raw mut value) };
        check(call, code).map(|()| value)
    }

    fn device(&self, ordinal: c_int) -> Result<GpuDevice, DriverError> {
        let mut handle: c_int = 0;
        // SAFETY: CUresult cuDeviceGet(CUdevice *device, int ordinal), CUdevice being an int.
        let code = unsafe {
            self.find::<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>("cuDeviceGet")?(
                &raw mut handle,
                ordinal,
            )
        };
        check("cuDeviceGet", code)?;

        let mut name = [0; NAME_BYTES as usize];
        // SAFETY: CUresult cuDeviceGetName(char *name, int len, CUdevice dev); `name` holds `len` bytes.
        let code = unsafe {
            self.find::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>("cuDeviceGetName")?(
                name.as_mut_ptr().cast(),
                c_int::from(NAME_BYTES),
                handle,
            )
        };
        check("cuDeviceGetName", code)?;
        let name = CStr::from_bytes_until_nul(&name).map_or_else(|_| "?".into(), CStr::to_string_lossy);

        let mut memory_bytes: usize = 0;
        // SAFETY: CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev).
        let code = unsafe {
            self.find::<unsafe extern "C" fn(*mut usize, c_int) -> c_int>("cuDeviceTotalMem_v2")?(
                &raw mut memory_bytes,
                handle,
            )
        };
        check("cuDeviceTotalMem_v2", code)?;
        let compute_capability =
            (self.attribute(handle, CAPABILITY_MAJOR)?, self.attribute(handle, CAPABILITY_MINOR)?);
        Ok(GpuDevice { name: name.into_owned(), memory_bytes: memory_bytes as u64, compute_capability })
    }

    fn attribute(&self, device: c_int, attribute: c_int) -> Result<c_int, DriverError> {
        let call = "cuDeviceGetAttribute";
        let mut value = 0;
        // SAFETY: CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev), the last two being ints.
        let code = unsafe {
            self.find::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>(call)?(
                &raw mut value,
                attribute,
                device,
            )
        };
        check(call, code).map(|()| value)
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), DriverError> {
    if code == 0 { Ok(()) } else { Err(DriverError::Failed { call, code }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_came_with_ampere() {
        let device = |compute_capability| GpuDevice { name: "x".into(), memory_bytes: 0, compute_capability };
        assert!(!device((7, 5)).has_bf16());
        assert!(device((8, 0)).has_bf16() && device((9, 0)).has_bf16());
    }
}
