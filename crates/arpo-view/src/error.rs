//! What can go wrong when a run is looked at.

use std::io;
use std::path::Path;

/// An error of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// A file or folder cannot be used.
    #[error("{path}: {problem}")]
    File {
        /// Which one.
        path: String,
        /// Why.
        problem: String,
    },
    /// A request that nothing can answer: a wrong name or number.
    #[error("{0}")]
    Request(String),
    /// There is nothing of that name.
    #[error("{0}")]
    Missing(String),
}

impl ViewError {
    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.display().to_string(), problem: problem.into() }
    }

    /// For [`Result::map_err`]: the file, and what was done with it.
    pub(crate) fn io<'a>(path: &'a Path, done: &'a str) -> impl Fn(io::Error) -> Self + 'a {
        move |error| Self::file(path, format!("cannot be {done}: {error}"))
    }
}
