//! What can go wrong while collecting or learning.

use crate::run::RunError;
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
    /// The run folder.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Options that contradict each other.
    #[error("{0}")]
    Options(String),
}
