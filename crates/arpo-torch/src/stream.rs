//! A CUDA stream beside the one that libtorch computes on: what is queued on it goes on while libtorch computes. Events order
//! the two.
//!
//! libtorch's allocator knows nothing of it: whoever queues an operation on a tensor keeps the tensor until the computation is
//! held ([`SideStream::hold_computation`]) for what the operation has done.

use crate::context::{Context, on};
use crate::kernels::{check, find};
use libloading::os::unix::Library;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

type Create = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int;
type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
type Record = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Wait = unsafe extern "C" fn(*mut c_void, *mut c_void, c_uint) -> c_int;
type Elapsed = unsafe extern "C" fn(*mut f32, *mut c_void, *mut c_void) -> c_int;

/// `CU_STREAM_NON_BLOCKING`: the default stream, which is libtorch's, does not wait for such a stream, nor the reverse.
const NON_BLOCKING: c_uint = 1;

/// libtorch's stream.
const COMPUTATION: *mut c_void = ptr::null_mut();

#[derive(Debug)]
struct Calls {
    event_create: Create,
    event_destroy: Destroy,
    event_record: Record,
    event_elapsed: Elapsed,
    stream_destroy: Destroy,
    stream_wait: Wait,
    /// Of another device than the first.
    context: Option<Context>,
    /// The calls are in it.
    #[expect(dead_code, reason = "held, not read")]
    driver: Library,
}

/// A stream of a GPU.
#[derive(Debug)]
pub struct SideStream {
    calls: Arc<Calls>,
    handle: usize,
}

/// A point in the work of a stream.
#[derive(Debug)]
pub struct Event {
    calls: Arc<Calls>,
    handle: usize,
}

/// A time for which libtorch's stream was held.
#[derive(Debug)]
pub struct Hold {
    began: Event,
    ended: Event,
}

impl SideStream {
    /// A new stream of a GPU.
    pub fn new(device: Device) -> Result<Self, String> {
        // the driver's calls go to this thread's context, which is libtorch's once a tensor exists
        let _ = Tensor::f_zeros([1], (Kind::Float, device)).map_err(|error| error.to_string())?;
        let context = Context::of(device)?;
        // SAFETY: libtorch uses the driver already; opening it again only adds a reference.
        let driver = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        // SAFETY: CUresult cuStreamCreate(CUstream *stream, unsigned int flags), and the same for an event;
        // cuStreamDestroy(CUstream) and cuEventDestroy(CUevent); cuEventRecord(CUevent, CUstream);
        // cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
        // cuStreamWaitEvent(CUstream, CUevent, unsigned int flags). All handles are pointers.
        let (stream_create, calls) = unsafe {
            let stream_create: Create = find(&driver, "cuStreamCreate")?;
            let calls = Calls {
                event_create: find(&driver, "cuEventCreate")?,
                event_destroy: find(&driver, "cuEventDestroy_v2")?,
                event_record: find(&driver, "cuEventRecord")?,
                event_elapsed: find(&driver, "cuEventElapsedTime")?,
                stream_destroy: find(&driver, "cuStreamDestroy_v2")?,
                stream_wait: find(&driver, "cuStreamWaitEvent")?,
                context,
                driver,
            };
            (stream_create, calls)
        };
        let mut handle = ptr::null_mut();
        // SAFETY: as above, with the GPU current.
        let code = calls.on(|| unsafe { stream_create(&raw mut handle, NON_BLOCKING) });
        check("cuStreamCreate", code)?;
        Ok(Self { calls: Arc::new(calls), handle: handle as usize })
    }

    /// The stream, for a library that queues operations on it.
    pub fn handle(&self) -> *mut c_void {
        self.handle as *mut c_void
    }

    /// What is queued here from now on begins when everything that libtorch was given so far is done.
    pub fn follow_computation(&self) -> Result<(), String> {
        self.calls.wait(self.handle(), &self.event(COMPUTATION)?)
    }

    /// The end of what is queued here so far.
    pub fn mark(&self) -> Result<Event, String> {
        self.event(self.handle())
    }

    /// What libtorch is given from now on begins when this stream has come to a mark.
    pub fn hold_computation(&self, mark: &Event) -> Result<Hold, String> {
        let began = self.event(COMPUTATION)?;
        self.calls.wait(COMPUTATION, mark)?;
        Ok(Hold { began, ended: self.event(COMPUTATION)? })
    }

    /// A new event at the end of a stream.
    fn event(&self, stream: *mut c_void) -> Result<Event, String> {
        let mut handle = ptr::null_mut();
        // SAFETY: as in `new`, with flags of 0, and the GPU current.
        let code = self.calls.on(|| unsafe { (self.calls.event_create)(&raw mut handle, 0) });
        check("cuEventCreate", code)?;
        let event = Event { calls: Arc::clone(&self.calls), handle: handle as usize };
        // SAFETY: as in `new`; event and stream are live, and of the GPU that is current.
        let code = self.calls.on(|| unsafe { (self.calls.event_record)(handle, stream) });
        check("cuEventRecord", code)?;
        Ok(event)
    }
}

impl Calls {
    fn on<T>(&self, work: impl FnOnce() -> T) -> T {
        on(self.context.as_ref(), work)
    }

    /// Makes a stream wait for an event. The event may be destroyed after that: what it was is queued.
    fn wait(&self, stream: *mut c_void, event: &Event) -> Result<(), String> {
        // SAFETY: as in `SideStream::new`; event and stream are live.
        let code = self.on(|| unsafe { (self.stream_wait)(stream, event.handle as *mut c_void, 0) });
        check("cuStreamWaitEvent", code)
    }
}

impl Hold {
    /// Its seconds; `None` while libtorch's stream has not come to its end.
    pub fn seconds(&self) -> Option<f64> {
        let (calls, mut milliseconds) = (&self.began.calls, 0f32);
        let (began, ended) = (self.began.handle as *mut c_void, self.ended.handle as *mut c_void);
        // SAFETY: as in `SideStream::new`, with two live events that were recorded.
        let code = calls.on(|| unsafe { (calls.event_elapsed)(&raw mut milliseconds, began, ended) });
        (code == 0).then_some(f64::from(milliseconds) / 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: as in `SideStream::new`, once; the driver keeps what it still needs of it.
        let _ = self.calls.on(|| unsafe { (self.calls.event_destroy)(self.handle as *mut c_void) });
    }
}

impl Drop for SideStream {
    fn drop(&mut self) {
        // SAFETY: as in `new`, once; the driver completes what is queued.
        let _ = self.calls.on(|| unsafe { (self.calls.stream_destroy)(self.handle as *mut c_void) });
    }
}
