//! The desktops: which are free, which are in a call and until when, and what becomes of those that fail.
//!
//! A desktop that fails is torn down and another started in its place, later and later if it keeps failing, and in the
//! end no more. One that overruns is not waited for: its thread is left to itself, and what it may still say is not
//! listened to.

use super::desktop::{Call, DesktopFactory, DesktopReport, DesktopThread, Done, Failure, start};
use super::report::{FailureKind, Tally};
use super::thinking::Thought;
use super::{CollectOptions, Remedy};
use crate::run::stop::StopSwitch;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Longest wait between failures, in first waits.
const LONGEST_BACK_OFF: u32 = 64;

/// How often the switch is looked at while nothing happens.
const LOOK: Duration = Duration::from_millis(50);

/// Desktops have this long to tear themselves down when the collector goes.
const TEAR_DOWN: Duration = Duration::from_secs(10);

/// What the collector hears of.
#[derive(Debug)]
pub(super) enum Event {
    Desktop(DesktopReport),
    Policy(Thought),
}

impl From<DesktopReport> for Event {
    fn from(report: DesktopReport) -> Self {
        Self::Desktop(report)
    }
}

impl From<Thought> for Event {
    fn from(thought: Thought) -> Self {
        Self::Policy(thought)
    }
}

/// What is new, after the pool has looked after its desktops.
#[derive(Debug)]
pub(super) enum News {
    /// A call ended. Of the episode, unless it was a start.
    Call { place: usize, episode: Option<u64>, busy: Duration, result: Result<Done, Failed> },
    /// The policy has something to say.
    Policy(Thought),
}

