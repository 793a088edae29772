//! NVRTC and the driver: from CUDA source to a launch.

use libloading::os::unix::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use tch::{Device, Kind, Tensor};

use crate::runtime::loaded_folder;

/// Prepended to every source.
const PRELUDE: &str = include_str!("prelude.cu");

/// Where NVRTC may be: on the loader's path, in PyTorch's own packages, in a CUDA toolkit.
const NVRTC_NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

type Create = unsafe extern "C" fn(
    *mut *mut c_void,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(*mut c_void, c_int, *const *const c_char) -> c_int;
type GetSize = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type GetBytes = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;
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

/// Compiled code on the device of this process.
#[derive(Debug)]
pub(super) struct Module {
    driver: Library,
    launch: Launch,
    handle: usize,
    functions: Mutex<BTreeMap<&'static str, usize>>,
}

impl Module {
    /// Compiles concatenated sources, the prelude in front, for the first device.
    pub(super) fn compile(sources: &[&str], name: &str) -> Result<Self, String> {
        // the driver loads code into this thread's context, which is libtorch's once a tensor exists
        let _ = Tensor::f_zeros([1], (Kind::Float, Device::Cuda(0))).map_err(|error| error.to_string())?;
        // SAFETY: libtorch uses the driver already; opening it again only adds a reference.
        let driver = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        let binary = compiled(&[&[PRELUDE], sources].concat().concat(), name, &architecture(&driver)?)?;
        // SAFETY: CUresult cuModuleLoadData(CUmodule *module, const void *image), with libtorch's context current.
        let load: LoadData = unsafe { find(&driver, "cuModuleLoadData")? };
        let mut handle = ptr::null_mut();
        // SAFETY: as above; the image is a whole cubin and outlives the call.
        check("cuModuleLoadData", unsafe { load(&raw mut handle, binary.as_ptr().cast()) })?;
        // SAFETY: CUresult cuLaunchKernel(f, grid x y z, block x y z, shared bytes, stream, params, extra).
        let launch: Launch = unsafe { find(&driver, "cuLaunchKernel")? };
        Ok(Self { driver, launch, handle: handle as usize, functions: Mutex::default() })
    }

    /// Launches a kernel of the module on libtorch's default stream. Callers pass arguments that match its signature.
    pub(super) fn launch(&self, kernel: &'static str, blocks: u32, threads: u32, arguments: &[Argument]) {
        if blocks == 0 {
            return;
        }
        let function = self.function(kernel).unwrap_or_else(|error| panic!("{kernel}: {error}"));
        let mut pointers = pointers(arguments);
        // SAFETY: `arguments` has one entry for each parameter of the kernel, of its type, and outlives the call; the
        // tensors behind the pointers stay alive until the kernel has run, because libtorch frees on the same stream.
        let code = unsafe {
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
        };
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
        // SAFETY: as above, with a live module and a NUL-terminated name.
        check(kernel, unsafe { get(&raw mut function, self.handle as *mut c_void, name.as_ptr()) })?;
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
fn architecture(driver: &Library) -> Result<String, String> {
    let (major, minor) = (attribute(driver, CAPABILITY_MAJOR)?, attribute(driver, CAPABILITY_MINOR)?);
    Ok(format!("sm_{major}{minor}"))
}

fn attribute(driver: &Library, attribute: c_int) -> Result<i32, String> {
    // SAFETY: CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device).
    let get: GetAttribute = unsafe { find(driver, "cuDeviceGetAttribute")? };
    let mut value = 0;
    // SAFETY: as above, for the first device.
    check("cuDeviceGetAttribute", unsafe { get(&raw mut value, attribute, 0) }).map(|()| value)
}

fn compiled(source: &str, name: &str, architecture: &str) -> Result<Vec<u8>, String> {
    let nvrtc = open_nvrtc()?;
    let text = |text: &str| CString::new(text).map_err(|error| error.to_string());
    let (source, name) = (text(source)?, text(name)?);
    let mut program = ptr::null_mut();
    // SAFETY: nvrtcCreateProgram(program, source, name, number of headers, headers, their names).
    let code = unsafe {
        let create: Create = find(&nvrtc, "nvrtcCreateProgram")?;
        create(&raw mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null())
    };
    check("nvrtcCreateProgram", code)?;
    let options = [text(&format!("--gpu-architecture={architecture}"))?, text("--std=c++17")?];
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: nvrtcCompileProgram(program, number of options, options).
    let code = unsafe {
        let compile: Compile = find(&nvrtc, "nvrtcCompileProgram")?;
        compile(program, pointers.len() as c_int, pointers.as_ptr())
    };
    if code != 0 {
        let log = read_output(&nvrtc, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?;
        let log = CStr::from_bytes_until_nul(&log).map_or_else(|_| "no log".into(), CStr::to_string_lossy);
        return Err(format!("nvrtcCompileProgram: error {code}: {log}"));
    }
    read_output(&nvrtc, program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
}

/// An output of NVRTC: its size is queried first, then its bytes.
fn read_output(
    nvrtc: &Library,
    program: *mut c_void,
    size: &'static str,
    bytes: &'static str,
) -> Result<Vec<u8>, String> {
    // SAFETY: nvrtcResult size(nvrtcProgram, size_t *) and bytes(nvrtcProgram, char *).
    let (get_size, get_bytes): (GetSize, GetBytes) = unsafe { (find(nvrtc, size)?, find(nvrtc, bytes)?) };
    let mut length = 0;
    // SAFETY: as above.
    check(size, unsafe { get_size(program, &raw mut length) })?;
    let mut output = vec![0u8; length];
    // SAFETY: as above; the buffer has the size just queried.
    check(bytes, unsafe { get_bytes(program, output.as_mut_ptr().cast()) })?;
    Ok(output)
}

fn open_nvrtc() -> Result<Library, String> {
    let beside_torch = loaded_folder().map(|folder| folder.join("../../nvidia/cu13/lib/libnvrtc.so.13"));
    let candidates = NVRTC_NAMES.iter().map(Into::into).chain(beside_torch);
    for candidate in candidates {
        // SAFETY: NVRTC's initialisers have no preconditions.
        if let Ok(library) = unsafe { Library::new(&candidate) } {
            return Ok(library);
        }
    }
    Err("libnvrtc is not installed".into())
}

/// SAFETY of the callers: `Function` is the C signature of the call.
unsafe fn find<Function: Copy>(library: &Library, call: &'static str) -> Result<Function, String> {
    // SAFETY: by this function's own condition.
    unsafe { library.get::<Function>(call) }.map(|symbol| *symbol).map_err(|error| error.to_string())
}

fn check(call: &str, code: c_int) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("{call}: error {code}")) }
}
