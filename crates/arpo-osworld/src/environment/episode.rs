//! One task on one desktop: actions, screenshots, evaluation and the record.

use super::EpisodeOptions;
use crate::download::Cache;
use crate::error::{DownloadError, GetterError, GuestError, MetricError, SetupError};
use crate::evaluate::{EvaluateError, evaluate};
use crate::getters::Context;
use crate::google::GoogleError;
use crate::guest::http::HttpGuest;
use crate::guest::{Command, Guest, Output};
use crate::metrics::Settings;
use crate::provider::Desktop;
use crate::sandbox::GuestSandbox;
use crate::setup::Preparation;
use crate::task::TaskFile;
use arpo_agent::geometry::{ScreenMap, Size};
use arpo_agent::pyautogui::{OsworldAction, osworld_actions};
use arpo_core::action::Action;
use arpo_env::environment::{EnvironmentError, RecordEntry, Screen, StepResult, check_deadline};
use jiff::{Timestamp, Zoned};
use std::cell::RefCell;
use std::time::Instant;

/// A task on a desktop.
pub(super) struct Episode {
    // declared before the desktop, so that it is dropped first
    pub(super) guest: HttpGuest,
    pub(super) desktop: Desktop,
    pub(super) task: String,
    pub(super) cache: Cache,
    pub(super) screen: Size,
    pub(super) over: bool,
    pub(super) gave_up: bool,
    pub(super) calls: usize,
    pub(super) turn: usize,
    /// An action of the response that ends the episode or waits: it replaces all of its actions, as in OSWorld's agent.
    pub(super) control: Option<Action>,
    /// The remaining actions of the response are skipped.
    pub(super) skip_rest: bool,
    pub(super) last_screen: Screen,
    /// For whoever keeps a record of the episode.
    pub(super) record: Vec<RecordEntry>,
}

impl Episode {
    pub(super) fn preparation<'a>(
        &'a self,
        task: &'a TaskFile,
        options: &'a EpisodeOptions,
        deadline: Instant,
    ) -> Preparation<'a> {
        Preparation {
            guest: &self.guest,
            cache: &self.cache,
            accounts: &options.accounts,
            task: &task.id,
            generation: options.generation.unwrap_or(task.generation),
            proxy: task.proxy,
            password: &options.password,
            screen: (self.screen.width, self.screen.height),
            now: Timestamp::now(),
            deadline,
        }
    }

    pub(super) fn step(
        &mut self,
        action: &Action,
        options: &EpisodeOptions,
        deadline: Instant,
    ) -> Result<StepResult, EnvironmentError> {
        let action = match &self.control {
            Some(_) if self.skip_rest => {
                return Ok(StepResult {
                    screen: self.last_screen.clone(),
                    terminated: self.over,
                    truncated: false,
                });
            }
            Some(control) => control.clone(),
            None => action.clone(),
        };
        self.skip_rest = true;
        self.guest.set_deadline(deadline);
        self.unfreeze(options)?;
        let action = self.osworld_action(&action, options);
        let failed = self.execute(&action, options, deadline)?;
        let screen = self.capture_screen(deadline, "step")?;
        self.freeze(options)?;
        check_deadline(deadline, "step")?;
        self.record.push(RecordEntry::Action(match action {
            OsworldAction::Done => "DONE".into(),
            OsworldAction::Fail => "FAIL".into(),
            OsworldAction::Wait => "WAIT".into(),
            OsworldAction::Python(code) => code,
        }));
        self.record.extend(failed.map(RecordEntry::Note));
        self.last_screen = screen.clone();
        Ok(StepResult { screen, terminated: self.over, truncated: false })
    }

    pub(super) fn evaluate(
        &mut self,
        task: &TaskFile,
        options: &EpisodeOptions,
        deadline: Instant,
    ) -> Result<f64, EnvironmentError> {
        self.guest.set_deadline(deadline);
        self.unfreeze(options)?;
        let (score, notes) = self.score(task, options, deadline)?;
        check_deadline(deadline, "evaluate")?;
        self.record.extend(notes.into_iter().map(RecordEntry::Note));
        self.end_recording(options);
        self.freeze(options)?;
        Ok(score)
    }

    /// A failed recording leaves a note; the episode goes on.
    pub(super) fn start_recording(&mut self, options: &EpisodeOptions) {
        if options.film {
            // a guest that keeps running may still be recording an episode that failed
            let _ = self.guest.end_recording();
            if let Err(error) = self.guest.start_recording() {
                self.record.push(RecordEntry::Note(error.to_string()));
            }
        }
    }

    fn end_recording(&mut self, options: &EpisodeOptions) {
        if options.film {
            self.record.push(match self.guest.end_recording() {
                Ok(video) => RecordEntry::Video(video),
                Err(error) => RecordEntry::Note(error.to_string()),
            });
        }
    }

    /// An action as OSWorld has it; also records whether it ends the episode.
    fn osworld_action(&mut self, action: &Action, options: &EpisodeOptions) -> OsworldAction {
        // coordinates are already pixels of the screen
        let map = ScreenMap { screen: self.screen, model: self.screen };
        let mut given =
            osworld_actions(std::slice::from_ref(action), &map).pop().unwrap_or(OsworldAction::Wait);
        if matches!(action, Action::CallUser {}) {
            self.calls += 1;
            if self.calls <= options.calls_tolerated {
                given = OsworldAction::Wait;
            }
        }
        let at_limit = options.give_up_at.is_some_and(|limit| self.turn >= limit);
        if at_limit && matches!(given, OsworldAction::Python(_)) {
            given = OsworldAction::Fail;
        }
        self.over = matches!(given, OsworldAction::Done | OsworldAction::Fail);
        self.gave_up = given == OsworldAction::Fail;
        given
    }

    /// Carries an action out. Code that fails does not end the episode, as with OSWorld's controller: a note says why it did.
    fn execute(
        &self,
        action: &OsworldAction,
        options: &EpisodeOptions,
        deadline: Instant,
    ) -> Result<Option<String>, EnvironmentError> {
        let mut failed = None;
        match action {
            OsworldAction::Python(code) => {
                let code = format!("import pyautogui; import time; pyautogui.FAILSAFE = False; {code}");
                let output = self
                    .guest
                    .run(&Command::words(&["python", "-c", &code]))
                    .map_err(|error| guest_error(&error, deadline, "step"))?;
                failed = failure_of(output.as_ref());
            }
            OsworldAction::Wait => self.guest.pause(options.pause),
            OsworldAction::Done | OsworldAction::Fail => {}
        }
        self.guest.pause(options.pause);
        Ok(failed)
    }

    pub(super) fn capture_screen(
        &self,
        deadline: Instant,
        during: &'static str,
    ) -> Result<Screen, EnvironmentError> {
        let png = self.guest.screenshot().map_err(|error| guest_error(&error, deadline, during))?;
        Screen::from_png(png)
    }

    /// The score, what getters noted, and why an evaluator that raised gives 0.
    fn score(
        &self,
        task: &TaskFile,
        options: &EpisodeOptions,
        deadline: Instant,
    ) -> Result<(f64, Vec<String>), EnvironmentError> {
        let generation = options.generation.unwrap_or(task.generation);
        let (guest, cache, now) = (&self.guest, &self.cache, Zoned::now());
        let (accounts, notes) = (&options.accounts, RefCell::default());
        let context = Context { guest, cache, accounts, task: &task.id, generation, now, deadline, notes };
        let sandbox = GuestSandbox::new(guest);
        let settings = Settings { generation, sandbox: Some(&sandbox) };
        let preparation = self.preparation(task, options, deadline);
        let judged = evaluate(task, self.gave_up, &preparation, &context, &settings);
        let notes = context.notes.into_inner();
        let zero = |mut notes: Vec<String>, error: &EvaluateError| {
            notes.push(format!("the evaluator scores 0: {error}"));
            (0.0, notes)
        };
        match judged {
            Ok(score) => Ok((score.clamp(0.0, 1.0), notes)),
            Err(error) if error.counts_as_zero() => Ok(zero(notes, &error)),
            // a program that the agent closed or a disk that it filled: OSWorld's function raises, and the desktop is fine
            Err(
                error @ (EvaluateError::Getter(GetterError::Guest(_))
                | EvaluateError::Metric { error: MetricError::Guest(_), .. }),
            ) if self.guest.screenshot().is_ok() => Ok(zero(notes, &error)),
            Err(error) => Err(evaluation_error(&self.task, &error, deadline)),
        }
    }

    /// The engine may fail to pause a busy desktop, which then keeps running: that costs only processor time.
    pub(super) fn freeze(&self, options: &EpisodeOptions) -> Result<(), EnvironmentError> {
        if options.freeze && self.desktop.pause().is_err() {
            return self.desktop.check().map_err(|error| broken(&error));
        }
        Ok(())
    }

    fn unfreeze(&self, options: &EpisodeOptions) -> Result<(), EnvironmentError> {
        if options.freeze { self.desktop.unpause().map_err(|error| broken(&error)) } else { Ok(()) }
    }
}

