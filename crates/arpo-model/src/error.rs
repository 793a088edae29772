//! What can be wrong with a model from outside.

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
        /// The system's words.
        error: io::Error,
    },
    /// A file does not say what it should.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A tensor is missing or not as the configuration says.
    #[error("{}: tensor {name}: {problem}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Placeholders and pictures do not match.
    #[error("{placeholders} image placeholder tokens for {features} image features")]
    ImageTokens {
        /// Tokens in the sequence.
        placeholders: usize,
        /// Features of the images given with it.
        features: usize,
    },
    /// An input that no model can take.
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
