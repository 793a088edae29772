//! A rank's part of a group of GPUs, from joining to its end: calls with its device current, one thread at a time, and an abort
//! from another thread.

use super::{Calls, ID_BYTES, Nccl, UniqueId};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tch::{Device, Kind, Tensor};

/// How long an abort waits for a call that has begun.
const ABORT_PATIENCE: Duration = Duration::from_secs(2);

/// One rank's part of a group of GPUs.
#[derive(Debug)]
pub struct Communicator {
    pub(super) calls: Arc<Calls>,
    /// 0 once it is aborted.
    handle: AtomicUsize,
    /// Held during every call: a communicator is not for two threads at a time.
    in_use: Mutex<()>,
    pub(super) ranks: usize,
    pub(super) device: Device,
}

impl Nccl {
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

impl Communicator {
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
    pub(super) fn operate(
        &self,
        calls: impl FnOnce(*mut c_void) -> Result<(), String>,
    ) -> Result<(), String> {
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
    use libloading::os::unix::Library;
    use std::ffi::c_char;
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
