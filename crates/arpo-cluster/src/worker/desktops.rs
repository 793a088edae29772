//! The desktops of a worker, each on its own thread, and what each answered last.
//!
//! A request is carried out at most once: its number is higher than any before it, or it is a repetition, which is answered
//! from memory or, if it is still being carried out, by its one answer. A call that never returns blocks only its own
//! thread, which is abandoned when the trainer closes the desktop.

use super::inspection;
use crate::link::Link;
use crate::protocol::frame::Frame;
use crate::protocol::outcome::{Failure, Outcome};
use crate::protocol::{Answer, Call, Message, Request};
use arpo_env::environment::{Environment, EnvironmentError, RecordEntry, Screen};
use arpo_suite::EnvironmentSource;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Longest time that a request may ask for.
const LONGEST_CALL: Duration = Duration::from_hours(24);

/// Where desktops come from, or why there are none.
pub(super) type Source = Result<Arc<dyn EnvironmentSource>, String>;

/// The desktops of a run.
pub(super) struct Desktops {
    source: Source,
    /// Most desktops.
    capacity: usize,
    by_desktop: BTreeMap<u64, HostedDesktop>,
    /// The threads of closed desktops that may still be removing them.
    ending: Vec<JoinHandle<()>>,
    uplink: Arc<Uplink>,
}

struct HostedDesktop {
    calls: Sender<(Request, Instant)>,
    memory: Arc<Mutex<Memory>>,
    thread: JoinHandle<()>,
}

/// What a desktop was asked last, and what it answered.
#[derive(Default)]
struct Memory {
    number: u64,
    /// `None` while it is being carried out.
    answer: Option<Frame>,
}

/// The connection to the trainer, while there is one.
#[derive(Default)]
struct Uplink(Mutex<Option<Link>>);

