//! NVRTC and the driver: from CUDA source to a launch.

use libloading::os::unix::Library;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use tch::{Device, Kind, Tensor};

use crate::runtime::loaded_folder;

/// What all sources begin with.
const NUMBERS: &str = include_str!("numbers.cu");

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
type SetFunctionAttribute = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int;
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

type LaunchTogether = unsafe extern "C" fn(
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
) -> c_int;

/// What a device can do, by its number in `cuda.h`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ability {
    Multiprocessors = 16,
    Major = 75,
    Minor = 76,
    LaunchTogether = 95,
    SharedBytes = 97,
}

/// Of a function: how much shared memory it may be given at its launch, by its number in `cuda.h`.
const MOST_SHARED_BYTES: c_int = 8;

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
        assert!(tensor.is_contiguous(), "our kernels read numbers one behind the other");
        Self::Pointer(tensor.data_ptr())
    }

    /// For a kernel that is told the strides.
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
    /// Compiles sources, one behind the other and all behind what they begin with, for the first device.
    pub(super) fn compile(sources: &[&str], name: &str) -> Result<Self, String> {
        // the driver loads code into this thread's context, which is libtorch's from its first tensor on
        let _ = Tensor::f_zeros([1], (Kind::Float, Device::Cuda(0))).map_err(|error| error.to_string())?;
        // SAFETY: the driver is in use by libtorch already; opening it again counts it once more.
        let driver = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        let binary = compiled(&[&[NUMBERS], sources].concat().concat(), name, &architecture(&driver)?)?;
        // SAFETY: CUresult cuModuleLoadData(CUmodule *module, const void *image), with libtorch's context current.
        let load: LoadData = unsafe { find(&driver, "cuModuleLoadData")? };
        let mut handle = ptr::null_mut();
        // SAFETY: as above; the image is a whole cubin and outlives the call.
        accepted("cuModuleLoadData", unsafe { load(&raw mut handle, binary.as_ptr().cast()) })?;
        // SAFETY: CUresult cuLaunchKernel(f, grid x y z, block x y z, shared bytes, stream, params, extra).
        let launch: Launch = unsafe { find(&driver, "cuLaunchKernel")? };
        Ok(Self { driver, launch, handle: handle as usize, functions: Mutex::default() })
    }

    /// Launches a kernel of the module on libtorch's default stream. The callers of this file know the signatures.
    pub(super) fn launch(&self, kernel: &'static str, blocks: u32, threads: u32, arguments: &[Argument]) {
        if blocks == 0 {
            return;
        }
        let function = self.function(kernel).unwrap_or_else(|error| panic!("{kernel}: {error}"));
        let mut pointers = pointers(arguments);
        // SAFETY: `arguments` has one entry for each parameter of the kernel, of its type, and outlives the call; the
        // tensors behind the pointers stay until the stream has passed, because libtorch frees on the same stream.
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
        assert_eq!(code, 0, "{kernel} cannot be launched: the driver answers with error {code}");
    }

    /// Launches a kernel whose blocks wait for each other, so that all of them have to run at once, with shared memory of
    /// a size that only the launch says. An error, and nothing launched, if they cannot.
    pub(super) fn launch_together(
        &self,
        kernel: &'static str,
        blocks: u32,
        threads: u32,
        shared_bytes: u32,
        arguments: &[Argument],
    ) -> Result<(), String> {
        let function = self.function(kernel)? as *mut c_void;
        // SAFETY: CUresult cuFuncSetAttribute(function, attribute, value), and cuLaunchCooperativeKernel(f, grid x y z,
        // block x y z, shared bytes, stream, params).
        let (allow, launch): (SetFunctionAttribute, LaunchTogether) = unsafe {
            (find(&self.driver, "cuFuncSetAttribute")?, find(&self.driver, "cuLaunchCooperativeKernel")?)
        };
        // SAFETY: as above, with a live function.
        let code = unsafe { allow(function, MOST_SHARED_BYTES, shared_bytes as c_int) };
        accepted("cuFuncSetAttribute", code)?;
        let mut pointers = pointers(arguments);
        // SAFETY: as for other launches.
        let code = unsafe {
            let (stream, arguments) = (ptr::null_mut(), pointers.as_mut_ptr());
            launch(function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, arguments)
        };
        accepted("cuLaunchCooperativeKernel", code)
    }

    /// What the first device can do.
    pub(super) fn ability(&self, ability: Ability) -> Result<i32, String> {
        device_ability(&self.driver, ability)
    }

    fn function(&self, kernel: &'static str) -> Result<usize, String> {
        let mut functions = self.functions.lock().map_err(|_| "a launch has panicked")?;
        if let Some(&function) = functions.get(kernel) {
            return Ok(function);
        }
        // SAFETY: CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name).
        let get: GetFunction = unsafe { find(&self.driver, "cuModuleGetFunction")? };
        let name = CString::new(kernel).map_err(|error| error.to_string())?;
        let mut function = ptr::null_mut();
        // SAFETY: as above, with a live module and a name that ends.
        accepted(kernel, unsafe { get(&raw mut function, self.handle as *mut c_void, name.as_ptr()) })?;
        functions.insert(kernel, function as usize);
        Ok(function as usize)
    }
}

