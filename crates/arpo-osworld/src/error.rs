//! What can go wrong between a task file and a score.

use std::path::PathBuf;

/// A task file, a list or a folder of them that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        error: std::io::Error,
    },
    /// A file does not say what it should.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        problem: String,
    },
    /// A task names functions that are not here.
    #[error("task {task} needs what is not implemented: {}", missing.join(", "))]
    Missing {
        /// The task.
        task: String,
        /// What it needs, as `metric NAME`, `getter NAME` or `step NAME`.
        missing: Vec<String>,
    },
}

/// Why a metric gave no score.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// OSWorld's own function raises an exception here, so that its runner has no score; ARPO counts it as 0.
    #[error("raises: {0}")]
    Raises(String),
    /// There is no metric of this name.
    #[error("no metric is called {0:?}")]
    Unknown(String),
    /// A form of a metric that is not implemented; never a silent 0.
    #[error("not implemented: {0}")]
    Unsupported(String),
}

impl MetricError {
    /// OSWorld's function raises for this reason.
    pub fn raises(why: impl Into<String>) -> Self {
        Self::Raises(why.into())
    }
}

/// Why a guest did not answer as it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuestError {
    /// No answer, or a broken one.
    #[error("{call}: {problem}")]
    Unreachable {
        /// What was asked.
        call: String,
        /// What came instead.
        problem: String,
    },
    /// An answer that says no.
    #[error("{call}: status {status}: {body}")]
    Refused {
        /// What was asked.
        call: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the answer.
        body: String,
    },
}

/// Why a getter has no state to give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GetterError {
    /// There is no getter of this name.
    #[error("no getter is called {0:?}")]
    Unknown(String),
    /// The getter's parameters are not as they should be.
    #[error("getter {getter}: {problem}")]
    Config {
        /// The getter.
        getter: String,
        /// What is wrong.
        problem: String,
    },
    /// A file that OSWorld's own getter would miss with `FileNotFoundError`: the score is 0.
    #[error("file not found: {0}")]
    NotFound(String),
    /// The guest did not answer as it should.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// OSWorld's own getter raises an exception here.
    #[error("raises: {0}")]
    Raises(String),
    /// A file of the internet or of the cache cannot be had.
    #[error(transparent)]
    Download(#[from] DownloadError),
}

/// Why a file of a task cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DownloadError {
    /// Offline, and the file is not in the cache.
    #[error("offline: {url} is not in the cache; put it at {}", path.display())]
    Offline {
        /// Where it would come from.
        url: String,
        /// Where it is looked for.
        path: PathBuf,
    },
    /// The server did not give it.
    #[error("{url}: {problem}")]
    Fetch {
        /// Where it should come from.
        url: String,
        /// What happened.
        problem: String,
    },
    /// It is not what it should be.
    #[error("{url}: sha256 is {found}, should be {wanted}")]
    Checksum {
        /// Where it came from.
        url: String,
        /// The sum of what came.
        found: String,
        /// The sum that is known.
        wanted: String,
    },
    /// The cache cannot be written or read.
    #[error("{}: {problem}", path.display())]
    Cache {
        /// The file.
        path: PathBuf,
        /// The system's words.
        problem: String,
    },
}

/// Why a desktop could not be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A step that is not as it should be.
    #[error("set-up step {index}: {problem}")]
    Config {
        /// Which, from 0.
        index: usize,
        /// What is wrong.
        problem: String,
    },
    /// The desktop was gone, or its browser.
    #[error("set-up step {index} ({step}): {problem}")]
    Lost {
        /// Which, from 0.
        index: usize,
        /// Its type.
        step: String,
        /// What happened.
        problem: String,
    },
    /// A step that failed, and would on any desktop.
    #[error("set-up step {index} ({step}): {problem}")]
    Failed {
        /// Which, from 0.
        index: usize,
        /// Its type.
        step: String,
        /// What happened.
        problem: String,
    },
}
