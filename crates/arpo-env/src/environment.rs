//! The interface of every environment: reset, step, evaluate, each with a deadline.
//!
//! It is the same for the embedded desktop, containers and virtual machines. An environment knows nothing of
//! models or tokens. The coordinates of its actions are pixels of ITS screen: a caller that shows the model a resized
//! screenshot converts them first. The caller also enforces step limits.

pub use crate::screen::{Screen, encode_png};
use arpo_core::action::Action;
use arpo_core::task::Task;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The result of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepResult {
    /// The screen after it.
    pub screen: Screen,
    /// The agent ended the episode: finished, or the user called.
    pub terminated: bool,
    /// The environment ended the episode for reasons of its own.
    pub truncated: bool,
}

/// What an environment did besides what its results show, for whoever keeps a record of the episode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RecordEntry {
    /// What was carried out for an action: code, or `DONE`, `FAIL`, `WAIT`. An action that was skipped has none.
    Action(String),
    /// A remark.
    Note(String),
    /// A video of the episode.
    Video(Vec<u8>),
}

/// A failure of an environment; never the agent's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// The task cannot be set up or evaluated.
    #[error("task {task}: {reason}")]
    BadTask {
        /// Which.
        task: String,
        /// Why.
        reason: String,
    },
    /// There is no episode: before the first reset, or after the end of the last.
    #[error("no episode is running: call reset first")]
    NoEpisode,
    /// The call took too long.
    #[error("the deadline passed during {during}")]
    Deadline {
        /// The call.
        during: &'static str,
    },
    /// The environment broke and must be replaced.
    #[error("the environment broke: {reason}")]
    Broken {
        /// How.
        reason: String,
    },
}

/// A desktop, a browser, a machine: anything with a screen that takes actions.
///
/// - `reset` starts an episode from any state, even in the middle of another.
/// - `step` accepts every action. One that cannot be carried out (outside the screen, an unknown key) does nothing
///   and is not an error. [`Action::Finished`], [`Action::CallUser`], [`Action::Infeasible`] and [`Action::ErrorEnv`] end the episode;
///   a step after that is [`EnvironmentError::NoEpisode`].
/// - `evaluate` scores the current state in [0, 1], during or after the episode, and changes nothing.
/// - A call that misses its deadline returns [`EnvironmentError::Deadline`].
pub trait Environment: Send {
    /// Starts an episode; the seed decides what the task leaves open.
    fn reset(&mut self, task: &Task, seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError>;

    /// Records the agent's response that led to the next actions; for environments that log episodes.
    fn record_response(&mut self, _response: &str) {}

    /// Takes the entries since it was last asked, if it has any.
    fn take_record(&mut self) -> Vec<RecordEntry> {
        vec![]
    }

    /// Carries out an action and shows the screen after it.
    fn step(&mut self, action: &Action, deadline: Instant) -> Result<StepResult, EnvironmentError>;

    /// How well the task is done, from 0 to 1.
    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError>;

    /// Same task, seed and actions give the same pixels and score.
    fn is_deterministic(&self) -> bool {
        false
    }

    /// Width and height of its screen if known, so that a screenshot of another size can be detected.
    fn screen_size(&self) -> Option<(u32, u32)> {
        None
    }
}

impl<E: Environment + ?Sized> Environment for Box<E> {
    fn reset(&mut self, task: &Task, seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError> {
        (**self).reset(task, seed, deadline)
    }

    fn record_response(&mut self, response: &str) {
        (**self).record_response(response);
    }

    fn take_record(&mut self) -> Vec<RecordEntry> {
        (**self).take_record()
    }

    fn step(&mut self, action: &Action, deadline: Instant) -> Result<StepResult, EnvironmentError> {
        (**self).step(action, deadline)
    }

    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError> {
        (**self).evaluate(deadline)
    }

    fn is_deterministic(&self) -> bool {
        (**self).is_deterministic()
    }

    fn screen_size(&self) -> Option<(u32, u32)> {
        (**self).screen_size()
    }
}

/// True for actions that end an episode.
pub fn ends_episode(action: &Action) -> bool {
    matches!(
        action,
        Action::Finished { .. } | Action::CallUser {} | Action::Infeasible {} | Action::ErrorEnv {}
    )
}

/// An error if the deadline has passed.
pub fn check_deadline(deadline: Instant, during: &'static str) -> Result<(), EnvironmentError> {
    if Instant::now() > deadline { Err(EnvironmentError::Deadline { during }) } else { Ok(()) }
}
