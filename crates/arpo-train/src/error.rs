//! What can go wrong while collecting or learning.

use crate::run::RunError;
use arpo_core::trajectory::TrajectoryError;
use arpo_engine::EngineError;
use arpo_env::environment::EnvironmentError;
use arpo_image::ImageError;
use arpo_model::ModelError;
use arpo_tokenizer::TokenizerError;

/// Why collecting or learning cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The model, or a file of it.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A screenshot.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The rollout engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An environment that should not fail.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// No desktop can be had any more.
    #[error("none of {desktops} desktops can be had any more; the last failure: {reason}")]
    NoDesktop {
        /// How many there should be.
        desktops: usize,
        /// What the last one said.
        reason: String,
    },
    /// An episode that contradicts itself.
    #[error(transparent)]
    Trajectory(#[from] TrajectoryError),
    /// The run folder.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The device, or the machine, has no more memory.
    #[error("out of memory while {phase}: {problem}; expected {advice}")]
    OutOfMemory {
        /// What was done.
        phase: &'static str,
        /// What would help.
        advice: &'static str,
        /// What libtorch said.
        problem: String,
    },
    /// The run was asked to stop, and what was under way is given up.
    #[error("stopped on request")]
    Interrupted,
    /// Options that contradict each other.
    #[error("{0}")]
    Options(String),
}
