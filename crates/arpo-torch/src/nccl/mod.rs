//! NCCL, which moves and sums values between GPUs: opened at run time, because it comes with every PyTorch for CUDA and with
//! none for CPUs.
//!
//! Operations are queued on libtorch's default stream, like our kernels: they see what was computed before them, and what is
//! computed after them sees their results. Sums of parts can be queued on a stream beside it ([`crate::stream`]).
//!
//! | to change | look in |
//! |---|---|
//! | how the library is found, and which of its calls are used | this file |
//! | joining a group of GPUs and ending it | `communicator` |
//! | sums and copies | `operations` |

mod communicator;
mod operations;

pub use communicator::Communicator;
pub use operations::Section;

use libloading::os::unix::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of an id that brings ranks together.
pub const ID_BYTES: usize = 128;

#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId {
    bytes: [u8; ID_BYTES],
}

type GetUniqueId = unsafe extern "C" fn(*mut UniqueId) -> c_int;
type CommInitRank = unsafe extern "C" fn(*mut *mut c_void, c_int, UniqueId, c_int) -> c_int;
type OnComm = unsafe extern "C" fn(*mut c_void) -> c_int;
type Group = unsafe extern "C" fn() -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;
/// `ncclBroadcast` and `ncclReduceScatter` and the like: send buffer, receive buffer, count, type, then two numbers or one,
/// the communicator and the stream.
type WithRoot =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
type Gather =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, *mut c_void, *mut c_void) -> c_int;
type Reduce = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    c_int,
    c_int,
    c_int,
    *mut c_void,
    *mut c_void,
) -> c_int;

#[derive(Debug)]
struct Calls {
    get_unique_id: GetUniqueId,
    init_rank: CommInitRank,
    destroy: OnComm,
    abort: OnComm,
    group_start: Group,
    group_end: Group,
    error_string: ErrorString,
    broadcast: WithRoot,
    all_reduce: WithRoot,
    reduce: Reduce,
    reduce_scatter: WithRoot,
    all_gather: Gather,
    /// The calls are in it.
    #[expect(dead_code, reason = "held, not read")]
    library: Library,
}

/// The library.
#[derive(Debug, Clone)]
pub struct Nccl {
    calls: Arc<Calls>,
}

impl Nccl {
    /// Opens the library: the one that libtorch uses, or the loader's.
    pub fn open() -> Result<Self, String> {
        // beside libtorch's folder in a Python environment: torch/lib, nvidia/nccl/lib
        let beside = crate::runtime::loaded_folder()
            .and_then(|folder| Some(folder.parent()?.parent()?.join("nvidia/nccl/lib/libnccl.so.2")))
            .filter(|path| path.exists());
        let names = [Some(PathBuf::from("libnccl.so.2")), beside];
        let mut problem = "libnccl.so.2 not found".to_owned();
        for name in names.into_iter().flatten() {
            // SAFETY: NCCL's initialisers have no preconditions; libtorch's CUDA library has usually run them.
            match unsafe { Library::new(&name) } {
                Ok(library) => return Ok(Self { calls: Arc::new(Calls::find(library)?) }),
                Err(error) => problem = error.to_string(),
            }
        }
        Err(problem)
    }

    /// A new id, which all ranks of a group need.
    pub fn unique_id(&self) -> Result<[u8; ID_BYTES], String> {
        let mut id = UniqueId { bytes: [0; ID_BYTES] };
        // SAFETY: ncclResult_t ncclGetUniqueId(ncclUniqueId *id), which is 128 bytes.
        let code = unsafe { (self.calls.get_unique_id)(&raw mut id) };
        self.calls.check("ncclGetUniqueId", code)?;
        Ok(id.bytes)
    }
}

impl Calls {
    fn find(library: Library) -> Result<Self, String> {
        macro_rules! call {
            ($name:literal) => {
                // SAFETY: the type of the field is the C signature of the call, as in `nccl.h`.
                *unsafe { library.get($name) }.map_err(|error| format!("NCCL: {error}"))?
            };
        }
        Ok(Self {
            get_unique_id: call!("ncclGetUniqueId"),
            init_rank: call!("ncclCommInitRank"),
            destroy: call!("ncclCommDestroy"),
            abort: call!("ncclCommAbort"),
            group_start: call!("ncclGroupStart"),
            group_end: call!("ncclGroupEnd"),
            error_string: call!("ncclGetErrorString"),
            broadcast: call!("ncclBroadcast"),
            all_reduce: call!("ncclAllReduce"),
            reduce: call!("ncclReduce"),
            reduce_scatter: call!("ncclReduceScatter"),
            all_gather: call!("ncclAllGather"),
            library,
        })
    }

    fn check(&self, call: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: const char *ncclGetErrorString(ncclResult_t), which returns a static string for every code.
        let text = unsafe { (self.error_string)(code) };
        let text = if text.is_null() {
            "an unknown error".into()
        } else {
            // SAFETY: not null, static, and NUL-terminated.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        Err(format!("{call}: {text}"))
    }
}
