//! Kernels loaded into a device, and their launch.

use super::Family;
use super::compiler::{check, compile, find};
use crate::context::{Context, on};
use libloading::os::unix::Library;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use tch::{Device, Kind, Tensor};

type LoadData = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> c_int;
type GetFunction = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type Launch = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

/// A device's compute capability, by its numbers in `cuda.h`.
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;

/// One argument of a kernel.
#[derive(Clone, Copy)]
pub(super) enum Argument {
    Pointer(*mut c_void),
    Null,
    I32(i32),
    I64(i64),
    U64(u64),
    F32(f32),
    /// A structure, by its memory.
    Structure(*const c_void),
}

impl Argument {
    pub(super) fn tensor(tensor: &Tensor) -> Self {
        assert!(tensor.is_contiguous(), "our kernels need contiguous tensors");
        Self::Pointer(tensor.data_ptr())
    }

    /// For a kernel that gets the strides as arguments.
    pub(super) fn strided(tensor: &Tensor) -> Self {
        Self::Pointer(tensor.data_ptr())
    }
}

/// The kernels of a family, loaded into a device.
#[derive(Debug)]
pub(super) struct Module {
    driver: Library,
    /// Of another device than the first.
    context: Option<Context>,
    launch: Launch,
    handle: usize,
    functions: Mutex<BTreeMap<&'static str, usize>>,
}

impl Module {
    /// Compiles a family and loads it into the GPU with this number.
    pub(super) fn load(family: &Family, device: usize) -> Result<Self, String> {
        // the driver loads code into this thread's context, which is libtorch's once a tensor exists
        let _ =
            Tensor::f_zeros([1], (Kind::Float, Device::Cuda(device))).map_err(|error| error.to_string())?;
        let context = Context::of(Device::Cuda(device))?;
        // SAFETY: libtorch uses the driver already; opening it again only adds a reference.
        let driver = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        let binary = compile(family, &architecture(&driver, device as c_int)?)?;
        // SAFETY: CUresult cuModuleLoadData(CUmodule *module, const void *image), with libtorch's context current.
        let load: LoadData = unsafe { find(&driver, "cuModuleLoadData")? };
        let mut handle = ptr::null_mut();
        // SAFETY: as above; the image is a whole cubin and outlives the call.
        let code = on(context.as_ref(), || unsafe { load(&raw mut handle, binary.as_ptr().cast()) });
        check("cuModuleLoadData", code)?;
        // SAFETY: CUresult cuLaunchKernel(f, grid x y z, block x y z, shared bytes, stream, params, extra).
        let launch: Launch = unsafe { find(&driver, "cuLaunchKernel")? };
        Ok(Self { driver, context, launch, handle: handle as usize, functions: Mutex::default() })
    }

    /// Launches a kernel of the module on libtorch's default stream.
    ///
    /// # Safety
    /// `arguments` has one entry for each parameter of the kernel, of its type; the tensors behind them are on the
    /// device and as large as the kernel expects for this number of blocks and threads.
    pub(super) unsafe fn launch(
        &self,
        kernel: &'static str,
        blocks: u32,
        threads: u32,
        arguments: &[Argument],
    ) {
        if blocks == 0 {
            return;
        }
        let function = self.function(kernel).unwrap_or_else(|error| panic!("{kernel}: {error}"));
        let mut pointers = pointers(arguments);
        // SAFETY: the arguments fit by this function's own condition and outlive the call; the tensors behind the
        // pointers stay alive until the kernel has run, because libtorch reuses their memory on the same stream only.
        let code = on(self.context.as_ref(), || unsafe {
            (self.launch)(
                function as *mut c_void,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                ptr::null_mut(),
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        });
        assert_eq!(code, 0, "{kernel} cannot be launched: the driver returns error {code}");
    }

    fn function(&self, kernel: &'static str) -> Result<usize, String> {
        let mut functions = self.functions.lock().map_err(|_| "another thread panicked during a launch")?;
        if let Some(&function) = functions.get(kernel) {
            return Ok(function);
        }
        // SAFETY: CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name).
        let get: GetFunction = unsafe { find(&self.driver, "cuModuleGetFunction")? };
        let name = CString::new(kernel).map_err(|error| error.to_string())?;
        let mut function = ptr::null_mut();
        // SAFETY: as above, with a live module and a NUL-terminated name. The driver may load the kernel only now, into the
        // context that is current.
        let code = on(self.context.as_ref(), || unsafe {
            get(&raw mut function, self.handle as *mut c_void, name.as_ptr())
        });
        check(kernel, code)?;
        functions.insert(kernel, function as usize);
        Ok(function as usize)
    }
}

/// A pointer to each argument.
fn pointers(arguments: &[Argument]) -> Vec<*mut c_void> {
    static NULL: usize = 0;
    arguments
        .iter()
        .map(|argument| match argument {
            Argument::Pointer(pointer) => ptr::from_ref(pointer).cast_mut().cast(),
            Argument::Null => ptr::from_ref(&NULL).cast_mut().cast(),
            Argument::I32(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::I64(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::U64(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::F32(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::Structure(memory) => memory.cast_mut(),
        })
        .collect()
}

/// `sm_90` and the like.
fn architecture(driver: &Library, device: c_int) -> Result<String, String> {
    let attribute = |which: c_int| attribute(driver, which, device);
    let (major, minor) = (attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?);
    Ok(format!("sm_{major}{minor}"))
}

fn attribute(driver: &Library, attribute: c_int, device: c_int) -> Result<i32, String> {
    // SAFETY: CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device).
    let get: GetAttribute = unsafe { find(driver, "cuDeviceGetAttribute")? };
    let mut value = 0;
    // SAFETY: as above.
    check("cuDeviceGetAttribute", unsafe { get(&raw mut value, attribute, device) }).map(|()| value)
}

/// Panics unless a tensor has this type and this many values: a kernel reads and writes as many as it is told.
pub(super) fn expect(what: &str, tensor: &Tensor, kind: Kind, values: i64) {
    let found = (tensor.kind(), tensor.numel() as i64);
    assert_eq!(found, (kind, values), "{what}: type and number of values");
    assert!(matches!(tensor.device(), Device::Cuda(_)), "{what} is not on a GPU");
}
