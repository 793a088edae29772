//! Errors of a desktop's engine: each says in one line what is wrong and how to fix it.

use std::path::PathBuf;

/// Why a desktop is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Nothing listens where the engine should be.
    #[error(
        "no Docker engine at {host} ({problem}): start it (systemctl start docker), or set DOCKER_HOST to \
         unix://PATH or tcp://HOST:PORT"
    )]
    NoEngine {
        /// Where it was looked for.
        host: String,
        /// What happened.
        problem: String,
    },
    /// The engine's socket is not for this user.
    #[error(
        "the Docker engine at {host} refuses this user: usermod -aG docker $USER, then log in again, or run as \
         root"
    )]
    Forbidden {
        /// Where it is.
        host: String,
    },
    /// The image is not on the engine.
    #[error("no image {image}: {remedy}")]
    NoImage {
        /// Its name.
        image: String,
        /// How to get it.
        remedy: String,
    },
    /// The disk of the virtual machine is not there.
    #[error("no disk image at {}: unpack OSWorld's Ubuntu.qcow2.zip there, or name another qcow2 file", path.display())]
    NoDisk {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// An invalid option.
    #[error("{0}")]
    Option(String),
    /// All running guests that were named are in use.
    #[error("all {count} running guests are in use: name more of them, or run fewer desktops")]
    NoFreeGuest {
        /// How many there are.
        count: usize,
    },
    /// A call took too long.
    #[error("the Docker engine did not {call} within {limit_secs} s")]
    Deadline {
        /// What was asked.
        call: String,
        /// The time it had.
        limit_secs: u64,
    },
    /// The engine refused.
    #[error("the Docker engine could not {call}: {problem}")]
    Engine {
        /// What was asked.
        call: String,
        /// Its message.
        problem: String,
    },
    /// The desktop was started and never responded.
    #[error(
        "desktop {name} did not answer GET {url} within {limit_secs} s ({problem}); the end of its log: {log}"
    )]
    NotReady {
        /// The desktop.
        name: String,
        /// What was asked.
        url: String,
        /// The time it had.
        limit_secs: u64,
        /// The last try.
        problem: String,
        /// The end of its log.
        log: String,
    },
    /// The image cannot close a desktop off.
    #[error(
        "image {image} has no firewall to close a desktop off from this machine's servers: build it anew with \
         `./x image`, or set network = \"internal_open_to_host\""
    )]
    NotIsolated {
        /// Its name.
        image: String,
    },
    /// The desktop ended by itself or was ended by others.
    #[error("desktop {name} is gone: {how}; the end of its log: {log}")]
    Gone {
        /// The desktop.
        name: String,
        /// Its end.
        how: String,
        /// The end of its log.
        log: String,
    },
    /// The provider is being closed.
    #[error("desktop {name} was abandoned: the provider is closing")]
    Closing {
        /// The desktop.
        name: String,
    },
}
