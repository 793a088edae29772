//! The desktops: which are free, which are in a call and until when, and how failed ones are replaced.
//!
//! A desktop that fails is torn down and another started in its slot, with growing delays if it keeps failing, until it
//! is quarantined. One that overruns is not waited for: its thread is abandoned, and its later reports are ignored.

use super::board::{DesktopNow, DesktopState};
use super::desktop::{AnswerLimit, Call, DesktopReport, DesktopThread, Done, Failure, start};
use super::generation::PolicyEvent;
use super::report::{FailureKind, Tally};
use super::{CollectOptions, Remedy};
use crate::run::stop::StopSwitch;
use arpo_suite::{EnvironmentSource, HostUse};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Longest back-off, as a multiple of the first.
const LONGEST_BACK_OFF: u32 = 64;

/// How often whoever waits for an event can look up: at the stop switch, at questions.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time for desktops to tear themselves down when the collector is dropped.
const TEAR_DOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// A message to the collector.
#[derive(Debug)]
pub(super) enum Event {
    Desktop(DesktopReport),
    Policy(PolicyEvent),
}

impl From<DesktopReport> for Event {
    fn from(report: DesktopReport) -> Self {
        Self::Desktop(report)
    }
}

impl From<PolicyEvent> for Event {
    fn from(event: PolicyEvent) -> Self {
        Self::Policy(event)
    }
}

/// An event for the session, after the pool has updated the state of its desktops.
#[derive(Debug)]
pub(super) enum PoolEvent {
    /// A call ended. `episode` is `None` for a start.
    Call { slot: usize, episode: Option<u64>, busy: Duration, result: Result<Done, Failed> },
    /// An event of the policy.
    Policy(PolicyEvent),
}

/// A failed call, and what is done about its desktop.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) remedy: Remedy,
}

#[derive(Debug)]
enum State {
    /// Failed too often.
    Quarantined,
    /// Waits to be started.
    BackingOff {
        until: Instant,
    },
    Starting {
        since: Instant,
        due: AnswerLimit,
    },
    Idle,
    /// Between the calls of an episode.
    InEpisode,
    /// The thread knows until when the desktop has to answer.
    Calling {
        episode: u64,
        since: Instant,
    },
}

#[derive(Debug)]
struct Slot {
    state: State,
    generation: u64,
    thread: Option<DesktopThread>,
    /// In a row.
    failures: usize,
}

impl Slot {
    /// What its desktop is being waited for.
    fn due(&self) -> Option<AnswerLimit> {
        match self.state {
            State::Starting { due, .. } => Some(due),
            State::Calling { .. } => self.thread.as_ref()?.awaited.get(),
            State::Quarantined | State::BackingOff { .. } | State::Idle | State::InEpisode => None,
        }
    }
}

/// All desktops.
pub(super) struct Pool {
    source: Arc<dyn EnvironmentSource>,
    slots: Vec<Slot>,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    last_failure: String,
}

impl Pool {
    pub(super) fn new(source: Arc<dyn EnvironmentSource>, desktops: usize) -> Self {
        let (events, inbox) = channel();
        let mut pool = Self { source, slots: vec![], events, inbox, last_failure: String::new() };
        pool.grow(desktops);
        pool
    }

    /// Adds desktops, at most so many in all, if the source has got room for more since. One that has less keeps its own:
    /// the desktops that it lost are replaced when there is room again.
    pub(super) fn grow(&mut self, most: usize) {
        let room = self.source.max_desktops().unwrap_or(usize::MAX).max(1);
        let state = || State::BackingOff { until: Instant::now() };
        for _ in self.slots.len()..most.min(room) {
            self.slots.push(Slot { state: state(), generation: 0, thread: None, failures: 0 });
        }
    }

    /// What the hosts of the desktops have done so far.
    pub(super) fn hosts(&self) -> Vec<HostUse> {
        self.source.hosts()
    }

