//! One desktop on its own thread: executes one call at a time and reports the result.
//!
//! Nothing here can stop the collector. A panic counts as a broken desktop; a call that never returns blocks only this
//! thread, which the pool then abandons. A screenshot that is black or of another size than the screen is a failure.
//!
//! What this program does with an answer (decoding a screenshot, checking it) is not the desktop's time. Pixels are
//! released here, between calls: at most two screens of a desktop are decoded at any time.

use super::report::FailureKind;
use crate::episode::EpisodeScreen;
use crate::policy::Response;
use arpo_core::action::Action;
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError, Screen};
use arpo_suite::EnvironmentSource;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A call to a desktop.
#[derive(Debug)]
pub(super) enum Call {
    Reset { task: Arc<Task>, seed: u64, deadline: Instant },
    Act { response: Arc<Response>, actions: Vec<Action>, each: Duration },
    Evaluate { deadline: Instant },
}

/// The result of a successful call.
#[derive(Debug)]
pub(super) enum Done {
    Started,
    Reset(EpisodeScreen),
    /// The screen after the last action, and whether the agent or the desktop ended the episode.
    Acted {
        screen: EpisodeScreen,
        terminated: bool,
        truncated: bool,
    },
    Evaluated(f64),
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    pub(super) reason: String,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    /// Classifies an environment's error; `otherwise` is the kind if the error itself does not tell.
    fn of(error: &EnvironmentError, otherwise: FailureKind) -> Self {
        let kind = match error {
            EnvironmentError::BadTask { .. } => FailureKind::BadTask,
            EnvironmentError::Deadline { .. } => FailureKind::Overrun,
            EnvironmentError::NoEpisode | EnvironmentError::Broken { .. } => otherwise,
        };
        Self::new(kind, error.to_string())
    }
}

/// The result of a call, as a desktop sends it to the collector.
#[derive(Debug)]
pub(super) struct DesktopReport {
    pub(super) slot: usize,
    /// How many desktops this slot had before this one.
    pub(super) generation: u64,
    pub(super) busy: Duration,
    pub(super) result: Result<Done, Failure>,
}

/// What an environment is given to answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerLimit {
    pub(super) limit: Duration,
    pub(super) deadline: Instant,
}

/// Until when the environment has to answer; `None` once it has answered, while this program works on the answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Awaited(Arc<Mutex<Option<AnswerLimit>>>);

impl Awaited {
    /// An answer is due within `limit`; returns the deadline.
    pub(super) fn begin(&self, limit: Duration) -> Instant {
        let deadline = Instant::now() + limit;
        *self.lock() = Some(AnswerLimit { limit, deadline });
        deadline
    }

    pub(super) fn get(&self) -> Option<AnswerLimit> {
        *self.lock()
    }

    fn answered(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<AnswerLimit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A desktop's thread and the channel for its calls.
#[derive(Debug)]
pub(super) struct DesktopThread {
    pub(super) calls: Sender<Call>,
    pub(super) awaited: Awaited,
    pub(super) handle: JoinHandle<()>,
}

/// Starts a desktop. Its first report tells whether it could be created.
pub(super) fn start<Event: From<DesktopReport> + Send + 'static>(
    slot: usize,
    generation: u64,
    source: Arc<dyn EnvironmentSource>,
    reports: Sender<Event>,
) -> std::io::Result<DesktopThread> {
    let (calls, inbox) = channel();
    let awaited = Awaited::default();
    let seen = awaited.clone();
    let run = move || {
        let report = |busy, result| {
            let _ = reports.send(DesktopReport { slot, generation, busy, result }.into());
        };
        let started = Instant::now();
        let created = guarded(|| {
            source.make(slot).map_err(|error| Failure::new(FailureKind::Start, error.to_string()))
        });
        match created {
            Ok(desktop) => {
                report(started.elapsed(), Ok(Done::Started));
                serve_calls(desktop, &inbox, &seen, report);
            }
            Err(failure) => report(started.elapsed(), Err(failure)),
        }
    };
    let handle = Builder::new().name(format!("desktop {slot}")).spawn(run)?;
    Ok(DesktopThread { calls, awaited, handle })
}

/// Executes calls until the sender is gone or a call shows that the desktop is broken.
fn serve_calls(
    mut desktop: Box<dyn Environment>,
    calls: &Receiver<Call>,
    awaited: &Awaited,
    report: impl Fn(Duration, Result<Done, Failure>),
) {
    let mut last: Option<CheckedScreen> = None;
    while let Ok(call) = calls.recv() {
        let started = Instant::now();
        let before = last.as_ref().map(|last| last.kept.clone());
        let result = guarded(|| execute(desktop.as_mut(), call, &mut last, awaited));
        let broken = matches!(&result, Err(failure) if failure.kind != FailureKind::BadTask);
        report(started.elapsed(), result);
        // the policy has responded to the screen before this call, or never will; if it is still shown, it looks again
        let still_shown = |one: &EpisodeScreen| last.as_ref().is_some_and(|last| last.kept.is(one));
        if let Some(before) = before.filter(|before| !still_shown(before)) {
            before.release_pixels();
        }
        if broken {
            break;
        }
    }
    // tearing down may panic as well; the desktop is not used any more
    let _ = catch_unwind(AssertUnwindSafe(|| drop(desktop)));
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Failure::new(FailureKind::Panic, panic_message(panic.as_ref()))))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the desktop panicked: {}", text.unwrap_or("no message"))
}