impl Uplink {
    fn send(&self, frame: Frame) {
        // without a connection nothing is lost: the trainer asks again
        if let Some(link) = &*lock(&self.0) {
            link.send(frame);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desktops {
    pub(super) fn new(source: Source, capacity: usize) -> Self {
        Self { source, capacity, by_desktop: BTreeMap::new(), ending: vec![], uplink: Arc::default() }
    }

    /// Answers go here from now on.
    pub(super) fn attach(&self, link: Link) {
        *lock(&self.uplink.0) = Some(link);
    }

    /// Answers are only remembered from now on.
    pub(super) fn detach(&self) {
        *lock(&self.uplink.0) = None;
    }

    /// Closes the desktops that the trainer does not use any more.
    pub(super) fn keep_only(&mut self, used: &[u64]) {
        let unused: Vec<u64> = self.by_desktop.keys().copied().filter(|id| !used.contains(id)).collect();
        for id in unused {
            self.close(id);
        }
    }

    /// Carries out a request, unless that has been done.
    pub(super) fn take(&mut self, request: &Request) {
        let id = request.desktop;
        if request.call == (Call::Close {}) {
            return self.close(id);
        }
        if matches!(request.call, Call::Make { .. } | Call::Inspect {}) && !self.by_desktop.contains_key(&id)
        {
            match self.host_desktop() {
                Ok(desktop) => drop(self.by_desktop.insert(id, desktop)),
                Err(reason) => return self.fail(request, reason),
            }
        }
        let Some(desktop) = self.by_desktop.get(&id) else {
            return self.fail(request, "the worker has no such desktop any more".into());
        };
        let mut memory = lock(&desktop.memory);
        if request.number == memory.number {
            let answer = memory.answer.clone();
            drop(memory);
            if let Some(answer) = answer {
                self.uplink.send(answer);
            }
        } else if request.number > memory.number {
            *memory = Memory { number: request.number, answer: None };
            drop(memory);
            let left = Duration::from_millis(request.left_ms).min(LONGEST_CALL);
            if desktop.calls.send((request.clone(), Instant::now() + left)).is_err() {
                self.fail(request, "the desktop's thread has ended".into());
            }
        }
    }

    fn host_desktop(&self) -> Result<HostedDesktop, String> {
        if self.by_desktop.len() >= self.capacity {
            return Err(format!("the worker has {} desktops already: expected at most that", self.capacity));
        }
        let (calls, inbox) = channel();
        let memory = Arc::<Mutex<Memory>>::default();
        let desktop = Desktop { environment: None, source: self.source.clone(), last: None };
        let (uplink, remembered) = (Arc::clone(&self.uplink), Arc::clone(&memory));
        let thread = Builder::new()
            .name("desktop".into())
            .spawn(move || serve(desktop, &inbox, &remembered, &uplink))
            .map_err(|error| format!("no thread for a desktop: {error}"))?;
        Ok(HostedDesktop { calls, memory, thread })
    }

    fn fail(&self, request: &Request, reason: String) {
        let outcome = Outcome::Failed(Failure::Broken { reason });
        self.uplink.send(frame(request, outcome, vec![], Arc::default()));
    }

    fn close(&mut self, id: u64) {
        self.ending.retain(|thread| !thread.is_finished());
        // without its sender the thread ends, and removes its desktop, after the call that may be running
        self.ending.extend(self.by_desktop.remove(&id).map(|desktop| desktop.thread));
    }

    /// Closes all desktops; waits for those that can still be closed, then removes what others left outside this program.
    pub(super) fn close_all(mut self, within: Duration) {
        self.detach();
        self.keep_only(&[]);
        let deadline = Instant::now() + within;
        while Instant::now() < deadline && self.ending.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Ok(source) = &self.source {
            // what cannot be removed now is removed by the next worker on this host
            let _ = source.close();
        }
    }
}

fn serve(
    mut desktop: Desktop,
    calls: &Receiver<(Request, Instant)>,
    memory: &Mutex<Memory>,
    uplink: &Uplink,
) {
    while let Ok((request, deadline)) = calls.recv() {
        let worked = catch_unwind(AssertUnwindSafe(|| desktop.carry_out(&request.call, deadline)));
        let (outcome, png) = match worked {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => (Outcome::Failed(error.into()), Arc::default()),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().copied();
                let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                let reason = format!("the desktop panicked: {}", text.unwrap_or("no message"));
                (Outcome::Failed(Failure::Broken { reason }), Arc::default())
            }
        };
        let answer = frame(&request, outcome, desktop.take_record(), png);
        let mut memory = lock(memory);
        // a trainer that gave this call up may have asked for the next
        if memory.number == request.number {
            memory.answer = Some(answer.clone());
        }
        drop(memory);
        uplink.send(answer);
    }
    // tearing down may panic, too, and nobody waits for it
    let _ = catch_unwind(AssertUnwindSafe(|| drop(desktop)));
}

fn frame(request: &Request, outcome: Outcome, record: Vec<RecordEntry>, png: Arc<[u8]>) -> Frame {
    let Request { desktop, number, .. } = *request;
    let answer =
        |outcome, record, png| Message::Answer(Answer { desktop, number, outcome, record, png }).frame();
    answer(outcome, record, png).unwrap_or_else(|error| {
        let failed = Outcome::Failed(Failure::Broken { reason: error.to_string() });
        answer(failed, vec![], Arc::default()).expect("an error is short enough to be sent")
    })
}

/// A desktop on its thread.
struct Desktop {
    source: Source,
    environment: Option<Box<dyn Environment>>,
    /// The last screen that was sent.
    last: Option<(Screen, Arc<[u8]>)>,
}

impl Desktop {
    /// The outcome of a call, and the screen to send with it.
    fn carry_out(
        &mut self,
        call: &Call,
        deadline: Instant,
    ) -> Result<(Outcome, Arc<[u8]>), EnvironmentError> {
        match call {
            Call::Make { slot } => {
                let broken = |reason: &String| EnvironmentError::Broken { reason: reason.clone() };
                let made = self.source.as_ref().map_err(broken)?.make(*slot)?;
                let (deterministic, size) = (made.is_deterministic(), made.screen_size());
                self.environment = Some(made);
                Ok((Outcome::Made { deterministic, size }, Arc::default()))
            }
            Call::Reset { task, seed } => {
                self.last = None;
                let environment = self.environment()?;
                let screen = environment.reset(task, *seed, deadline)?;
                let size = environment.screen_size();
                let png = screen.to_png()?;
                self.last = Some((screen, Arc::clone(&png)));
                Ok((Outcome::Started { size }, png))
            }
            Call::Step { response, action } => {
                let environment = self.environment()?;
                if let Some(response) = response {
                    environment.record_response(response);
                }
                let stepped = environment.step(action, deadline)?;
                let (png, unchanged) = self.encoded(&stepped.screen)?;
                let (terminated, truncated) = (stepped.terminated, stepped.truncated);
                Ok((Outcome::Stepped { terminated, truncated, unchanged }, png))
            }
            Call::Evaluate {} => {
                let score = self.environment()?.evaluate(deadline)?;
                Ok((Outcome::Scored { bits: score.to_bits() }, Arc::default()))
            }
            Call::Inspect {} => Ok((Outcome::Inspected(inspection::of(&self.source)), Arc::default())),
            Call::Close {} => Err(EnvironmentError::NoEpisode),
        }
    }

    fn take_record(&mut self) -> Vec<RecordEntry> {
        match &mut self.environment {
            Some(environment) => environment.take_record(),
            None => vec![],
        }
    }

    fn environment(&mut self) -> Result<&mut Box<dyn Environment>, EnvironmentError> {
        let missing = || EnvironmentError::Broken { reason: "the desktop was not created".into() };
        self.environment.as_mut().ok_or_else(missing)
    }

    /// A screen as a PNG; nothing if it has not changed.
    fn encoded(&mut self, screen: &Screen) -> Result<(Arc<[u8]>, bool), EnvironmentError> {
        if self.last.as_ref().is_some_and(|(last, _)| last.is(screen)) {
            return Ok((Arc::default(), true));
        }
        let png = screen.to_png()?;
        let unchanged = self.last.as_ref().is_some_and(|(_, last)| *last == png);
        self.last = Some((screen.clone(), Arc::clone(&png)));
        Ok(if unchanged { (Arc::default(), true) } else { (png, false) })
    }
}