    /// Every desktop by itself, without its episode.
    pub(super) fn states(&self) -> Vec<DesktopNow> {
        let mut places = self.source.places();
        let state = |entry: &Slot| match entry.state {
            State::Quarantined => DesktopState::Quarantined,
            State::BackingOff { .. } | State::Starting { .. } if entry.failures > 0 => DesktopState::Failed,
            _ => DesktopState::Idle,
        };
        let desktop = |(slot, entry): (usize, &Slot)| DesktopNow {
            host: places.remove(&slot),
            ..DesktopNow::without_episode(slot, state(entry))
        };
        self.slots.iter().enumerate().map(desktop).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The sender for the policy's events.
    pub(super) fn events(&self) -> Sender<Event> {
        self.events.clone()
    }

    /// Lets quarantined desktops start again, and frees those that an abandoned collection left in the middle of an
    /// episode.
    pub(super) fn begin(&mut self) {
        for entry in &mut self.slots {
            match entry.state {
                State::Quarantined => entry.state = State::BackingOff { until: Instant::now() },
                State::InEpisode => entry.state = State::Idle,
                _ => {}
            }
        }
    }

    /// Total time that running calls have taken so far.
    pub(super) fn in_calls(&self) -> Duration {
        let so_far = |entry: &Slot| match entry.state {
            State::Starting { since, .. } | State::Calling { since, .. } => since.elapsed(),
            _ => Duration::ZERO,
        };
        self.slots.iter().map(so_far).sum()
    }

    /// Slots of the free desktops, in order.
    pub(super) fn idle(&self) -> Vec<usize> {
        let idle = |(_, entry): &(usize, &Slot)| matches!(entry.state, State::Idle);
        self.slots.iter().enumerate().filter(idle).map(|(slot, _)| slot).collect()
    }

    /// A desktop is in a call of an episode.
    pub(super) fn is_calling(&self) -> bool {
        self.slots.iter().any(|entry| matches!(entry.state, State::Calling { .. }))
    }

    /// A desktop is starting or about to start.
    pub(super) fn is_starting(&self) -> bool {
        let starts = |entry: &Slot| matches!(entry.state, State::BackingOff { .. } | State::Starting { .. });
        self.slots.iter().any(starts)
    }

    pub(super) fn quarantined(&self) -> usize {
        self.slots.iter().filter(|entry| matches!(entry.state, State::Quarantined)).count()
    }

    pub(super) fn last_failure(&self) -> &str {
        &self.last_failure
    }

    /// Sends a call of an episode to a desktop; it fails after `limit`.
    pub(super) fn call(&mut self, slot: usize, episode: u64, call: Call, limit: Duration) {
        let entry = &mut self.slots[slot];
        if let Some(thread) = &entry.thread {
            thread.awaited.begin(limit);
            // a thread that has ended has reported why, or the deadline will catch it
            let _ = thread.calls.send(call);
        }
        entry.state = State::Calling { episode, since: Instant::now() };
    }

    /// Frees a desktop whose episode is over.
    pub(super) fn release(&mut self, slot: usize) {
        let entry = &mut self.slots[slot];
        if matches!(entry.state, State::InEpisode) {
            entry.state = State::Idle;
        }
    }

    /// The next event; if `wait`, waits for it for a moment.
    pub(super) fn next_event(
        &mut self,
        options: &CollectOptions,
        tally: &mut Tally,
        wait: bool,
        stop: &StopSwitch,
    ) -> Option<PoolEvent> {
        loop {
            // reports that have arrived count before deadlines
            match self.inbox.try_recv() {
                Ok(event) => match self.on_event(event, options) {
                    Some(event) => return Some(event),
                    None => continue,
                },
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
            if let Some(event) = self.overrun(options) {
                return Some(event);
            }
            self.start_due(options, tally);
            if !wait || stop.requested() {
                return None;
            }
            let until_change =
                self.next_change().map(|change| change.saturating_duration_since(Instant::now()));
            let received =
                self.inbox.recv_timeout(until_change.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL)));
            return received.ok().and_then(|event| self.on_event(event, options));
        }
    }

    fn on_event(&mut self, event: Event, options: &CollectOptions) -> Option<PoolEvent> {
        let report = match event {
            Event::Policy(event) => return Some(PoolEvent::Policy(event)),
            Event::Desktop(report) => report,
        };
        let DesktopReport { slot, generation, busy, result } = report;
        let entry = &mut self.slots[slot];
        if entry.generation != generation {
            return None;
        }
        let episode = match entry.state {
            State::Calling { episode, .. } => Some(episode),
            _ => None,
        };
        let result = match result {
            Ok(done) => {
                entry.state = match &done {
                    Done::Started => State::Idle,
                    Done::Reset(_) => State::InEpisode,
                    Done::Acted { .. } | Done::Evaluated(_) => {
                        entry.failures = 0;
                        State::InEpisode
                    }
                };
                Ok(done)
            }
            Err(failure) if failure.kind == FailureKind::BadTask => {
                entry.state = State::InEpisode;
                Err(Failed { failure, remedy: Remedy::TaskSkipped })
            }
            Err(failure) => {
                let remedy = self.fail(slot, failure.reason.clone(), options);
                Err(Failed { failure, remedy })
            }
        };
        Some(PoolEvent::Call { slot, episode, busy, result })
    }

