//! Why a suite has no tasks or no desktops.

/// What is wrong: the configuration, or something outside this program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// An invalid configuration, or an invalid file that it names.
    #[error("{0}")]
    Configuration(String),
    /// The provider of the desktops does not respond or lacks something.
    #[error("{0}")]
    Service(String),
}
