//! NCCL, which moves and sums values between GPUs: opened at run time, because it comes with every PyTorch for CUDA and with
//! none for CPUs.
//!
//! Operations are queued on libtorch's default stream, like our kernels: they see what was computed before them, and what is
//! computed after them sees their results. Sums of parts can be queued on a stream beside it ([`crate::stream`]).

use crate::stream::SideStream;
use libloading::os::unix::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tch::{Device, Kind, Tensor};

/// Bytes of an id that brings ranks together.
pub const ID_BYTES: usize = 128;

/// Values of `ncclDataType_t`.
const FLOAT32: c_int = 7;
const BFLOAT16: c_int = 9;

/// The value of `ncclRedOp_t` for a sum.
const SUM: c_int = 0;

/// How long an abort waits for a call that has begun.
const ABORT_PATIENCE: Duration = Duration::from_secs(2);

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

/// One rank's part of a group of GPUs.
#[derive(Debug)]
pub struct Communicator {
    calls: Arc<Calls>,
    /// 0 once it is aborted.
    handle: AtomicUsize,
    /// Held during every call: a communicator is not for two threads at a time.
    in_use: Mutex<()>,
    ranks: usize,
    device: Device,
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

    /// Joins a group with a GPU. All ranks call this with the same id; it returns when all have.
    pub fn join(
        &self,
        id: [u8; ID_BYTES],
        rank: usize,
        ranks: usize,
        device: Device,
    ) -> Result<Communicator, String> {
        let Device::Cuda(_) = device else { return Err(format!("{device:?} is not a GPU")) };
        on(device, || {
            let mut handle = ptr::null_mut();
            // SAFETY: ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank), with the device
            // of the rank current.
            let code = unsafe {
                (self.calls.init_rank)(&raw mut handle, ranks as c_int, UniqueId { bytes: id }, rank as c_int)
            };
            self.calls.check("ncclCommInitRank", code)?;
            let (calls, handle) = (Arc::clone(&self.calls), AtomicUsize::new(handle as usize));
            Ok(Communicator { calls, handle, in_use: Mutex::default(), ranks, device })
        })
    }
}

/// Runs a function with a device current: libtorch makes that of a tensor current while it works on it, and leaves the first.
fn on<T>(device: Device, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // the context of a device exists once a tensor does
    let _ = Tensor::f_zeros([1], (Kind::Float, device)).map_err(|error| error.to_string())?;
    crate::context::with_current(device, work)
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

/// The stream that an operation is queued on: the given one, or libtorch's.
fn handle_of(stream: Option<&SideStream>) -> *mut c_void {
    stream.map_or(ptr::null_mut(), SideStream::handle)
}

/// A range of a tensor that an operation works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// The first value.
    pub start: usize,
    /// How many.
    pub length: usize,
    /// The rank that it belongs to.
    pub root: usize,
}

impl Communicator {
    /// Replaces the values of a flat tensor by their sums over all ranks.
    pub fn all_reduce(&self, tensor: &Tensor) -> Result<(), String> {
        let (pointer, kind) = self.buffer(tensor)?;
        self.operate(|handle| {
            // SAFETY: ncclAllReduce(send, receive, count, type, operation, comm, stream), in place, on the default stream, which
            // is the one that libtorch computes on; the tensor has as many values of this type.
            let code = unsafe {
                (self.calls.all_reduce)(pointer, pointer, tensor.numel(), kind, SUM, handle, ptr::null_mut())
            };
            self.calls.check("ncclAllReduce", code)
        })
    }

    /// Sums equal parts of a flat tensor over all ranks, each for its rank, which is the `rank`-th; on a stream of its own, if
    /// there is one.
    pub fn reduce_scatter(
        &self,
        tensor: &Tensor,
        rank: usize,
        length: usize,
        stream: Option<&SideStream>,
    ) -> Result<(), String> {
        let (pointer, kind) = self.buffer(tensor)?;
        let own = self.part(tensor, pointer, rank, length);
        let stream = handle_of(stream);
        self.operate(|handle| {
            // SAFETY: ncclReduceScatter(send, receive, count of a part, type, operation, comm, stream); in place, because what is
            // received is the rank's part of what is sent; as above, or on a live stream of the same device.
            let code =
                unsafe { (self.calls.reduce_scatter)(pointer, own, length, kind, SUM, handle, stream) };
            self.calls.check("ncclReduceScatter", code)
        })
    }