    /// Gives up the first desktop whose deadline has passed.
    fn overrun(&mut self, options: &CollectOptions) -> Option<PoolEvent> {
        let now = Instant::now();
        let late = |entry: &Slot| {
            let due = entry.due().filter(|due| due.deadline < now)?;
            match entry.state {
                State::Starting { since, .. } => Some((None, since, due)),
                State::Calling { episode, since } => Some((Some(episode), since, due)),
                _ => None,
            }
        };
        let (slot, (episode, since, due)) =
            self.slots.iter().enumerate().find_map(|(slot, entry)| Some((slot, late(entry)?)))?;
        let seconds = due.limit.as_secs_f64();
        let reason = format!("desktop {slot} did not respond within {seconds} s");
        let remedy = self.fail(slot, reason.clone(), options);
        let result = Err(Failed { failure: Failure::new(FailureKind::Overrun, reason), remedy });
        Some(PoolEvent::Call { slot, episode, busy: now - since, result })
    }

    fn fail(&mut self, slot: usize, reason: String, options: &CollectOptions) -> Remedy {
        self.last_failure = reason;
        let entry = &mut self.slots[slot];
        entry.generation += 1;
        entry.thread = None;
        entry.failures += 1;
        if entry.failures >= options.quarantine_after {
            entry.state = State::Quarantined;
            return Remedy::Quarantined;
        }
        let doublings = (entry.failures as u32).saturating_sub(2).min(LONGEST_BACK_OFF.ilog2());
        let rest = if entry.failures > 1 { options.back_off * (1 << doublings) } else { Duration::ZERO };
        entry.state = State::BackingOff { until: Instant::now() + rest };
        Remedy::Replaced { after_seconds: rest.as_secs_f64() }
    }

    fn start_due(&mut self, options: &CollectOptions, tally: &mut Tally) {
        let now = Instant::now();
        for slot in 0..self.slots.len() {
            let entry = &mut self.slots[slot];
            if !matches!(entry.state, State::BackingOff { until } if until <= now) {
                continue;
            }
            tally.report.replacements += u64::from(entry.generation > 0);
            let due = AnswerLimit { limit: options.start, deadline: now + options.start };
            entry.state = State::Starting { since: now, due };
            match start(slot, entry.generation, Arc::clone(&self.source), self.events.clone()) {
                Ok(thread) => entry.thread = Some(thread),
                Err(error) => {
                    let reason = format!("no thread for desktop {slot}: {error}");
                    let result = Err(Failure::new(FailureKind::Start, reason));
                    let (generation, busy) = (entry.generation, Duration::ZERO);
                    let _ = self.events.send(DesktopReport { slot, generation, busy, result }.into());
                }
            }
        }
    }

    /// When the next deadline passes or the next back-off ends.
    fn next_change(&self) -> Option<Instant> {
        let change = |entry: &Slot| match entry.state {
            State::BackingOff { until } => Some(until),
            // a deadline has passed only after it, not at it
            _ => entry.due().map(|due| due.deadline + Duration::from_micros(100)),
        };
        self.slots.iter().filter_map(change).min()
    }
}

impl Drop for Pool {
    /// Gives healthy desktops time to tear themselves down, as the program may end right after this.
    fn drop(&mut self) {
        let deadline = Instant::now() + TEAR_DOWN_TIMEOUT;
        let healthy = |entry: &mut Slot| {
            let thread = entry.thread.take()?;
            matches!(entry.state, State::Idle | State::InEpisode).then_some(thread.handle)
        };
        let handles: Vec<_> = self.slots.iter_mut().filter_map(healthy).collect();
        while Instant::now() < deadline && handles.iter().any(|handle| !handle.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("slots", &self.slots).finish_non_exhaustive()
    }
}
