//! A desktop on a worker: an environment whose every call is a request.

use super::Shared;
use super::registry::Location;
use crate::protocol::outcome::{Inspection, Outcome};
use crate::protocol::{Answer, Call, Message, Request};
use arpo_core::action::Action;
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError, RecordEntry, Screen, StepResult};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time for an answer to arrive that was in time on the worker.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// The environment. Dropping it removes the desktop.
pub(super) struct RemoteDesktop {
    hub: Arc<Shared>,
    slot: usize,
    at: Location,
    replies: Receiver<Answer>,
    calls: u64,
    /// A response that travels with the next action.
    response: Option<String>,
    last: Option<Screen>,
    /// What the desktop did, for whoever keeps a record.
    record: Vec<RecordEntry>,
    deterministic: bool,
    size: Option<(u32, u32)>,
}

impl RemoteDesktop {
    /// Creates a desktop on a worker that has room for it by then.
    pub(super) fn make(hub: &Arc<Shared>, slot: usize, deadline: Instant) -> Result<Self, EnvironmentError> {
        let (sender, replies) = channel();
        let at = hub.place(slot, &sender, deadline)?;
        // the registry has the only sender: when it forgets the worker, waiting ends
        drop(sender);
        let mut desktop = Self::at(hub, slot, at, replies);
        match desktop.call(Call::Make { slot }, deadline, "make")?.outcome {
            Outcome::Made { deterministic, size } => {
                (desktop.deterministic, desktop.size) = (deterministic, size);
                Ok(desktop)
            }
            other => Err(desktop.confused(&other)),
        }
    }

    fn at(hub: &Arc<Shared>, slot: usize, at: Location, replies: Receiver<Answer>) -> Self {
        Self {
            hub: Arc::clone(hub),
            slot,
            at,
            replies,
            calls: 0,
            response: None,
            last: None,
            record: vec![],
            deterministic: false,
            size: None,
        }
    }

    /// Asks a worker, by its name, what its host has.
    pub(super) fn inspect(
        hub: &Arc<Shared>,
        worker: &str,
        deadline: Instant,
    ) -> Result<Inspection, EnvironmentError> {
        let (sender, replies) = channel();
        let gone = || EnvironmentError::Broken { reason: "the worker was lost".into() };
        let at = hub.registry().place_on(worker, usize::MAX, sender, Instant::now()).ok_or_else(gone)?;
        let mut desktop = Self::at(hub, usize::MAX, at, replies);
        match desktop.call(Call::Inspect {}, deadline, "inspect")?.outcome {
            Outcome::Inspected(inspection) => Ok(inspection),
            other => Err(desktop.confused(&other)),
        }
    }

    /// Sends a call and waits for its answer, its deadline, or the loss of its worker.
    fn call(
        &mut self,
        call: Call,
        deadline: Instant,
        during: &'static str,
    ) -> Result<Answer, EnvironmentError> {
        self.calls += 1;
        let number = self.calls;
        let succeeds = matches!(call, Call::Step { .. } | Call::Evaluate {});
        check_length(&call)?;
        let sent = self.hub.registry().call(&self.at, number, call, deadline);
        let answer = if sent { self.answer(deadline) } else { Err(RecvTimeoutError::Disconnected) };
        let result = match answer {
            Ok(Answer { outcome: Outcome::Failed(failure), .. }) => Err(failure.into()),
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => Err(EnvironmentError::Deadline { during }),
            Err(RecvTimeoutError::Disconnected) => {
                let Location { host, .. } = &self.at;
                let reason = format!("the worker on {host} was lost");
                // counted with its worker, not with each of its desktops
                self.hub.registry().slot_failed(self.slot, Some(host));
                return Err(EnvironmentError::Broken { reason });
            }
        };
        match result {
            Ok(mut answer) => {
                self.record.append(&mut answer.record);
                if succeeds {
                    self.hub.succeeded(self.slot, &self.at.host);
                }
                Ok(answer)
            }
            Err(error) => Err(self.hub.failed(self.slot, &self.at.host, error)),
        }
    }

    fn answer(&self, deadline: Instant) -> Result<Answer, RecvTimeoutError> {
        loop {
            let left = (deadline + ON_THE_WAY).saturating_duration_since(Instant::now());
            let answer = self.replies.recv_timeout(left)?;
            // one that came just after its deadline is not the one to this call
            if answer.number == self.calls {
                return Ok(answer);
            }
        }
    }