    /// Copies equal parts of a flat tensor from each rank to all; this rank's is the `rank`-th.
    pub fn all_gather(&self, tensor: &Tensor, rank: usize, length: usize) -> Result<(), String> {
        let (pointer, kind) = self.buffer(tensor)?;
        let own = self.part(tensor, pointer, rank, length);
        self.operate(|handle| {
            // SAFETY: ncclAllGather(send, receive, count of a part, type, comm, stream); in place, because what is sent is the
            // rank's part of what is received; as above.
            let code =
                unsafe { (self.calls.all_gather)(own, pointer, length, kind, handle, ptr::null_mut()) };
            self.calls.check("ncclAllGather", code)
        })
    }

    /// Where the part of a rank begins. All parts together are the tensor.
    fn part(&self, tensor: &Tensor, pointer: *mut c_void, rank: usize, length: usize) -> *mut c_void {
        assert_eq!(tensor.numel(), self.ranks * length, "parts that are not the tensor");
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        pointer.wrapping_byte_add(rank * length * tensor.kind().elt_size_in_bytes())
    }

    /// Copies each section from its rank to all.
    pub fn broadcast(&self, tensor: &Tensor, sections: &[Section]) -> Result<(), String> {
        self.each(tensor, sections, |pointer, kind, section, handle| {
            // SAFETY: ncclBroadcast(send, receive, count, type, root, comm, stream), in place; as above.
            let code = unsafe {
                (self.calls.broadcast)(
                    pointer,
                    pointer,
                    section.length,
                    kind,
                    section.root as c_int,
                    handle,
                    ptr::null_mut(),
                )
            };
            self.calls.check("ncclBroadcast", code)
        })
    }

    /// Sums each section over all ranks, for its rank; on a stream of its own, if there is one.
    pub fn reduce(
        &self,
        tensor: &Tensor,
        sections: &[Section],
        stream: Option<&SideStream>,
    ) -> Result<(), String> {
        let stream = handle_of(stream);
        self.each(tensor, sections, |pointer, kind, section, handle| {
            let (count, root) = (section.length, section.root as c_int);
            // SAFETY: ncclReduce(send, receive, count, type, operation, root, comm, stream), in place; as above.
            let code =
                unsafe { (self.calls.reduce)(pointer, pointer, count, kind, SUM, root, handle, stream) };
            self.calls.check("ncclReduce", code)
        })
    }

    /// One operation for each section that is not empty, all at once.
    fn each(
        &self,
        tensor: &Tensor,
        sections: &[Section],
        operation: impl Fn(*mut c_void, c_int, &Section, *mut c_void) -> Result<(), String>,
    ) -> Result<(), String> {
        let (pointer, kind) = self.buffer(tensor)?;
        let width = tensor.kind().elt_size_in_bytes();
        self.operate(|handle| {
            // SAFETY: ncclGroupStart() and ncclGroupEnd() have no arguments; every start is followed by an end.
            self.calls.check("ncclGroupStart", unsafe { (self.calls.group_start)() })?;
            let queued = sections.iter().filter(|section| section.length > 0).try_for_each(|section| {
                assert!(section.start + section.length <= tensor.numel(), "a section outside of its tensor");
                // inside of the tensor, by the line above
                let first = pointer.wrapping_byte_add(section.start * width);
                operation(first, kind, section, handle)
            });
            // SAFETY: as above.
            let ended = self.calls.check("ncclGroupEnd", unsafe { (self.calls.group_end)() });
            queued.and(ended)
        })
    }

    /// Ends it while operations may be waiting: they end, too, without results. Another thread may call this.
    ///
    /// No further call begins. One that has begun may end first, but not for long: a call can wait for a rank that is lost,
    /// and then only this ends it.
    pub fn abort(&self) {
        let handle = self.handle.swap(0, Ordering::SeqCst);
        if handle == 0 {
            return;
        }
        let deadline = Instant::now() + ABORT_PATIENCE;
        let mut free = self.in_use.try_lock();
        while matches!(free, Err(TryLockError::WouldBlock)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            free = self.in_use.try_lock();
        }
        // SAFETY: ncclResult_t ncclCommAbort(ncclComm_t), once, for a communicator that was joined; NCCL allows it beside a
        // call of another thread, if need be.
        let _ = unsafe { (self.calls.abort)(handle as *mut c_void) };
    }

    /// Makes calls with the device current.
    fn operate(&self, calls: impl FnOnce(*mut c_void) -> Result<(), String>) -> Result<(), String> {
        on(self.device, || self.alone(calls))
    }

    /// Makes calls while no other thread does, unless it is aborted.
    fn alone(&self, calls: impl FnOnce(*mut c_void) -> Result<(), String>) -> Result<(), String> {
        let _in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        match self.handle.load(Ordering::SeqCst) {
            0 => Err("the group of GPUs was ended".into()),
            handle => calls(handle as *mut c_void),
        }
    }

