//! A pool of ready desktops: a reset takes one, and the next is started in the background.
//!
//! A reset is a new desktop from the image, so nothing of an episode can survive it. A spare waits paused and must
//! return a screenshot when it is taken; one that died meanwhile is removed. If a spare cannot be started, the next
//! attempt is made when a caller takes one, and that caller gets the error.

use super::Provider;
use super::desktop::Desktop;
use super::error::ProviderError;
use super::ready::fetch_screenshot;
use super::snapshot::Snapshot;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Timeout of the first screenshot of a resumed spare.
const WAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of starting a spare; its kind has lower limits.
const START_TIMEOUT: Duration = Duration::from_mins(10);
/// Timeout of pending work when the spares are dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_mins(2);

/// Desktops kept ready.
pub struct Spares {
    origin: Origin,
    inner: Arc<Inner>,
}

/// Where they come from. A thread drops its copy before it reports its end, so that provider and snapshot can be
/// dropped after the spares.
#[derive(Clone)]
struct Origin {
    provider: Provider,
    snapshot: Option<Arc<Snapshot>>,
}

impl Origin {
    fn start(&self, deadline: Instant, given_up: &AtomicBool) -> Result<Desktop, ProviderError> {
        self.provider.start_unless(self.snapshot.as_deref(), deadline, given_up)
    }
}

/// What the threads share.
struct Inner {
    wanted: usize,
    closing: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    ready: Vec<Desktop>,
    /// Spares being started.
    starting: usize,
    /// Callers that wait for one of those.
    waiting: usize,
    /// Callers that start their own.
    taking: usize,
    /// Desktops being removed.
    removing: usize,
}

impl Spares {
    /// Keeps `wanted` desktops ready from now on. Running guests have no spares: theirs are started when taken.
    pub fn new(provider: Provider, wanted: usize) -> Self {
        Self::with(provider, None, wanted)
    }

    /// Keeps desktops with the files of a snapshot ready.
    pub fn from_snapshot(provider: Provider, snapshot: Arc<Snapshot>, wanted: usize) -> Self {
        Self::with(provider, Some(snapshot), wanted)
    }

    fn with(provider: Provider, snapshot: Option<Arc<Snapshot>>, wanted: usize) -> Self {
        let wanted = if provider.starts_fresh() { wanted } else { 0 };
        let inner = Arc::new(Inner {
            wanted,
            closing: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let spares = Self { origin: Origin { provider, snapshot }, inner };
        spares.refill();
        spares
    }

    /// A fresh desktop: a spare, one that is nearly ready, or a new one.
    pub fn take(&self, deadline: Instant) -> Result<Desktop, ProviderError> {
        let inner = &self.inner;
        while let Some(spare) = inner.next_spare(deadline) {
            self.refill();
            if wake(&spare, deadline).is_ok() {
                return Ok(spare);
            }
            self.give_back(spare);
        }
        // counted, so that closing waits for it, and checked under the lock, so that none starts after closing
        {
            let mut state = inner.lock();
            if inner.closing.load(Ordering::Acquire) {
                return Err(ProviderError::Closing { name: "of the next episode".into() });
            }
            state.taking += 1;
        }
        let desktop = self.origin.start(deadline, &inner.closing);
        inner.lock().taking -= 1;
        inner.changed.notify_all();
        self.refill();
        desktop
    }

    /// Removes a desktop in the background.
    pub fn give_back(&self, desktop: Desktop) {
        if !self.origin.provider.starts_fresh() {
            drop(desktop);
            return;
        }
        self.inner.lock().removing += 1;
        let removal = Removal { inner: Arc::clone(&self.inner), desktop: Some(desktop) };
        // If no thread can be started, the closure drops the desktop here.
        let _ = std::thread::Builder::new().name("removal".into()).spawn(move || drop(removal));
    }

    /// A reset: removes the old desktop and takes a fresh one.
    pub fn renew(&self, old: Desktop, deadline: Instant) -> Result<Desktop, ProviderError> {
        // A running guest must be free before it can be taken again.
        self.give_back(old);
        self.take(deadline)
    }

    /// How many are ready at this moment.
    pub fn ready(&self) -> usize {
        self.inner.lock().ready.len()
    }

    /// Waits until all wanted spares are ready or have failed, or until the deadline; true if they are ready.
    pub fn wait_until_full(&self, deadline: Instant) -> bool {
        let mut state = self.inner.lock();
        while state.starting > 0 && state.ready.len() < self.inner.wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.inner.wait(state, left);
        }
        state.ready.len() >= self.inner.wanted
    }

    /// The provider they come from.
    pub fn provider(&self) -> &Provider {
        &self.origin.provider
    }

    /// Starts what is missing, each on a thread of its own.
    fn refill(&self) {
        let inner = &self.inner;
        let mut state = inner.lock();
        while !inner.closing.load(Ordering::Acquire) && state.ready.len() + state.starting < inner.wanted {
            state.starting += 1;
            let (origin, inner) = (self.origin.clone(), Arc::clone(inner));
            let thread = std::thread::Builder::new().name("spare".into());
            if thread.spawn(move || inner.start_one(origin)).is_err() {
                // No thread available: callers start their own.
                state.starting -= 1;
                return;
            }
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Spares {
    /// Stops starting desktops, and removes all of them, even those held by a hanging thread.
    pub fn close(&self) -> Result<(), ProviderError> {
        self.shut_down();
        self.provider().remove_all().map(drop)
    }

    fn shut_down(&self) {
        let ready = {
            let mut state = self.inner.lock();
            self.inner.closing.store(true, Ordering::Release);
            std::mem::take(&mut state.ready)
        };
        drop(ready);
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let mut state = self.inner.lock();
        while state.starting + state.taking + state.removing > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.inner.wait(state, left);
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// A spare; waits for one being started unless other callers wait for it.
    fn next_spare(&self, deadline: Instant) -> Option<Desktop> {
        let mut state = self.lock();
        if !state.ready.is_empty() {
            return Some(state.ready.remove(0));
        }
        if state.starting <= state.waiting {
            return None;
        }
        state.waiting += 1;
        let spare = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break None;
            }
            state = self.wait(state, left);
            if !state.ready.is_empty() {
                break Some(state.ready.remove(0));
            }
            // Its start failed: the caller's own attempt will report why.
            if state.starting < state.waiting {
                break None;
            }
        };
        state.waiting -= 1;
        spare
    }

    fn start_one(&self, origin: Origin) {
        let started = origin.start(Instant::now() + START_TIMEOUT, &self.closing);
        let spare = started.and_then(|desktop| desktop.pause().map(|()| desktop)).ok();
        drop(origin);
        let mut state = self.lock();
        // Checked under the lock: closing empties the list under it, too.
        if self.closing.load(Ordering::Acquire) {
            drop(state);
            drop(spare);
            state = self.lock();
        } else {
            state.ready.extend(spare);
        }
        state.starting -= 1;
        self.changed.notify_all();
    }
}

/// A desktop being removed, counted until it is gone.
struct Removal {
    inner: Arc<Inner>,
    desktop: Option<Desktop>,
}

impl Drop for Removal {
    fn drop(&mut self) {
        drop(self.desktop.take());
        self.inner.lock().removing -= 1;
        self.inner.changed.notify_all();
    }
}

/// Resumes a spare and fetches a screenshot.
fn wake(spare: &Desktop, deadline: Instant) -> Result<(), String> {
    spare.unpause().map_err(|error| error.to_string())?;
    fetch_screenshot(spare, WAKE_TIMEOUT.min(deadline.saturating_duration_since(Instant::now()))).map(|_| ())
}