/// Where each argument lies.
fn pointers(arguments: &[Argument]) -> Vec<*mut c_void> {
    static NULL: usize = 0;
    arguments
        .iter()
        .map(|argument| match argument {
            Argument::Pointer(pointer) => ptr::from_ref(pointer).cast_mut().cast(),
            Argument::Null => ptr::from_ref(&NULL).cast_mut().cast(),
            Argument::I32(number) => ptr::from_ref(number).cast_mut().cast(),
            Argument::I64(number) => ptr::from_ref(number).cast_mut().cast(),
            Argument::U64(number) => ptr::from_ref(number).cast_mut().cast(),
            Argument::F32(number) => ptr::from_ref(number).cast_mut().cast(),
            Argument::Structure(memory) => memory.cast_mut(),
        })
        .collect()
}

/// `sm_90` and the like.
fn architecture(driver: &Library) -> Result<String, String> {
    let (major, minor) = (device_ability(driver, Ability::Major)?, device_ability(driver, Ability::Minor)?);
    Ok(format!("sm_{major}{minor}"))
}

fn device_ability(driver: &Library, ability: Ability) -> Result<i32, String> {
    // SAFETY: CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device).
    let get: GetAttribute = unsafe { find(driver, "cuDeviceGetAttribute")? };
    let mut value = 0;
    // SAFETY: as above, for the first device.
    accepted("cuDeviceGetAttribute", unsafe { get(&raw mut value, ability as c_int, 0) }).map(|()| value)
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
    accepted("nvrtcCreateProgram", code)?;
    let options = [text(&format!("--gpu-architecture={architecture}"))?, text("--std=c++17")?];
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: nvrtcCompileProgram(program, number of options, options).
    let code = unsafe {
        let compile: Compile = find(&nvrtc, "nvrtcCompileProgram")?;
        compile(program, pointers.len() as c_int, pointers.as_ptr())
    };
    if code != 0 {
        let log = answer(&nvrtc, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?;
        let log = CStr::from_bytes_until_nul(&log).map_or_else(|_| "no log".into(), CStr::to_string_lossy);
        return Err(format!("nvrtcCompileProgram: error {code}: {log}"));
    }
    answer(&nvrtc, program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
}

/// Bytes that NVRTC tells the size of first.
fn answer(
    nvrtc: &Library,
    program: *mut c_void,
    size: &'static str,
    bytes: &'static str,
) -> Result<Vec<u8>, String> {
    // SAFETY: nvrtcResult size(nvrtcProgram, size_t *) and bytes(nvrtcProgram, char *).
    let (get_size, get_bytes): (GetSize, GetBytes) = unsafe { (find(nvrtc, size)?, find(nvrtc, bytes)?) };
    let mut length = 0;
    // SAFETY: as above.
    accepted(size, unsafe { get_size(program, &raw mut length) })?;
    let mut answer = vec![0u8; length];
    // SAFETY: as above; the buffer has the length just told.
    accepted(bytes, unsafe { get_bytes(program, answer.as_mut_ptr().cast()) })?;
    Ok(answer)
}

fn open_nvrtc() -> Result<Library, String> {
    let beside_torch = loaded_folder().map(|folder| folder.join("../../nvidia/cu13/lib/libnvrtc.so.13"));
    let places = NVRTC_NAMES.iter().map(Into::into).chain(beside_torch);
    for place in places {
        // SAFETY: NVRTC's initialisers have no preconditions.
        if let Ok(library) = unsafe { Library::new(&place) } {
            return Ok(library);
        }
    }
    Err("libnvrtc is not there".into())
}

/// SAFETY of the callers: `Function` is the C signature of the call.
unsafe fn find<Function: Copy>(library: &Library, call: &'static str) -> Result<Function, String> {
    // SAFETY: by this function's own condition.
    unsafe { library.get::<Function>(call) }.map(|symbol| *symbol).map_err(|error| error.to_string())
}

fn accepted(call: &str, code: c_int) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("{call}: error {code}")) }
}
