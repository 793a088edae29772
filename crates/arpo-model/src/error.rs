//! Errors of models, their files and their inputs.

use std::io;
use std::path::{Path, PathBuf};

/// A model, a file of it, or an input that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file's content is wrong.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// A tensor is missing or does not match the configuration.
    #[error("{}: tensor {name}: {problem}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// Placeholders and images do not match.
    #[error("{placeholders} image placeholder tokens for {features} image features")]
    ImageTokens {
        /// Tokens in the sequence.
        placeholders: usize,
        /// Features of the images given with it.
        features: usize,
    },
    /// Another rank of the learner.
    #[error(transparent)]
    Ranks(#[from] arpo_ranks::RankError),
    /// An invalid input.
    #[error("{0}")]
    Input(String),
}

impl ModelError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |error| Self::Io { path, error }
    }

    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_path_buf(), problem: problem.into() }
    }

    pub(crate) fn tensor(path: &Path, name: &str, problem: impl Into<String>) -> Self {
        Self::Tensor { path: path.to_path_buf(), name: name.to_owned(), problem: problem.into() }
    }
}
