//! Errors of run folders.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run folder, or a file in it, cannot be used, read or written.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An error of the system: no such folder, no permission, no space.
    #[error("{}: cannot be {doing}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Another process uses the folder.
    #[error("{}: in use by process {process}: wait until it ends, or choose another folder", folder.display())]
    InUse {
        /// The run folder.
        folder: PathBuf,
        /// Its process id, or `?`.
        process: String,
    },
    /// The file system has no locks, or does not answer.
    #[error("{}: cannot be locked: {error}", path.display())]
    NoLock {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A new run needs an empty folder.
    #[error("{}: not empty: expected a new or empty folder, or --resume to continue the run in it", folder.display())]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// There is no run to resume.
    #[error("{}: holds no run: expected a folder with the config.toml of one", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// A file has invalid contents.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// The signal handler cannot be installed.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signal(io::Error),
}

impl RunError {
    pub(crate) fn io(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |error| Self::Io { path, doing, error }
    }

    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_path_buf(), problem: problem.into() }
    }
}
