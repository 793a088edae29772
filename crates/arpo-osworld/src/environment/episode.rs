//! One task on one desktop: what it is sent, what is seen, how it is judged, what is written down.

use super::PlayOptions;
use crate::download::Cache;
use crate::error::{GetterError, GuestError, SetupError};
use crate::evaluate::{EvaluateError, evaluate};
use crate::getters::Context;
use crate::guest::http::HttpGuest;
use crate::guest::{Command, Guest};
use crate::metrics::Settings;
use crate::provider::Desktop;
use crate::results::record::{Acted, Record};
use crate::setup::Preparation;
use crate::task::TaskFile;
use arpo_agent::geometry::{ScreenMap, Size};
use arpo_agent::pyautogui;
use arpo_core::action::Action;
use arpo_env::environment::{EnvironmentError, Screen, Stepped, check_deadline};
use image::ImageFormat;
use jiff::{Timestamp, Zoned};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// A task on a desktop.
pub(super) struct Episode {
    // before the desktop: a guest that is gone has nobody to talk to
    pub(super) guest: HttpGuest,
    pub(super) desktop: Desktop,
    pub(super) task: String,
    pub(super) cache: Cache,
    pub(super) screen: Size,
    pub(super) over: bool,
    pub(super) gave_up: bool,
    pub(super) calls: usize,
    pub(super) turn: usize,
    pub(super) response: String,
    /// What ends the episode or waits in a response of several actions: it stands for all of them, as in OSWorld's
    /// agent.
    pub(super) control: Option<Action>,
    /// The rest of the response is not carried out.
    pub(super) passed_over: bool,
    pub(super) seen: Screen,
    pub(super) record: Option<Record>,
}