pub(super) fn broken(error: &dyn std::fmt::Display) -> EnvironmentError {
    EnvironmentError::Broken { reason: error.to_string() }
}

/// Why a script failed, if it did, from its result; none is a guest that refused.
fn failure_of(output: Option<&Output>) -> Option<String> {
    let Some(output) = output else { return Some("the action failed: the guest refused it".into()) };
    let last = output.stderr.trim().lines().last().unwrap_or_default();
    (output.returncode != 0)
        .then(|| format!("the action failed with exit code {}: {last}", output.returncode))
}

/// A guest without a response: the deadline passed, or the guest is gone.
pub(super) fn guest_error(error: &GuestError, deadline: Instant, during: &'static str) -> EnvironmentError {
    if Instant::now() >= deadline { EnvironmentError::Deadline { during } } else { broken(error) }
}

pub(super) fn setup_error(
    task: &str,
    error: &SetupError,
    deadline: Instant,
    during: &'static str,
) -> EnvironmentError {
    match error {
        SetupError::Lost { .. } if Instant::now() >= deadline => EnvironmentError::Deadline { during },
        SetupError::Lost { .. } => broken(error),
        SetupError::Config { .. } | SetupError::Failed { .. } => {
            EnvironmentError::BadTask { task: task.to_owned(), reason: error.to_string() }
        }
    }
}

fn evaluation_error(task: &str, error: &EvaluateError, deadline: Instant) -> EnvironmentError {
    match error {
        EvaluateError::Setup(error) => setup_error(task, error, deadline, "evaluate"),
        EvaluateError::Getter(GetterError::Guest(error))
        | EvaluateError::Metric { error: MetricError::Guest(error), .. } => {
            guest_error(error, deadline, "evaluate")
        }
        EvaluateError::Getter(
            GetterError::Download(DownloadError::Late { .. }) | GetterError::Google(GoogleError::Late { .. }),
        ) => EnvironmentError::Deadline { during: "evaluate" },
        // no fault of the task: it can be judged when Google answers again
        EvaluateError::Getter(GetterError::Google(
            GoogleError::Busy { .. } | GoogleError::Unreachable { .. },
        )) => broken(error),
        EvaluateError::Getter(_) | EvaluateError::Metric { .. } => {
            EnvironmentError::BadTask { task: task.to_owned(), reason: error.to_string() }
        }
    }
}