    fn buffer(&self, tensor: &Tensor) -> Result<(*mut c_void, c_int), String> {
        let kind = match tensor.kind() {
            Kind::Float => FLOAT32,
            Kind::BFloat16 => BFLOAT16,
            other => return Err(format!("values of {other:?} do not travel between GPUs")),
        };
        if tensor.device() != self.device || !tensor.is_contiguous() {
            return Err(format!(
                "a tensor on {:?}: expected a contiguous one on {:?}",
                tensor.device(),
                self.device
            ));
        }
        Ok((tensor.data_ptr(), kind))
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let handle = self.handle.swap(0, Ordering::SeqCst);
        if handle != 0 {
            // SAFETY: ncclResult_t ncclCommDestroy(ncclComm_t), once, for a communicator that was not aborted.
            let _ = unsafe { (self.calls.destroy)(handle as *mut c_void) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// What stands behind the handle of a communicator without a GPU.
    #[derive(Default)]
    struct Probe {
        in_call: AtomicBool,
        aborted: AtomicBool,
        aborted_in_call: AtomicBool,
    }

    unsafe extern "C" fn abort(handle: *mut c_void) -> c_int {
        // SAFETY: the handle is that of a probe that outlives its communicator.
        let probe = unsafe { &*handle.cast_const().cast::<Probe>() };
        probe.aborted_in_call.store(probe.in_call.load(Ordering::SeqCst), Ordering::SeqCst);
        probe.aborted.store(true, Ordering::SeqCst);
        0
    }

    unsafe extern "C" fn on_comm(_: *mut c_void) -> c_int {
        0
    }

    unsafe extern "C" fn group() -> c_int {
        0
    }

    unsafe extern "C" fn unique_id(_: *mut UniqueId) -> c_int {
        1
    }

    unsafe extern "C" fn init_rank(_: *mut *mut c_void, _: c_int, _: UniqueId, _: c_int) -> c_int {
        1
    }

    unsafe extern "C" fn error_string(_: c_int) -> *const c_char {
        ptr::null()
    }

    unsafe extern "C" fn with_root(
        _: *const c_void,
        _: *mut c_void,
        _: usize,
        _: c_int,
        _: c_int,
        _: *mut c_void,
        _: *mut c_void,
    ) -> c_int {
        1
    }

    unsafe extern "C" fn reduce(
        _: *const c_void,
        _: *mut c_void,
        _: usize,
        _: c_int,
        _: c_int,
        _: c_int,
        _: *mut c_void,
        _: *mut c_void,
    ) -> c_int {
        1
    }

    unsafe extern "C" fn gather(
        _: *const c_void,
        _: *mut c_void,
        _: usize,
        _: c_int,
        _: *mut c_void,
        _: *mut c_void,
    ) -> c_int {
        1
    }

    fn communicator(probe: &Probe) -> Communicator {
        let calls = Calls {
            get_unique_id: unique_id,
            init_rank,
            destroy: on_comm,
            abort,
            group_start: group,
            group_end: group,
            error_string,
            broadcast: with_root,
            all_reduce: with_root,
            reduce,
            reduce_scatter: with_root,
            all_gather: gather,
            library: Library::this(),
        };
        let handle = AtomicUsize::new(ptr::from_ref(probe) as usize);
        Communicator {
            calls: Arc::new(calls),
            handle,
            in_use: Mutex::default(),
            ranks: 1,
            device: Device::Cpu,
        }
    }

    /// A call that goes on until it is aborted, at most so long, beside an abort.
    fn call_beside_an_abort(limit: Duration) -> (Probe, Duration) {
        let probe = Probe::default();
        let communicator = communicator(&probe);
        let took = std::thread::scope(|scope| {
            scope.spawn(|| {
                communicator.alone(|_| {
                    probe.in_call.store(true, Ordering::SeqCst);
                    let end = Instant::now() + limit;
                    while Instant::now() < end && !probe.aborted.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    probe.in_call.store(false, Ordering::SeqCst);
                    Ok(())
                })
            });
            while !probe.in_call.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let began = Instant::now();
            communicator.abort();
            began.elapsed()
        });
        let ended = communicator.alone(|_| Ok(())).unwrap_err();
        assert_eq!(ended, "the group of GPUs was ended");
        drop(communicator);
        (probe, took)
    }

    #[test]
    fn an_abort_waits_for_a_call_that_ends() {
        let (probe, _) = call_beside_an_abort(Duration::from_millis(200));
        assert!(probe.aborted.into_inner() && !probe.aborted_in_call.into_inner());
    }

    #[test]
    fn an_abort_ends_a_call_that_does_not() {
        let (probe, took) = call_beside_an_abort(Duration::from_mins(1));
        assert!(probe.aborted_in_call.into_inner());
        assert!(took >= ABORT_PATIENCE && took < 10 * ABORT_PATIENCE, "{took:?}");
    }
}
