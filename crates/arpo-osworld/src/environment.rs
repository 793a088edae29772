//! A task of OSWorld on a desktop with OSWorld's server: the environment that agents are trained and judged on.
//!
//! Every episode has a fresh desktop from the [`Spares`]. Between calls the desktop is frozen if the options say so:
//! a policy may think for long, and a guest that idles meanwhile locks its screen.

use crate::download::Cache;
use crate::error::{GetterError, GuestError, SetupError};
use crate::evaluate::{EvaluateError, evaluate};
use crate::getters::Context;
use crate::guest::http::{HttpGuest, Patience};
use crate::guest::{Command, Guest};
use crate::metrics::Settings;
use crate::provider::{Desktop, Spares};
use crate::results::record::{Acted, Record, Trial};
use crate::setup::{self, Preparation};
use crate::task::suite::SuiteTask;
use crate::task::{Generation, TaskFile};
use arpo_agent::geometry::{ScreenMap, Size};
use arpo_agent::pyautogui;
use arpo_core::action::Action;
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError, Screen, Stepped, check_deadline};
use image::ImageFormat;
use jiff::{Timestamp, Zoned};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How tasks are played.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayOptions {
    /// After the set-up, before the first screenshot.
    pub settle: Duration,
    /// After every action, before its screenshot; a wait takes it twice.
    pub pause: Duration,
    /// The desktop stands still while the policy thinks.
    pub freeze: bool,
    /// The agent may call the user so often before that is giving up.
    pub calls_tolerated: usize,
    /// The actions of this turn and later ones are giving up, as OSWorld's agent for UI-TARS does at its limit; `None`
    /// is the hard mode.
    pub give_up_at: Option<usize>,
    /// Whose server, getters and metrics to be like; `None`: as each task file says.
    pub generation: Option<Generation>,
    /// The guest's password.
    pub password: String,
    /// Of the guest's server.
    pub token: Option<String>,
    /// A Python that may run files of the guest on this host.
    pub python: Option<PathBuf>,
    /// Film every episode that is written down.
    pub film: bool,
}

impl Default for PlayOptions {
    fn default() -> Self {
        Self {
            settle: Duration::ZERO,
            pause: Duration::from_millis(500),
            freeze: true,
            calls_tolerated: 0,
            give_up_at: None,
            generation: None,
            password: "password".into(),
            token: None,
            python: None,
            film: false,
        }
    }
}

/// What all desktops of a run share.
pub struct Shared {
    /// Tasks by their ids.
    pub tasks: BTreeMap<String, SuiteTask>,
    /// Where desktops come from.
    pub desktops: Spares,
    /// Files that tasks need.
    pub cache: Cache,
    /// How tasks are played.
    pub options: PlayOptions,
    /// Where episodes are written down, if they are.
    pub trial: Option<Trial>,
}

/// The environment.
pub struct OsworldDesktop {
    shared: Arc<Shared>,
    episode: Option<Episode>,
}

/// A task on a desktop.
struct Episode {
    // before the desktop: a guest that is gone has nobody to talk to
    guest: HttpGuest,
    desktop: Desktop,
    task: String,
    cache: Cache,
    screen: Size,
    over: bool,
    gave_up: bool,
    calls: usize,
    turn: usize,
    response: String,
    record: Option<Record>,
}

impl OsworldDesktop {
    /// Takes its desktops from what is shared.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, episode: None }
    }

    fn under_way(&mut self) -> Result<&mut Episode, EnvironmentError> {
        self.episode.as_mut().ok_or(EnvironmentError::NoEpisode)
    }
}

