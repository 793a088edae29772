//! NVRTC: from CUDA source to a cubin.

use super::Family;
use crate::runtime::loaded_folder;
use libloading::os::unix::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

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

/// Compiles a family for an architecture (`sm_90` and the like): a cubin.
pub(super) fn compile(family: &Family, architecture: &str) -> Result<Vec<u8>, String> {
    let nvrtc = open_nvrtc()?;
    let text = |text: &str| CString::new(text).map_err(|error| error.to_string());
    let source = text(&[&[PRELUDE], family.sources].concat().concat())?;
    let name = text(family.file)?;
    let mut program = ptr::null_mut();
    // SAFETY: nvrtcCreateProgram(program, source, name, number of headers, headers, their names).
    let code = unsafe {
        let create: Create = find(&nvrtc, "nvrtcCreateProgram")?;
        create(&raw mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null())
    };
    check("nvrtcCreateProgram", code)?;
    let define = |(name, value): &(&str, u32)| format!("--define-macro={name}={value}");
    let options = [format!("--gpu-architecture={architecture}"), "--std=c++17".into()];
    let options = options.into_iter().chain(family.constants.iter().map(define));
    let options = options.map(|option| text(&option)).collect::<Result<Vec<_>, _>>()?;
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
pub(crate) unsafe fn find<Function: Copy>(library: &Library, call: &'static str) -> Result<Function, String> {
    // SAFETY: by this function's own condition.
    unsafe { library.get::<Function>(call) }.map(|symbol| *symbol).map_err(|error| error.to_string())
}

pub(crate) fn check(call: &str, code: c_int) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("{call}: error {code}")) }
}
