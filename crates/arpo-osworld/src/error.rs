//! What can go wrong between a task file and a score.

use crate::google::GoogleError;
use std::path::PathBuf;

/// A task file, a list or a folder of them that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's message.
        error: std::io::Error,
    },
    /// A file has invalid content.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        problem: String,
    },
    /// A task names functions that are not implemented, a program that is not installed, or an account without credentials.
    #[error("task {task} needs what is missing here: {}", missing.join(", "))]
    Missing {
        /// The task.
        task: String,
        /// What it needs, as `metric NAME`, `getter NAME`, `step NAME`, `program NAME` or
        /// `credentials FILE: PROBLEM`.
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
    /// The call to the guest failed, for the metric that runs in it.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// A program of this host that the metric runs is not installed, or lacks data.
    #[error(
        "{program} is not installed on this host, or not completely; on Debian: apt-get install {package}"
    )]
    NoProgram {
        /// The program.
        program: &'static str,
        /// The package that has it, or several with blanks between them.
        package: &'static str,
    },
    /// A program of this host failed, or had no place for its files.
    #[error("{0}")]
    Host(String),
}

impl MetricError {
    /// OSWorld's function raises for this reason.
    pub fn raises(why: impl Into<String>) -> Self {
        Self::Raises(why.into())
    }
}

/// A failed call to a guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuestError {
    /// No response, or a broken one.
    #[error("{call}: {problem}")]
    Unreachable {
        /// The call.
        call: String,
        /// What happened.
        problem: String,
    },
    /// The guest refused.
    #[error("{call}: status {status}: {body}")]
    Refused {
        /// The call.
        call: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the response.
        body: String,
    },
    /// A file of the guest is too large to be judged here.
    #[error(
        "{call}: more than {} MiB, the limit of a file that is judged; a task allows more with \
         `max_file_mib` in its evaluator",
        limit_bytes >> 20
    )]
    TooLarge {
        /// The call.
        call: String,
        /// The limit.
        limit_bytes: u64,
    },
}

/// Why a getter has no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GetterError {
    /// There is no getter of this name.
    #[error("no getter is called {0:?}")]
    Unknown(String),
    /// The getter's parameters are invalid.
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
    /// The call to the guest failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// OSWorld's own getter raises an exception here.
    #[error("raises: {0}")]
    Raises(String),
    /// A file of the internet or of the cache is not available.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// Google could not be asked.
    #[error(transparent)]
    Google(#[from] GoogleError),
}

/// Why a file of a task is not available.
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
    /// The server did not return it.
    #[error("{url}: {problem}")]
    Fetch {
        /// Where it should come from.
        url: String,
        /// What happened.
        problem: String,
    },
    /// It was not there by the deadline; a later call may find it.
    #[error("{url} was not there by the deadline: {problem}")]
    Late {
        /// Where it comes from.
        url: String,
        /// How far it came.
        problem: String,
    },
    /// Its checksum is wrong.
    #[error("{url}: sha256 is {found}, should be {wanted}")]
    Checksum {
        /// Where it came from.
        url: String,
        /// The checksum found.
        found: String,
        /// The expected checksum.
        wanted: String,
    },
    /// The cache cannot be written or read.
    #[error("{}: {problem}", path.display())]
    Cache {
        /// The file.
        path: PathBuf,
        /// The system's message.
        problem: String,
    },
}

/// Why a desktop could not be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// An invalid step.
    #[error("set-up step {index}: {problem}")]
    Config {
        /// Which, from 0.
        index: usize,
        /// What is wrong.
        problem: String,
    },
    /// The desktop was gone, or its browser, Google could not be reached, or a file was not there in time.
    #[error("set-up step {index} ({step}): {problem}")]
    Lost {
        /// Which, from 0.
        index: usize,
        /// Its type.
        step: String,
        /// What happened.
        problem: String,
    },
    /// A step that failed, and would fail on any desktop.
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
