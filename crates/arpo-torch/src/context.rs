//! Which GPU a thread's driver calls go to. libtorch makes a tensor's device current while it works on it and then the first
//! one again, so that calls of our own for another device have to do the same.

use crate::kernels::{check, find};
use libloading::os::unix::Library;
use std::ffi::{c_int, c_void};
use std::ptr;
use tch::Device;

type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type Push = unsafe extern "C" fn(*mut c_void) -> c_int;
type Pop = unsafe extern "C" fn(*mut *mut c_void) -> c_int;

/// The context of a GPU other than the first.
#[derive(Debug)]
pub(crate) struct Context {
    handle: usize,
    push: Push,
    pop: Pop,
}

impl Context {
    /// The context that libtorch uses for a GPU; `None` for the first, which is always current.
    pub(crate) fn of(device: Device) -> Result<Option<Self>, String> {
        let Device::Cuda(number @ 1..) = device else { return Ok(None) };
        // SAFETY: libtorch uses the driver already; opening it again only adds a reference.
        let driver = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        // SAFETY: CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device).
        let retain: Retain = unsafe { find(&driver, "cuDevicePrimaryCtxRetain")? };
        // SAFETY: CUresult cuCtxPushCurrent_v2(CUcontext context).
        let push: Push = unsafe { find(&driver, "cuCtxPushCurrent_v2")? };
        // SAFETY: CUresult cuCtxPopCurrent_v2(CUcontext *context).
        let pop: Pop = unsafe { find(&driver, "cuCtxPopCurrent_v2")? };
        let mut handle = ptr::null_mut();
        // SAFETY: as above. It is retained for the life of the process, as libtorch retains it.
        check("cuDevicePrimaryCtxRetain", unsafe { retain(&raw mut handle, number as c_int) })?;
        // the calls must stay loaded
        std::mem::forget(driver);
        Ok(Some(Self { handle: handle as usize, push, pop }))
    }

    /// Runs a function with the GPU current.
    pub(crate) fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        // SAFETY: a context that is retained for the life of the process.
        let pushed = unsafe { (self.push)(self.handle as *mut c_void) };
        assert_eq!(pushed, 0, "a GPU cannot be made current: the driver returns error {pushed}");
        let result = work();
        let mut popped = ptr::null_mut();
        // SAFETY: what was pushed above is on top of this thread's stack again.
        let _ = unsafe { (self.pop)(&raw mut popped) };
        result
    }
}

/// Runs a function with the GPU of a context current; without one, the first is.
pub(crate) fn on<T>(context: Option<&Context>, work: impl FnOnce() -> T) -> T {
    match context {
        None => work(),
        Some(context) => context.with(work),
    }
}

/// Runs a function with a GPU current.
pub(crate) fn with_current<T>(device: Device, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    on(Context::of(device)?.as_ref(), work)
}
