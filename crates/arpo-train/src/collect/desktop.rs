//! One desktop on a thread of its own: it takes one call at a time and reports what came of it.
//!
//! Nothing here can stop the collector. A panic is a broken desktop; a call that never returns keeps this thread, which
//! then belongs to nobody. A screenshot of another size than the screen's, or one without anything on it, is a failure.

use super::report::FailureKind;
use crate::episode::screenshot;
use crate::policy::Answer;
use arpo_core::action::Action;
use arpo_core::task::Task;
use arpo_engine::Screenshot;
use arpo_env::environment::{Environment, EnvironmentError, Screen};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Makes the desktop of a place. It is called again for a replacement, and then frees first what the one before still
/// holds outside of this program.
pub type DesktopFactory = dyn Fn(usize) -> Result<Box<dyn Environment>, EnvironmentError> + Send + Sync;

/// What a desktop is told.
#[derive(Debug)]
pub(super) enum Call {
    Reset { task: Arc<Task>, seed: u64, deadline: Instant },
    Act { answer: Arc<Answer>, actions: Vec<Action>, each: Duration },
    Evaluate { deadline: Instant },
}

/// What came of a call.
#[derive(Debug)]
pub(super) enum Done {
    Started,
    Reset(Screenshot),
    /// The screen after the last action, and whether the agent or the desktop ended the episode.
    Acted {
        screen: Screenshot,
        terminated: bool,
        truncated: bool,
    },
    Evaluated(f64),
}

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    pub(super) reason: String,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    /// From an environment's own words.
    fn of(error: &EnvironmentError, otherwise: FailureKind) -> Self {
        let kind = match error {
            EnvironmentError::BadTask { .. } => FailureKind::BadTask,
            EnvironmentError::Deadline { .. } => FailureKind::Overrun,
            EnvironmentError::NoEpisode | EnvironmentError::Broken { .. } => otherwise,
        };
        Self::new(kind, error.to_string())
    }
}

/// What a desktop tells.
#[derive(Debug)]
pub(super) struct DesktopReport {
    pub(super) place: usize,
    /// Which of the desktops that this place has had.
    pub(super) generation: u64,
    pub(super) busy: Duration,
    pub(super) result: Result<Done, Failure>,
}

/// The calls of a desktop, and its thread.
#[derive(Debug)]
pub(super) struct DesktopThread {
    pub(super) calls: Sender<Call>,
    pub(super) handle: JoinHandle<()>,
}

/// Starts a desktop. Its first report says whether it could be made.
pub(super) fn start<Event: From<DesktopReport> + Send + 'static>(
    place: usize,
    generation: u64,
    factory: Arc<DesktopFactory>,
    reports: Sender<Event>,
) -> std::io::Result<DesktopThread> {
    let (calls, inbox) = channel();
    let run = move || {
        let report = |busy, result| {
            let _ = reports.send(DesktopReport { place, generation, busy, result }.into());
        };
        let started = Instant::now();
        let made =
            guarded(|| factory(place).map_err(|error| Failure::new(FailureKind::Start, error.to_string())));
        match made {
            Ok(desktop) => {
                report(started.elapsed(), Ok(Done::Started));
                live(desktop, &inbox, report);
            }
            Err(failure) => report(started.elapsed(), Err(failure)),
        }
    };
    let handle = Builder::new().name(format!("desktop {place}")).spawn(run)?;
    Ok(DesktopThread { calls, handle })
}

/// Takes calls until nobody has any more, or one shows that the desktop is broken.
fn live(
    mut desktop: Box<dyn Environment>,
    calls: &Receiver<Call>,
    report: impl Fn(Duration, Result<Done, Failure>),
) {
    let mut last = None;
    while let Ok(call) = calls.recv() {
        let started = Instant::now();
        let result = guarded(|| carry_out(desktop.as_mut(), call, &mut last));
        let broken = matches!(&result, Err(failure) if failure.kind != FailureKind::BadTask);
        report(started.elapsed(), result);
        if broken {
            break;
        }
    }
    // tearing down may fail as well, and concerns nobody any more
    let _ = catch_unwind(AssertUnwindSafe(|| drop(desktop)));
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Failure::new(FailureKind::Panic, words(panic.as_ref()))))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the desktop panicked: {}", text.unwrap_or("without words"))
}

fn carry_out(
    desktop: &mut dyn Environment,
    call: Call,
    last: &mut Option<Screenshot>,
) -> Result<Done, Failure> {
    let broke = |error: EnvironmentError| Failure::of(&error, FailureKind::Broken);
    match call {
        Call::Reset { task, seed, deadline } => {
            *last = None;
            let screen = desktop.reset(&task, seed, deadline).map_err(broke)?;
            Ok(Done::Reset(looked(desktop, screen, last)?))
        }
        Call::Act { answer, actions, each } => {
            desktop.told(&answer.text);
            let (mut terminated, mut truncated) = (false, false);
            for action in &actions {
                let stepped = desktop.step(action, Instant::now() + each).map_err(broke)?;
                looked(desktop, stepped.screen, last)?;
                (terminated, truncated) = (stepped.terminated, stepped.truncated);
                if terminated || truncated {
                    break;
                }
            }
            let nothing = || Failure::new(FailureKind::Broken, "a response without an action");
            Ok(Done::Acted { screen: last.clone().ok_or_else(nothing)?, terminated, truncated })
        }
        Call::Evaluate { deadline } => {
            let failed = |error: EnvironmentError| Failure::of(&error, FailureKind::Evaluator);
            let score = desktop.evaluate(deadline).map_err(failed)?;
            if (0.0..=1.0).contains(&score) {
                Ok(Done::Evaluated(score))
            } else {
                let reason = format!("the evaluator gave {score}: expected a score from 0 to 1");
                Err(Failure::new(FailureKind::Evaluator, reason))
            }
        }
    }
}

/// A screen that can be one, with its name.
fn looked(
    desktop: &dyn Environment,
    screen: Screen,
    last: &mut Option<Screenshot>,
) -> Result<Screenshot, Failure> {
    if let Some(last) = last.as_ref().filter(|last| Arc::ptr_eq(&last.image, &screen.image)) {
        return Ok(last.clone());
    }
    let size = screen.image.dimensions();
    let expected = desktop.screen_size().or_else(|| last.as_ref().map(|last| last.image.dimensions()));
    if let Some(expected) = expected.filter(|&expected| expected != size) {
        let reason =
            format!("a screenshot of {}x{} pixels: expected {}x{}", size.0, size.1, expected.0, expected.1);
        return Err(Failure::new(FailureKind::WrongSize, reason));
    }
    if screen.image.as_raw().iter().all(|&level| level == 0) {
        return Err(Failure::new(FailureKind::BlackScreen, "the screenshot is black"));
    }
    Ok(last.insert(screenshot(screen.image)).clone())
}
