//! Errors between ranks.

use std::io;

/// Why ranks cannot go on together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RankError {
    /// A rank is lost, or has failed; the text names it.
    #[error("{0}")]
    Lost(String),
    /// Rank 0 does not take this process.
    #[error("rank 0 refuses this process: {0}")]
    Refused(String),
    /// The ranks did not come together.
    #[error("{0}")]
    Rendezvous(String),
    /// A stop was requested while the ranks came together.
    #[error("stopped on request")]
    Stopped,
    /// The system refused a socket or a thread.
    #[error("{0}")]
    System(String),
    /// A defect of this program: ranks that are not doing the same.
    #[error("internal error: {0}")]
    Internal(String),
}

impl RankError {
    pub(crate) fn system(what: &str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System(format!("{what}: {error}"))
    }
}
