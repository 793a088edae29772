//! Errors of collecting and learning.

use crate::run::RunError;
use arpo_core::trajectory::TrajectoryError;
use arpo_engine::EngineError;
use arpo_env::environment::EnvironmentError;
use arpo_image::ImageError;
use arpo_model::ModelError;
use arpo_suite::SuiteError;
use arpo_tokenizer::TokenizerError;

/// Why collecting or learning cannot continue.
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
    /// All desktops are in quarantine.
    #[error("all {desktops} desktops are quarantined; the last failure: {reason}")]
    NoDesktop {
        /// How many there are.
        desktops: usize,
        /// Why the last one failed.
        reason: String,
    },
    /// An inconsistent episode.
    #[error(transparent)]
    Trajectory(#[from] TrajectoryError),
    /// The run folder.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The device, or the machine, has no more memory.
    #[error("out of memory while {phase}: {problem}; expected {advice}")]
    OutOfMemory {
        /// What was running.
        phase: &'static str,
        /// What would help.
        advice: &'static str,
        /// libtorch's message.
        problem: String,
    },
    /// Another rank of the learner.
    #[error(transparent)]
    Ranks(#[from] arpo_ranks::RankError),
    /// A stop was requested, and running work was abandoned.
    #[error("stopped on request")]
    Interrupted,
    /// An invalid configuration, or an invalid file that it names.
    #[error("{0}")]
    Configuration(String),
    /// A server that does not respond, or a desktop's provider.
    #[error("{0}")]
    Service(String),
    /// The system refused a file or a thread.
    #[error("{0}")]
    Io(String),
    /// A defect of this program.
    #[error("internal error: {0}")]
    Internal(String),
}

impl From<SuiteError> for TrainError {
    /// The same problem: a wrong configuration keeps its exit code.
    fn from(error: SuiteError) -> Self {
        match error {
            SuiteError::Configuration(problem) => Self::Configuration(problem),
            SuiteError::Service(problem) => Self::Service(problem),
        }
    }
}
