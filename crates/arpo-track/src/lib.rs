//! Trackers: TensorBoard, W&B and MLflow follow the files of a run folder (see `docs/run-folder.md`), while the run writes
//! them or afterwards. Each has a thread of its own; nothing that happens to it reaches the run but one line for the user.
//!
//! | to change | look in |
//! |---|---|
//! | how a growing file is read | the crate `arpo-lines` |
//! | which values and episodes are logged | [`news`] |
//! | TensorBoard: the bytes of an event file | [`records`], [`event`]; what is in it: [`tensorboard`] |
//! | MLflow: requests, retries | [`mlflow`] |
//! | W&B: the side-car that runs in the user's Python | `tools/wandb_sidecar.py`; how it is started and ended: [`wandb`] |
//! | the threads, notices, the end | `follow.rs` |
//! | `arpo log` | [`export`] |

pub mod event;
pub mod export;
pub mod follow;
pub mod mlflow;
pub mod news;
pub mod records;
pub mod tensorboard;
pub mod wandb;

pub use follow::{Following, follow};

use news::News;

/// What went wrong with a tracker, in one line.
#[derive(Debug, thiserror::Error)]
pub enum TrackError {
    /// A file or program of this machine.
    #[error("{what}: {error}")]
    Io {
        /// The file or program.
        what: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// A server did not answer, or will later: worth another try.
    #[error("{0}")]
    Later(String),
    /// It will not work.
    #[error("{0}")]
    Refused(String),
}

impl TrackError {
    pub(crate) fn io(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.to_string();
        move |error| Self::Io { what, error }
    }
}

/// How a run ended, for trackers that show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It finished.
    Finished,
    /// It was stopped on request and may be resumed.
    Stopped,
    /// It failed.
    Failed,
}

/// A tracker. It is given what is new, in order, and says what it could not take.
pub trait Tracker: Send {
    /// Its name, as in `logging.to`.
    fn name(&self) -> &'static str;

    /// Logs what is new. If it fails with [`TrackError::Later`], it is given the same again.
    fn log(&mut self, news: &News) -> Result<(), TrackError>;

    /// The run has ended; everything has been logged.
    fn end(&mut self, ending: Ending) -> Result<(), TrackError>;
}