impl Environment for OsworldDesktop {
    fn reset(&mut self, task: &Task, _seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError> {
        self.episode = None;
        let shared = &self.shared;
        let known = shared.tasks.get(task.id.as_str()).ok_or_else(|| EnvironmentError::BadTask {
            task: task.id.to_string(),
            reason: "it is not among the tasks that were loaded".into(),
        })?;
        let desktop = shared.desktops.take(deadline).map_err(|error| broken(&error))?;
        let mut guest = desktop.guest(Patience::default(), shared.options.token.clone());
        guest.set_deadline(deadline);
        let cache = shared.cache.for_desktop().map_err(|error| broken(&error))?;
        let screen = guest.size().map_err(|error| lost(&error, deadline, "reset"))?;
        let mut episode = Episode {
            guest,
            desktop,
            task: known.task.id.clone(),
            cache,
            screen,
            over: false,
            gave_up: false,
            calls: 0,
            turn: 0,
            response: String::new(),
            record: None,
        };
        setup::run(&episode.preparation(&known.task, &shared.options), &known.task.config)
            .map_err(|error| unprepared(&known.task.id, &error, deadline, "reset"))?;
        episode.guest.pause(shared.options.settle);
        if let Some(trial) = &shared.trial {
            episode.record =
                Some(trial.begin(&known.domain, &known.task.id).map_err(|error| broken(&error))?);
            if shared.options.film {
                episode.guest.start_recording().map_err(|error| lost(&error, deadline, "reset"))?;
            }
        }
        let (screen, _) = episode.look(deadline, "reset")?;
        episode.freeze(&shared.options)?;
        check_deadline(deadline, "reset")?;
        self.episode = Some(episode);
        Ok(screen)
    }

    fn told(&mut self, response: &str) {
        if let Some(episode) = &mut self.episode {
            episode.turn += 1;
            response.clone_into(&mut episode.response);
        }
    }

    fn step(&mut self, action: &Action, deadline: Instant) -> Result<Stepped, EnvironmentError> {
        let options = self.shared.options.clone();
        let episode = self.under_way()?;
        if episode.over {
            return Err(EnvironmentError::NoEpisode);
        }
        episode.guest.set_deadline(deadline);
        episode.thaw(&options)?;
        let command = episode.command(action, &options);
        episode.carry_out(&command, &options, deadline)?;
        let (screen, png) = episode.look(deadline, "step")?;
        episode.freeze(&options)?;
        episode.write_down(&command, &png)?;
        check_deadline(deadline, "step")?;
        Ok(Stepped { screen, terminated: episode.over, truncated: false })
    }

    /// Steps that the task asks for before it is judged run on the desktop; nothing else changes.
    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError> {
        let shared = Arc::clone(&self.shared);
        let episode = self.under_way()?;
        let Some(SuiteTask { task, .. }) = shared.tasks.get(&episode.task) else {
            return Err(EnvironmentError::NoEpisode);
        };
        episode.guest.set_deadline(deadline);
        episode.thaw(&shared.options)?;
        let score = episode.judge(task, &shared.options, deadline)?;
        if let Some(record) = &episode.record {
            if shared.options.film {
                let film =
                    episode.guest.end_recording().map_err(|error| lost(&error, deadline, "evaluate"))?;
                record.recording(&film).map_err(|error| broken(&error))?;
            }
            record.score(score).map_err(|error| broken(&error))?;
        }
        episode.freeze(&shared.options)?;
        Ok(score)
    }
}

impl Episode {
    fn preparation<'a>(&'a self, task: &'a TaskFile, options: &'a PlayOptions) -> Preparation<'a> {
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
        if options.give_up_at.is_some_and(|limit| self.turn >= limit) {
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

    fn look(&self, deadline: Instant, during: &'static str) -> Result<(Screen, Vec<u8>), EnvironmentError> {
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
    fn freeze(&self, options: &PlayOptions) -> Result<(), EnvironmentError> {
        if options.freeze && self.desktop.pause().is_err() {
            return self.desktop.check().map_err(|error| broken(&error));
        }
        Ok(())
    }

    fn thaw(&self, options: &PlayOptions) -> Result<(), EnvironmentError> {
        if options.freeze { self.desktop.unpause().map_err(|error| broken(&error)) } else { Ok(()) }
    }
}

fn broken(error: &dyn std::fmt::Display) -> EnvironmentError {
    EnvironmentError::Broken { reason: error.to_string() }
}

/// A guest without an answer: too late, or gone.
fn lost(error: &GuestError, deadline: Instant, during: &'static str) -> EnvironmentError {
    if Instant::now() >= deadline { EnvironmentError::Deadline { during } } else { broken(error) }
}

fn unprepared(task: &str, error: &SetupError, deadline: Instant, during: &'static str) -> EnvironmentError {
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