impl Episode {
    pub(super) fn preparation<'a>(&'a self, task: &'a TaskFile, options: &'a PlayOptions) -> Preparation<'a> {
        Preparation {
            guest: &self.guest,
            cache: &self.cache,
            task: &task.id,
            generation: options.generation.unwrap_or(task.generation),
            proxy: task.proxy,
            password: &options.password,
            screen: (self.screen.width, self.screen.height),
            now: Timestamp::now(),
        }
    }

    pub(super) fn step(
        &mut self,
        action: &Action,
        options: &PlayOptions,
        deadline: Instant,
    ) -> Result<Stepped, EnvironmentError> {
        let action = match &self.control {
            Some(_) if self.passed_over => {
                return Ok(Stepped { screen: self.seen.clone(), terminated: self.over, truncated: false });
            }
            Some(control) => control.clone(),
            None => action.clone(),
        };
        self.passed_over = true;
        self.guest.set_deadline(deadline);
        self.thaw(options)?;
        let command = self.command(&action, options);
        self.carry_out(&command, options, deadline)?;
        let (screen, png) = self.look(deadline, "step")?;
        self.freeze(options)?;
        check_deadline(deadline, "step")?;
        self.write_down(&command, &png)?;
        self.seen = screen.clone();
        Ok(Stepped { screen, terminated: self.over, truncated: false })
    }

    pub(super) fn evaluate(
        &mut self,
        task: &TaskFile,
        options: &PlayOptions,
        deadline: Instant,
    ) -> Result<f64, EnvironmentError> {
        self.guest.set_deadline(deadline);
        self.thaw(options)?;
        let score = self.judge(task, options, deadline)?;
        // a call that was given up must not write over the record of the next try
        check_deadline(deadline, "evaluate")?;
        self.end_film(options);
        if let Some(record) = &self.record {
            record.score(score).map_err(|error| broken(&error))?;
        }
        self.freeze(options)?;
        Ok(score)
    }

    /// A film that cannot be made is noted; the episode is worth more.
    pub(super) fn start_film(&self, options: &PlayOptions) {
        if options.film && self.record.is_some() {
            // a guest that runs on may still film an episode that was lost
            let _ = self.guest.end_recording();
            if let Err(error) = self.guest.start_recording() {
                self.note(&error.to_string());
            }
        }
    }

    fn end_film(&self, options: &PlayOptions) {
        let (Some(record), true) = (&self.record, options.film) else { return };
        let kept = self.guest.end_recording().map_err(|error| error.to_string());
        let kept = kept.and_then(|film| record.recording(&film).map_err(|error| error.to_string()));
        if let Err(problem) = kept {
            self.note(&problem);
        }
    }

    /// A remark for whoever looks at the results; that it cannot be written must not end an episode.
    pub(super) fn note(&self, remark: &str) {
        if let Some(record) = &self.record {
            let _ = record.note(remark, &Zoned::now());
        }
    }

    /// What went wrong is written down, as OSWorld's runner does.
    pub(super) fn noted<T>(&self, result: Result<T, EnvironmentError>) -> Result<T, EnvironmentError> {
        if let (Err(error), Some(record)) = (&result, &self.record) {
            let _ = record.error(&error.to_string());
        }
        result
    }

    /// What the desktop is sent for an action, and whether that ends the episode.
    fn command(&mut self, action: &Action, options: &PlayOptions) -> pyautogui::Command {
        // places are pixels of the screen already
        let map = ScreenMap { screen: self.screen, model: self.screen };
        let mut command =
            pyautogui::commands(std::slice::from_ref(action), &map).pop().unwrap_or(pyautogui::Command::Wait);
        if matches!(action, Action::CallUser {}) {
            self.calls += 1;
            if self.calls <= options.calls_tolerated {
                command = pyautogui::Command::Wait;
            }
        }
        let at_limit = options.give_up_at.is_some_and(|limit| self.turn >= limit);
        if at_limit && matches!(command, pyautogui::Command::Python(_)) {
            command = pyautogui::Command::Fail;
        }
        self.over = matches!(command, pyautogui::Command::Done | pyautogui::Command::Fail);
        self.gave_up = command == pyautogui::Command::Fail;
        command
    }

    fn carry_out(
        &self,
        command: &pyautogui::Command,
        options: &PlayOptions,
        deadline: Instant,
    ) -> Result<(), EnvironmentError> {
        match command {
            pyautogui::Command::Python(code) => {
                let code = format!("import pyautogui; import time; pyautogui.FAILSAFE = False; {code}");
                // code that fails does nothing, as with OSWorld's controller; a guest that is gone does
                self.guest
                    .run(&Command::words(&["python", "-c", &code]))
                    .map_err(|error| lost(&error, deadline, "step"))?;
            }
            pyautogui::Command::Wait => self.guest.pause(options.pause),
            pyautogui::Command::Done | pyautogui::Command::Fail => {}
        }
        self.guest.pause(options.pause);
        Ok(())
    }

    pub(super) fn look(
        &self,
        deadline: Instant,
        during: &'static str,
    ) -> Result<(Screen, Vec<u8>), EnvironmentError> {
        let png = self.guest.screenshot().map_err(|error| lost(&error, deadline, during))?;
        let picture = image::load_from_memory_with_format(&png, ImageFormat::Png)
            .map_err(|error| broken(&format!("the screenshot is no whole PNG: {error}")))?;
        Ok((Screen { image: Arc::new(picture.into_rgb8()) }, png))
    }

    fn judge(
        &self,
        task: &TaskFile,
        options: &PlayOptions,
        deadline: Instant,
    ) -> Result<f64, EnvironmentError> {
        let generation = options.generation.unwrap_or(task.generation);
        let context =
            Context { guest: &self.guest, cache: &self.cache, task: &task.id, generation, now: Zoned::now() };
        let settings = Settings { generation, python: options.python.clone() };
        let preparation = self.preparation(task, options);
        match evaluate(task, self.gave_up, &preparation, &context, &settings) {
            Ok(score) => Ok(score.clamp(0.0, 1.0)),
            Err(error) if error.counts_as_zero() => Ok(0.0),
            // a program that the agent closed: OSWorld's getter raises, and the desktop is as well as ever
            Err(EvaluateError::Getter(GetterError::Guest(_))) if self.guest.screenshot().is_ok() => Ok(0.0),
            Err(error) => Err(unjudged(&task.id, &error, deadline)),
        }
    }

    fn write_down(&self, command: &pyautogui::Command, png: &[u8]) -> Result<(), EnvironmentError> {
        let Some(record) = &self.record else { return Ok(()) };
        let (action, info) = match command {
            pyautogui::Command::Done => ("DONE", json!({"done": true})),
            pyautogui::Command::Fail => ("FAIL", json!({"fail": true})),
            pyautogui::Command::Wait => ("WAIT", Value::Object(serde_json::Map::new())),
            pyautogui::Command::Python(code) => (code.as_str(), Value::Object(serde_json::Map::new())),
        };
        let acted = Acted {
            turn: self.turn,
            action,
            response: &self.response,
            done: self.over,
            info,
            screenshot: png,
        };
        record.acted(&acted, &Zoned::now()).map_err(|error| broken(&error))
    }

    /// An engine may fail to stop a busy desktop, which then goes on: a loss of nothing but processor time.
    pub(super) fn freeze(&self, options: &PlayOptions) -> Result<(), EnvironmentError> {
        if options.freeze && self.desktop.pause().is_err() {
            return self.desktop.check().map_err(|error| broken(&error));
        }
        Ok(())
    }

    fn thaw(&self, options: &PlayOptions) -> Result<(), EnvironmentError> {
        if options.freeze { self.desktop.unpause().map_err(|error| broken(&error)) } else { Ok(()) }
    }
}

pub(super) fn broken(error: &dyn std::fmt::Display) -> EnvironmentError {
    EnvironmentError::Broken { reason: error.to_string() }
}

/// A guest without an answer: too late, or gone.
pub(super) fn lost(error: &GuestError, deadline: Instant, during: &'static str) -> EnvironmentError {
    if Instant::now() >= deadline { EnvironmentError::Deadline { during } } else { broken(error) }
}

pub(super) fn unprepared(
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

fn unjudged(task: &str, error: &EvaluateError, deadline: Instant) -> EnvironmentError {
    match error {
        EvaluateError::Setup(error) => unprepared(task, error, deadline, "evaluate"),
        EvaluateError::Getter(GetterError::Guest(error)) => lost(error, deadline, "evaluate"),
        EvaluateError::Getter(_) | EvaluateError::Metric { .. } => {
            EnvironmentError::BadTask { task: task.to_owned(), reason: error.to_string() }
        }
    }
}
