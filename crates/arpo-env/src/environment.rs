//! The contract of every environment: reset, step, evaluate, each with a deadline.
//!
//! The same for the embedded desktop, browsers, containers and virtual machines. An environment knows nothing of
//! models or tokens. Coordinates of the actions it is given are pixels of ITS screen: a caller that shows the model
//! a resized screenshot converts them first. Step limits are the caller's, too.

use arpo_core::action::Action;
use arpo_core::task::Task;
use image::RgbImage;
use std::sync::Arc;
use std::time::Instant;

/// What is on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Screen {
    /// Its pixels; shared, so that keeping a history copies nothing.
    pub image: Arc<RgbImage>,
}

/// What a step led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stepped {
    /// The screen after it.
    pub screen: Screen,
    /// The agent ended the episode: finished, or the user called.
    pub terminated: bool,
    /// The environment ended the episode for reasons of its own.
    pub truncated: bool,
}

/// What goes wrong with an environment; never the agent's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// The task cannot be set up or judged.
    #[error("task {task}: {reason}")]
    BadTask {
        /// Which.
        task: String,
        /// Why.
        reason: String,
    },
    /// There is no episode: before the first reset, or after the end of the last.
    #[error("no episode is under way: reset comes first")]
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

/// A desktop, a browser, a machine: something with a screen that takes actions.
///
/// - `reset` starts an episode from any state, also in the middle of another.
/// - `step` takes every action there is. One that cannot be carried out (outside the screen, an unknown key) does
///   nothing and is no error. [`Action::Finished`], [`Action::CallUser`] and [`Action::ErrorEnv`] end the episode;
///   a step after that is [`EnvironmentError::NoEpisode`].
/// - `evaluate` judges the state as it is, during or after the episode, with a score in [0, 1], and changes nothing.
/// - A call that cannot be done before its deadline is [`EnvironmentError::Deadline`].
pub trait Environment: Send {
    /// Starts an episode; the seed decides what the task leaves open.
    fn reset(&mut self, task: &Task, seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError>;

    /// What the agent said before the actions that come next; for environments that write episodes down.
    fn told(&mut self, _response: &str) {}

    /// Carries out an action and shows the screen after it.
    fn step(&mut self, action: &Action, deadline: Instant) -> Result<Stepped, EnvironmentError>;

    /// How well the task is done, from 0 to 1.
    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError>;

    /// Same task, seed and actions give the same pixels and score.
    fn is_deterministic(&self) -> bool {
        false
    }

    /// Width and height of its screen where it knows them, so that a screenshot of another size can be told.
    fn screen_size(&self) -> Option<(u32, u32)> {
        None
    }
}

impl<E: Environment + ?Sized> Environment for Box<E> {
    fn reset(&mut self, task: &Task, seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError> {
        (**self).reset(task, seed, deadline)
    }

    fn told(&mut self, response: &str) {
        (**self).told(response);
    }

    fn step(&mut self, action: &Action, deadline: Instant) -> Result<Stepped, EnvironmentError> {
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
    matches!(action, Action::Finished { .. } | Action::CallUser {} | Action::ErrorEnv {})
}

/// An error if the deadline has passed.
pub fn check_deadline(deadline: Instant, during: &'static str) -> Result<(), EnvironmentError> {
    if Instant::now() > deadline { Err(EnvironmentError::Deadline { during }) } else { Ok(()) }
}
