//! A task of OSWorld on a desktop with OSWorld's server: the environment that agents are trained and judged on.
//!
//! Every episode has a fresh desktop from the [`Spares`]. Between calls the desktop is frozen if the options say so:
//! a policy may think for long, and a guest that idles meanwhile locks its screen.

mod episode;

use crate::download::Cache;
use crate::guest::Guest;
use crate::guest::http::Patience;
use crate::provider::Spares;
use crate::results::record::Trial;
use crate::setup;
use crate::task::Generation;
use crate::task::suite::SuiteTask;
use arpo_agent::parse::parse;
use arpo_core::action::Action;
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError, Screen, Stepped, check_deadline, ends_episode};
use episode::{Episode, broken, lost, unprepared};
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
        let seen = Screen { image: Arc::default() };
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
            control: None,
            passed_over: false,
            seen,
            record: None,
        };
        if let Some(trial) = &shared.trial {
            let record = trial.begin(&known.domain, &known.task.id).map_err(|error| broken(&error))?;
            episode.record = Some(record);
        }
        let prepared = setup::run(&episode.preparation(&known.task, &shared.options), &known.task.config);
        let prepared = prepared.map_err(|error| unprepared(&known.task.id, &error, deadline, "reset"));
        for refused in episode.noted(prepared)?.refused {
            episode.note(&refused);
        }
        episode.guest.pause(shared.options.settle);
        episode.start_film(&shared.options);
        let (screen, _) = episode.look(deadline, "reset")?;
        episode.freeze(&shared.options)?;
        check_deadline(deadline, "reset")?;
        episode.seen = screen.clone();
        self.episode = Some(episode);
        Ok(screen)
    }

    fn told(&mut self, response: &str) {
        if let Some(episode) = &mut self.episode {
            episode.turn += 1;
            episode.passed_over = false;
            response.clone_into(&mut episode.response);
            let actions = parse(response).map(|parsed| parsed.actions).unwrap_or_default();
            episode.control =
                actions.into_iter().find(|action| ends_episode(action) || *action == Action::Wait {});
        }
    }

    fn step(&mut self, action: &Action, deadline: Instant) -> Result<Stepped, EnvironmentError> {
        let shared = Arc::clone(&self.shared);
        let episode = self.under_way()?;
        if episode.over {
            return Err(EnvironmentError::NoEpisode);
        }
        let stepped = episode.step(action, &shared.options, deadline);
        episode.noted(stepped)
    }

    /// Steps that the task asks for before it is judged run on the desktop; nothing else changes.
    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError> {
        let shared = Arc::clone(&self.shared);
        let episode = self.under_way()?;
        let Some(SuiteTask { task, .. }) = shared.tasks.get(&episode.task) else {
            return Err(EnvironmentError::NoEpisode);
        };
        let score = episode.evaluate(task, &shared.options, deadline);
        episode.noted(score)
    }
}
