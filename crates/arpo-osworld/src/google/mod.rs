//! The user's own Google account, which eight tasks of OSWorld need: its settings files, Google Drive, and the login in the
//! desktop's browser.

mod client;
mod drive;
mod login;
mod settings;
mod token;

pub use drive::{Drive, DriveFile, FOLDER, escaped};
pub use login::{ADDRESS, log_in};
pub use settings::{Accounts, DRIVE_SETTINGS, Login, Services, is_used_by};
pub use token::Tokens;

use std::path::{Path, PathBuf};

/// Why something could not be done with a Google account. No message holds a password or a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoogleError {
    /// A settings file is missing or incomplete.
    #[error("{}: {problem}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Google does not accept the stored tokens any more.
    #[error(
        "{}: Google does not accept these credentials: {problem}; delete the file and log in once more with PyDrive",
        path.display()
    )]
    Rejected {
        /// The file of the tokens.
        path: PathBuf,
        /// What Google said.
        problem: String,
    },
    /// Google asked for patience until the last try.
    #[error("Google Drive: {call}: status {status}: {problem}")]
    Busy {
        /// The request.
        call: String,
        /// The HTTP status.
        status: u16,
        /// What Google said.
        problem: String,
    },
    /// Google refused a request, and would again.
    #[error("Google Drive: {call}: status {status}: {problem}")]
    Refused {
        /// The request.
        call: String,
        /// The HTTP status.
        status: u16,
        /// What Google said.
        problem: String,
    },
    /// No response, or a broken one.
    #[error("Google Drive: {call}: {problem}")]
    Unreachable {
        /// The request.
        call: String,
        /// What happened.
        problem: String,
    },
    /// The deadline of the set-up or of the evaluation has passed.
    #[error("Google: {call}: not done by the deadline")]
    Late {
        /// What was waited for.
        call: String,
    },
    /// A response that is larger than what is read.
    #[error("Google Drive: {call}: more than {} MiB, the limit of a file that is judged", limit_bytes >> 20)]
    TooLarge {
        /// The request.
        call: String,
        /// The limit.
        limit_bytes: u64,
    },
    /// The login page is not as expected.
    #[error("the login at Google: {0}")]
    Login(String),
}

impl GoogleError {
    /// The settings file that is missing or wrong, if that is the reason.
    pub fn settings_file(&self) -> Option<&Path> {
        match self {
            Self::Settings { path, .. } | Self::Rejected { path, .. } => Some(path),
            Self::Busy { .. }
            | Self::Refused { .. }
            | Self::Unreachable { .. }
            | Self::Late { .. }
            | Self::TooLarge { .. }
            | Self::Login(_) => None,
        }
    }
}