fn execute(
    desktop: &mut dyn Environment,
    call: Call,
    last: &mut Option<CheckedScreen>,
    awaited: &Awaited,
) -> Result<Done, Failure> {
    let broke = |error: EnvironmentError| Failure::of(&error, FailureKind::Broken);
    match call {
        Call::Reset { task, seed, deadline } => {
            *last = None;
            let screen = desktop.reset(&task, seed, deadline).map_err(broke)?;
            awaited.answered();
            Ok(Done::Reset(checked_screen(desktop, screen, last)?))
        }
        Call::Act { response, actions, each } => {
            desktop.record_response(&response.text);
            let (mut terminated, mut truncated) = (false, false);
            for action in &actions {
                let stepped = desktop.step(action, awaited.begin(each)).map_err(broke)?;
                awaited.answered();
                checked_screen(desktop, stepped.screen, last)?;
                (terminated, truncated) = (stepped.terminated, stepped.truncated);
                if terminated || truncated {
                    break;
                }
            }
            let nothing = || Failure::new(FailureKind::Broken, "a response without an action");
            let screen = last.as_ref().map(|last| last.kept.clone()).ok_or_else(nothing)?;
            Ok(Done::Acted { screen, terminated, truncated })
        }
        Call::Evaluate { deadline } => {
            let failed = |error: EnvironmentError| Failure::of(&error, FailureKind::Evaluator);
            let score = desktop.evaluate(deadline).map_err(failed)?;
            *last = None;
            if (0.0..=1.0).contains(&score) {
                Ok(Done::Evaluated(score))
            } else {
                let reason = format!("the evaluator gave {score}: expected a score from 0 to 1");
                Err(Failure::new(FailureKind::Evaluator, reason))
            }
        }
    }
}

/// The last screen of a desktop, and what was made of it.
struct CheckedScreen {
    screen: Screen,
    kept: EpisodeScreen,
}

/// Checks that a screen is of the right size and not black; returns it with its digest. An unchanged image is not
/// checked and hashed again.
fn checked_screen(
    desktop: &dyn Environment,
    screen: Screen,
    last: &mut Option<CheckedScreen>,
) -> Result<EpisodeScreen, Failure> {
    if let Some(last) = last.as_ref().filter(|last| last.screen.is(&screen)) {
        return Ok(last.kept.clone());
    }
    let size = screen.size();
    let expected = desktop.screen_size().or_else(|| last.as_ref().map(|last| last.screen.size()));
    if let Some(expected) = expected.filter(|&expected| expected != size) {
        let reason =
            format!("a screenshot of {}x{} pixels: expected {}x{}", size.0, size.1, expected.0, expected.1);
        return Err(Failure::new(FailureKind::WrongSize, reason));
    }
    let kept = EpisodeScreen::of(&screen).map_err(|error| Failure::of(&error, FailureKind::Broken))?;
    let pixels = kept.image().map_err(|error| Failure::of(&error, FailureKind::Broken))?;
    if pixels.as_raw().iter().all(|&level| level == 0) {
        return Err(Failure::new(FailureKind::BlackScreen, "the screenshot is black"));
    }
    Ok(last.insert(CheckedScreen { screen, kept }).kept.clone())
}
