//! A thread that supervises the workers of a run until the run is over.

use super::Placed;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Workers that are supervised. Dropping it ends them.
pub(super) trait Supervised: Send + 'static {
    /// Looks once: what has ended is started again.
    fn supervise(&mut self) -> Outlook;
}

/// What is to be expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outlook {
    /// How many workers there should be.
    pub(super) workers: usize,
    /// Why none will ever come, if that is known.
    pub(super) problem: Option<String>,
}

impl Default for Outlook {
    /// Before the first look: the first worker may be there while others are still being started.
    fn default() -> Self {
        Self { workers: usize::MAX, problem: None }
    }
}

/// The thread; it ends, and the workers with it, when this is dropped.
pub(super) struct SupervisorThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ending: bool,
    outlook: Outlook,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SupervisorThread {
    /// Looks at workers this often.
    pub(super) fn start(name: &str, every: Duration, mut workers: impl Supervised) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let ours = Arc::clone(&shared);
        let run = move || {
            while !ours.state().ending {
                let outlook = workers.supervise();
                let mut state = ours.state();
                state.outlook = outlook;
                let rested = ours.changed.wait_timeout_while(state, every, |state| !state.ending);
                drop(rested.unwrap_or_else(PoisonError::into_inner));
            }
        };
        let thread = Builder::new().name(name.into()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Placed for SupervisorThread {
    fn workers(&self) -> usize {
        self.shared.state().outlook.workers
    }

    fn problem(&self) -> Option<String> {
        self.shared.state().outlook.problem.clone()
    }
}

impl Drop for SupervisorThread {
    fn drop(&mut self) {
        self.shared.state().ending = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