    /// The screen of an answer.
    fn screen(&mut self, png: Arc<[u8]>) -> Result<Screen, EnvironmentError> {
        let screen = Screen::from_png(png)?;
        self.last = Some(screen.clone());
        Ok(screen)
    }

    fn confused(&self, outcome: &Outcome) -> EnvironmentError {
        let host = &self.at.host;
        EnvironmentError::Broken { reason: format!("the worker on {host} gave another answer: {outcome:?}") }
    }
}

/// An error for a call that is too long to be sent: it would be repeated for ever.
fn check_length(call: &Call) -> Result<(), EnvironmentError> {
    let (Call::Reset { .. } | Call::Step { .. }) = call else { return Ok(()) };
    let request = Request { desktop: u64::MAX, number: u64::MAX, left_ms: u64::MAX, call: call.clone() };
    let framed = Message::Request(Box::new(request)).frame();
    framed.map(drop).map_err(|error| match call {
        Call::Reset { task, .. } => {
            EnvironmentError::BadTask { task: task.id.to_string(), reason: error.to_string() }
        }
        _ => EnvironmentError::Broken { reason: error.to_string() },
    })
}

impl Environment for RemoteDesktop {
    fn reset(&mut self, task: &Task, seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError> {
        (self.response, self.last) = (None, None);
        self.record.clear();
        let call = Call::Reset { task: Arc::new(task.clone()), seed };
        let Answer { outcome, png, .. } = self.call(call, deadline, "reset")?;
        match outcome {
            Outcome::Started { size } => {
                self.size = size;
                self.screen(png)
            }
            other => Err(self.confused(&other)),
        }
    }

    fn record_response(&mut self, response: &str) {
        self.response = Some(response.to_owned());
    }

    fn take_record(&mut self) -> Vec<RecordEntry> {
        std::mem::take(&mut self.record)
    }

    fn step(&mut self, action: &Action, deadline: Instant) -> Result<StepResult, EnvironmentError> {
        let call = Call::Step { response: self.response.take(), action: action.clone() };
        let Answer { outcome, png, .. } = self.call(call, deadline, "step")?;
        let Outcome::Stepped { terminated, truncated, unchanged } = outcome else {
            return Err(self.confused(&outcome));
        };
        let screen = match &self.last {
            Some(last) if unchanged => last.clone(),
            _ => self.screen(png)?,
        };
        Ok(StepResult { screen, terminated, truncated })
    }

    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError> {
        match self.call(Call::Evaluate {}, deadline, "evaluate")?.outcome {
            Outcome::Scored { bits } => Ok(f64::from_bits(bits)),
            other => Err(self.confused(&other)),
        }
    }

    fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    fn screen_size(&self) -> Option<(u32, u32)> {
        self.size
    }
}

impl Drop for RemoteDesktop {
    fn drop(&mut self) {
        self.hub.release(&self.at);
    }
}

impl Shared {
    fn succeeded(&self, slot: usize, host: &str) {
        let mut registry = self.registry();
        registry.hosts.succeeded(host);
        registry.slot_failed(slot, None);
    }

    /// Counts an error of a desktop on a host. A task that failed there only is not blamed while another host could try it:
    /// the error is then that of a broken desktop.
    fn failed(&self, slot: usize, host: &str, error: EnvironmentError) -> EnvironmentError {
        let now = Instant::now();
        let mut registry = self.registry();
        let error = match error {
            EnvironmentError::NoEpisode => return error,
            EnvironmentError::BadTask { task, reason } => {
                let only_here = registry.hosts.bad_task(host, &task);
                if !only_here || !registry.has_other_host(host, now) {
                    return EnvironmentError::BadTask { task, reason };
                }
                // another host shall try it; this one is not to blame yet
                registry.slot_failed(slot, Some(host));
                return EnvironmentError::Broken { reason: format!("task {task} on {host}: {reason}") };
            }
            error => error,
        };
        registry.slot_failed(slot, Some(host));
        let quarantined = registry.hosts.failed(host, &error.to_string(), now);
        drop(registry);
        if let Some(time) = quarantined {
            self.report_quarantine(host, time, &error.to_string());
        }
        error
    }
}
