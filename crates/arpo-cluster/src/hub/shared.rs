//! What the hub's threads, its desktops and whoever brings workers to it share.

use super::HubOptions;
use super::registry::{Location, LostWorker, Registry};
use crate::protocol::frame::Frame;
use crate::protocol::status::ClusterStatus;
use crate::protocol::{Answer, Message, Welcome};
use arpo_core::config::Config;
use arpo_env::environment::EnvironmentError;
use arpo_suite::osworld;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often lost workers are looked at.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Receives what a user may want to know, a line at a time.
pub type Log = Box<dyn Fn(&str) + Send + Sync>;

/// What the hub's threads and desktops share.
pub(super) struct Shared {
    pub(super) options: HubOptions,
    /// The id of the run: another trainer has another.
    pub(super) run: String,
    pub(super) since: Instant,
    pub(super) config: Config,
    pub(super) tasks: Vec<osworld::TaskText>,
    pub(super) registry: Mutex<Registry>,
    /// Notified when there may be more room.
    pub(super) changed: Condvar,
    pub(super) log: Log,
}

impl Shared {
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn log(&self, line: &str) {
        (self.log)(line);
    }

    /// Waits for room for a desktop.
    pub(super) fn place(
        &self,
        slot: usize,
        replies: &Sender<Answer>,
        deadline: Instant,
    ) -> Result<Location, EnvironmentError> {
        let broken = |reason: String| Err(EnvironmentError::Broken { reason });
        let mut registry = self.registry();
        loop {
            if registry.closed {
                return broken("the workers are closed".into());
            }
            let now = Instant::now();
            if let Some(place) = registry.place(slot, replies.clone(), now) {
                return Ok(place);
            }
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                let (workers, capacity) = registry.capacity();
                return broken(format!("no room for a desktop: {workers} workers host at most {capacity}"));
            }
            // quarantine ends without anybody saying so
            let waited = self.changed.wait_timeout(registry, left.min(10 * POLL_INTERVAL));
            registry = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn release(&self, at: &Location) {
        self.registry().release(at);
        self.changed.notify_all();
    }

    pub(super) fn report_lost(&self, workers: &[LostWorker]) {
        for LostWorker { host, quarantined } in workers {
            self.log(&format!("a worker on {host} was lost; its episodes are started again elsewhere"));
            if let Some(time) = quarantined {
                self.report_quarantine(host, *time, "a worker was lost");
            }
        }
    }

    pub(super) fn report_quarantine(&self, host: &str, time: Duration, last: &str) {
        let seconds = time.as_secs_f64();
        self.log(&format!(
            "host {host} gets no desktops for {seconds} s: its desktops or workers keep failing; the last: {last}"
        ));
    }

    pub(super) fn status(&self) -> ClusterStatus {
        self.registry().status(self.since.elapsed(), self.options.desktops, Instant::now())
    }

    pub(super) fn welcome(&self, desktops: Vec<u64>) -> Option<Frame> {
        let welcome = Welcome {
            run: self.run.clone(),
            grace_ms: u64::try_from(self.options.grace.as_millis()).unwrap_or(u64::MAX),
            desktops,
            config: self.config.clone(),
            tasks: self.tasks.clone(),
        };
        Message::Welcome(Box::new(welcome)).frame().inspect_err(|error| self.log(&error.to_string())).ok()
    }

    /// Gives up workers that do not come back, until the hub is closed.
    pub(super) fn watch(&self) {
        while !self.registry().closed {
            let lost = self.registry().give_up(self.options.grace, Instant::now());
            self.report_lost(&lost);
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The hub, for whoever brings workers to it.
#[derive(Clone)]
pub struct HubHandle(pub(super) Arc<Shared>);

impl HubHandle {
    /// Tells the user.
    pub fn log(&self, line: &str) {
        self.0.log(line);
    }

    /// Gives up the workers of a process of this machine that has ended: nobody will connect under their names again.
    pub fn process_ended(&self, process: u32) {
        let lost = self.0.registry().process_ended(&crate::worker::host_name(), process, Instant::now());
        self.0.report_lost(&lost);
    }
}