/// A call that came to nothing, and what is done about its desktop.
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
    Resting {
        until: Instant,
    },
    Starting {
        since: Instant,
        deadline: Instant,
    },
    Idle,
    /// Between the calls of an episode.
    Holding,
    Calling {
        episode: u64,
        since: Instant,
        deadline: Instant,
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

/// All desktops.
pub(super) struct Pool {
    factory: Arc<DesktopFactory>,
    slots: Vec<Slot>,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    last_failure: String,
}

impl Pool {
    pub(super) fn new(factory: Arc<DesktopFactory>, desktops: usize) -> Self {
        let (events, inbox) = channel();
        let now = Instant::now();
        let slot =
            |_| Slot { state: State::Resting { until: now }, generation: 0, thread: None, failures: 0 };
        let slots = (0..desktops).map(slot).collect();
        Self { factory, slots, events, inbox, last_failure: String::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Where the policy tells.
    pub(super) fn events(&self) -> Sender<Event> {
        self.events.clone()
    }

    /// Another chance for those in quarantine, and freedom for those that a collection left in the middle of an
    /// episode.
    pub(super) fn begin(&mut self) {
        for slot in &mut self.slots {
            match slot.state {
                State::Quarantined => slot.state = State::Resting { until: Instant::now() },
                State::Holding => slot.state = State::Idle,
                _ => {}
            }
        }
    }

    /// Time that calls under way have taken so far, all together.
    pub(super) fn in_calls(&self) -> Duration {
        let so_far = |slot: &Slot| match slot.state {
            State::Starting { since, .. } | State::Calling { since, .. } => since.elapsed(),
            _ => Duration::ZERO,
        };
        self.slots.iter().map(so_far).sum()
    }

    /// Free desktops, in order.
    pub(super) fn idle(&self) -> Vec<usize> {
        let idle = |(_, slot): &(usize, &Slot)| matches!(slot.state, State::Idle);
        self.slots.iter().enumerate().filter(idle).map(|(place, _)| place).collect()
    }

    /// A desktop is in a call of an episode.
    pub(super) fn is_calling(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot.state, State::Calling { .. }))
    }

    /// A desktop will be free when it has started.
    pub(super) fn is_starting(&self) -> bool {
        let starts = |slot: &Slot| matches!(slot.state, State::Resting { .. } | State::Starting { .. });
        self.slots.iter().any(starts)
    }

    pub(super) fn quarantined(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot.state, State::Quarantined)).count()
    }

    pub(super) fn last_failure(&self) -> &str {
        &self.last_failure
    }

    /// Calls a desktop for an episode, to be done by the deadline.
    pub(super) fn call(&mut self, place: usize, episode: u64, call: Call, limit: Duration) {
        let slot = &mut self.slots[place];
        if let Some(thread) = &slot.thread {
            // a thread that is gone has told why, or will be missed at the deadline
            let _ = thread.calls.send(call);
        }
        let since = Instant::now();
        slot.state = State::Calling { episode, since, deadline: since + limit };
    }

    /// The episode on it is over.
    pub(super) fn release(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        if matches!(slot.state, State::Holding) {
            slot.state = State::Idle;
        }
    }

    /// What is new; waits for it if `wait`, unless the switch is on.
    pub(super) fn news(
        &mut self,
        options: &CollectOptions,
        tally: &mut Tally,
        wait: bool,
        stop: &StopSwitch,
    ) -> Option<News> {
        loop {
            // what was said counts before what was not
            match self.inbox.try_recv() {
                Ok(event) => match self.heard(event, options) {
                    Some(news) => return Some(news),
                    None => continue,
                },
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
            if let Some(news) = self.overrun(options) {
                return Some(news);
            }
            self.start_rested(options, tally);
            if !wait || stop.asked() {
                return None;
            }
            let until_change =
                self.next_change().map(|change| change.saturating_duration_since(Instant::now()));
            let event = self.inbox.recv_timeout(until_change.map_or(LOOK, |left| left.min(LOOK)));
            if let Some(news) = event.ok().and_then(|event| self.heard(event, options)) {
                return Some(news);
            }
        }
    }

    fn heard(&mut self, event: Event, options: &CollectOptions) -> Option<News> {
        let report = match event {
            Event::Policy(thought) => return Some(News::Policy(thought)),
            Event::Desktop(report) => report,
        };
        let DesktopReport { place, generation, busy, result } = report;
        let slot = &mut self.slots[place];
        if slot.generation != generation {
            return None;
        }
        let episode = match slot.state {
            State::Calling { episode, .. } => Some(episode),
            _ => None,
        };
        let result = match result {
            Ok(done) => {
                slot.state = match &done {
                    Done::Started => State::Idle,
                    Done::Reset(_) => State::Holding,
                    Done::Acted { .. } | Done::Evaluated(_) => {
                        slot.failures = 0;
                        State::Holding
                    }
                };
                Ok(done)
            }
            Err(failure) if failure.kind == FailureKind::BadTask => {
                slot.state = State::Holding;
                Err(Failed { failure, remedy: Remedy::TaskLeftOut })
            }
            Err(failure) => {
                let remedy = self.fail(place, failure.reason.clone(), options);
                Err(Failed { failure, remedy })
            }
        };
        Some(News::Call { place, episode, busy, result })
    }

    /// Gives up the first desktop whose deadline has passed.
    fn overrun(&mut self, options: &CollectOptions) -> Option<News> {
        let now = Instant::now();
        let late = |slot: &Slot| match slot.state {
            State::Starting { since, deadline } if deadline < now => Some((None, since, deadline)),
            State::Calling { episode, since, deadline } if deadline < now => {
                Some((Some(episode), since, deadline))
            }
            _ => None,
        };
        let (place, (episode, since, deadline)) =
            self.slots.iter().enumerate().find_map(|(place, slot)| Some((place, late(slot)?)))?;
        let seconds = (deadline - since).as_secs_f64();
        let reason = format!("desktop {place} did not answer within {seconds} s");
        let remedy = self.fail(place, reason.clone(), options);
        let result = Err(Failed { failure: Failure::new(FailureKind::Overrun, reason), remedy });
        Some(News::Call { place, episode, busy: now - since, result })
    }

    fn fail(&mut self, place: usize, reason: String, options: &CollectOptions) -> Remedy {
        self.last_failure = reason;
        let slot = &mut self.slots[place];
        slot.generation += 1;
        slot.thread = None;
        slot.failures += 1;
        if slot.failures >= options.quarantine_after {
            slot.state = State::Quarantined;
            return Remedy::Quarantined;
        }
        let doublings = (slot.failures as u32).saturating_sub(2).min(LONGEST_BACK_OFF.ilog2());
        let rest = if slot.failures > 1 { options.back_off * (1 << doublings) } else { Duration::ZERO };
        slot.state = State::Resting { until: Instant::now() + rest };
        Remedy::Replaced { after_seconds: rest.as_secs_f64() }
    }

    fn start_rested(&mut self, options: &CollectOptions, tally: &mut Tally) {
        let now = Instant::now();
        for place in 0..self.slots.len() {
            let slot = &mut self.slots[place];
            if !matches!(slot.state, State::Resting { until } if until <= now) {
                continue;
            }
            tally.report.replacements += u64::from(slot.generation > 0);
            slot.state = State::Starting { since: now, deadline: now + options.start };
            match start(place, slot.generation, Arc::clone(&self.factory), self.events.clone()) {
                Ok(thread) => slot.thread = Some(thread),
                Err(error) => {
                    let reason = format!("no thread for desktop {place}: {error}");
                    let result = Err(Failure::new(FailureKind::Start, reason));
                    let (generation, busy) = (slot.generation, Duration::ZERO);
                    let _ = self.events.send(DesktopReport { place, generation, busy, result }.into());
                }
            }
        }
    }

    /// When something happens if nobody says anything.
    fn next_change(&self) -> Option<Instant> {
        let change = |slot: &Slot| match slot.state {
            State::Resting { until } => Some(until),
            // just after the deadline it has passed
            State::Starting { deadline, .. } | State::Calling { deadline, .. } => {
                Some(deadline + Duration::from_micros(100))
            }
            State::Quarantined | State::Idle | State::Holding => None,
        };
        self.slots.iter().filter_map(change).min()
    }
}

impl Drop for Pool {
    /// Lets desktops that are well tear themselves down before the program goes on, and perhaps ends.
    fn drop(&mut self) {
        let deadline = Instant::now() + TEAR_DOWN;
        let well = |slot: &mut Slot| {
            let thread = slot.thread.take()?;
            matches!(slot.state, State::Idle | State::Holding).then_some(thread.handle)
        };
        let handles: Vec<_> = self.slots.iter_mut().filter_map(well).collect();
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
