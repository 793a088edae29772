//! Ending a worker from outside: a signal, or the end of the process that started it.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whether a worker should end. Clones are the same switch.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    requested: bool,
    /// The connection that is being read, to be cut.
    stream: Option<TcpStream>,
}

impl Stop {
    /// Ends the worker: a rest ends, a connection is cut.
    pub fn request(&self) {
        let mut state = self.state();
        state.requested = true;
        if let Some(stream) = &state.stream {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.0.1.notify_all();
    }

    /// Whether it should end.
    pub fn requested(&self) -> bool {
        self.state().requested
    }

    /// Ends the worker when this input ends: the other end of the pipe belongs to the process that started it.
    pub fn when_closed(&self, mut input: impl Read + Send + 'static) -> io::Result<()> {
        let stop = self.clone();
        let wait = move || {
            let mut ignored = [0; 256];
            // an error, too, means that nobody is there
            while matches!(input.read(&mut ignored), Ok(length) if length > 0) {}
            stop.request();
        };
        std::thread::Builder::new().name("parent".into()).spawn(wait).map(drop)
    }

    /// Rests for a while, or until it should end.
    pub(super) fn sleep(&self, time: Duration) {
        let awaited = self.0.1.wait_timeout_while(self.state(), time, |state| !state.requested);
        drop(awaited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Cuts this connection when the worker should end, as long as the result lives.
    pub(super) fn cuts(&self, stream: &TcpStream) -> io::Result<CutOnStop> {
        let mut state = self.state();
        if state.requested {
            return Err(io::ErrorKind::Interrupted.into());
        }
        state.stream = Some(stream.try_clone()?);
        Ok(CutOnStop(self.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection is cut on a stop while this lives.
pub(super) struct CutOnStop(Stop);

impl Drop for CutOnStop {
    fn drop(&mut self) {
        self.0.state().stream = None;
    }
}
