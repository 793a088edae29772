//! What can be wrong with a run folder.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run folder cannot be used, or something of it not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system refused: no such folder, no permission, no space.
    #[error("{}: cannot be {doing}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The system's words.
        error: io::Error,
    },
    /// Two processes would write over each other.
    #[error("{}: in use by process {process}: wait until it ends, or choose another folder", folder.display())]
    InUse {
        /// The run folder.
        folder: PathBuf,
        /// Its number, or `?`.
        process: String,
    },
    /// A new run would mix with what is there.
    #[error("{}: not empty: expected a new or empty folder, or --resume to go on with the run in it", folder.display())]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// There is no run.
    #[error("{}: holds no run: expected a folder with the config.toml of one", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// A file does not say what it should.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Signals cannot be listened to.
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
