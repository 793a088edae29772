//! A task of OSWorld on a desktop with OSWorld's server: the environment that agents are trained and evaluated on.
//!
//! Every episode has a fresh desktop from the [`Spares`]. Between calls the desktop is frozen if the options say so:
//! a policy may take long, and an idle guest would lock its screen.

mod episode;

use crate::coverage::programs;
use crate::download::Cache;
use crate::error::DownloadError;
use crate::fetch;
use crate::google::Accounts;
use crate::guest::Guest;
use crate::guest::http::RetryPolicy;
use crate::provider::Spares;
use crate::setup;
use crate::task::suite::SuiteTask;
use crate::video;
use arpo_agent::style::Grammar;
use arpo_core::action::Action;
use arpo_core::generation::Generation;
use arpo_core::task::Task;
use arpo_env::environment::{
    Environment, EnvironmentError, RecordEntry, Screen, StepResult, check_deadline, ends_episode,
};
use episode::{Episode, broken, guest_error, setup_error};
use image::RgbImage;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How episodes run.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeOptions {
    /// After the set-up, before the first screenshot.
    pub settle: Duration,
    /// After every action, before its screenshot; a wait takes it twice.
    pub pause: Duration,
    /// Pause the desktop while the policy runs.
    pub freeze: bool,
    /// `call_user()` counts as a wait this many times, then as giving up.
    pub calls_tolerated: usize,
    /// Actions from this turn on count as giving up, as in OSWorld's agent for UI-TARS at its limit; `None` is the hard
    /// mode.
    pub give_up_at: Option<usize>,
    /// How responses are written. In UI-TARS's grammar an action that ends the episode or waits replaces the whole response, as
    /// in its agent; tool calls run in order.
    pub grammar: Grammar,
    /// Which generation of OSWorld to imitate; `None`: as each task file says.
    pub generation: Option<Generation>,
    /// The guest's password.
    pub password: String,
    /// The token of the guest's server.
    pub token: Option<String>,
    /// Record a video of every episode.
    pub film: bool,
    /// The user's own accounts.
    pub accounts: Accounts,
}

impl Default for EpisodeOptions {
    fn default() -> Self {
        Self {
            settle: Duration::ZERO,
            pause: Duration::from_millis(500),
            freeze: true,
            calls_tolerated: 0,
            give_up_at: None,
            grammar: Grammar::Uitars,
            generation: None,
            password: "password".into(),
            token: None,
            film: false,
            accounts: Accounts::default(),
        }
    }
}

/// What all desktops of a run share.
pub struct Shared {
    /// Tasks by their names, [`SuiteTask::name`].
    pub tasks: BTreeMap<String, SuiteTask>,
    /// Where desktops come from.
    pub desktops: Spares,
    /// Files that tasks need.
    pub cache: Cache,
    /// How episodes run.
    pub options: EpisodeOptions,
}

/// The environment.
pub struct OsworldDesktop {
    shared: Arc<Shared>,
    episode: Option<Episode>,
}

impl OsworldDesktop {
    /// An environment on the shared desktops.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, episode: None }
    }

    fn current(&mut self) -> Result<&mut Episode, EnvironmentError> {
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
        // an episode that cannot be judged afterwards is not played
        if let Some(program) = programs(&known.task).find(|program| !program.is_installed()) {
            let reason = program.missing().to_string();
            return Err(EnvironmentError::BadTask { task: known.name(), reason });
        }
        if let Some(problem) = shared.options.accounts.problems(&known.task).first() {
            let reason = format!("it needs Google credentials: {problem}");
            return Err(EnvironmentError::BadTask { task: known.name(), reason });
        }
        fetch::obtain_golds(&shared.cache, &known.task, deadline).map_err(|error| match error {
            DownloadError::Late { .. } => EnvironmentError::Deadline { during: "reset" },
            error => EnvironmentError::BadTask { task: known.name(), reason: error.to_string() },
        })?;
        let desktop = shared.desktops.take(deadline).map_err(|error| broken(&error))?;
        let mut guest = desktop.guest(RetryPolicy::default(), shared.options.token.clone());
        guest.set_deadline(deadline);
        if let Some(mib) = known.task.evaluator.max_file_mib {
            guest.set_file_limit(mib << 20);
        }
        let cache = shared.cache.for_desktop().map_err(|error| broken(&error))?;
        let screen = guest.size().map_err(|error| guest_error(&error, deadline, "reset"))?;
        let obstacle = video::obstacle(&known.task, &guest);
        if let Some(reason) = obstacle.map_err(|error| guest_error(&error, deadline, "reset"))? {
            return Err(EnvironmentError::BadTask { task: known.name(), reason });
        }
        let last_screen = Screen::new(RgbImage::default());
        let mut episode = Episode {
            guest,
            desktop,
            task: known.name(),
            cache,
            screen,
            over: false,
            gave_up: false,
            calls: 0,
            turn: 0,
            control: None,
            skip_rest: false,
            last_screen,
            record: vec![],
        };
        let preparation = episode.preparation(&known.task, &shared.options, deadline);
        let prepared = setup::run(&preparation, &known.task.config);
        let prepared = prepared.map_err(|error| setup_error(&known.name(), &error, deadline, "reset"))?;
        episode.record.extend(prepared.refused.into_iter().map(RecordEntry::Note));
        episode.guest.pause(shared.options.settle);
        episode.start_recording(&shared.options);
        let screen = episode.capture_screen(deadline, "reset")?;
        episode.freeze(&shared.options)?;
        check_deadline(deadline, "reset")?;
        episode.last_screen = screen.clone();
        self.episode = Some(episode);
        Ok(screen)
    }

    fn record_response(&mut self, response: &str) {
        if let Some(episode) = &mut self.episode {
            episode.turn += 1;
            episode.skip_rest = false;
            let actions = match self.shared.options.grammar {
                Grammar::Uitars => Grammar::Uitars.parse(response).map(|parsed| parsed.actions),
                Grammar::ComputerUse => Ok(vec![]),
            };
            let control = |action: &Action| ends_episode(action) || *action == Action::Wait {};
            episode.control = actions.unwrap_or_default().into_iter().find(control);
        }
    }

    fn take_record(&mut self) -> Vec<RecordEntry> {
        self.episode.as_mut().map(|episode| std::mem::take(&mut episode.record)).unwrap_or_default()
    }

    fn step(&mut self, action: &Action, deadline: Instant) -> Result<StepResult, EnvironmentError> {
        let shared = Arc::clone(&self.shared);
        let episode = self.current()?;
        if episode.over {
            return Err(EnvironmentError::NoEpisode);
        }
        episode.step(action, &shared.options, deadline)
    }

    /// Runs the steps that the task needs before its evaluation; nothing else changes.
    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError> {
        let shared = Arc::clone(&self.shared);
        let episode = self.current()?;
        let Some(SuiteTask { task, .. }) = shared.tasks.get(&episode.task) else {
            return Err(EnvironmentError::NoEpisode);
        };
        episode.evaluate(task, &shared.options, deadline)
    }
}
