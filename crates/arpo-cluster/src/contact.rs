//! Asking a running trainer how its cluster is.
//!
//! Its hub answers on the port of its workers. Where that is, and the token, stands in a file of the run folder that only its
//! user may read; it is there as long as the hub is open.

use crate::link::{read_by, write_by};
use crate::protocol::frame::Kind;
use crate::protocol::status::ClusterStatus;
use crate::protocol::{Inquiry, Message, VERSION};
use arpo_ranks::connect::connect_to_any;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file in the run folder.
const FILE: &str = "cluster.json";

/// Longest wait for a connection, and for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where a hub is, and what lets one ask it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    address: String,
    token: String,
}

/// The file, as long as this lives.
pub(crate) struct Contact(PathBuf);

impl Contact {
    /// Writes the file.
    pub(crate) fn write(folder: &Path, address: SocketAddr, token: &str) -> io::Result<Self> {
        let (path, part) = (folder.join(FILE), folder.join(format!("{FILE}.part")));
        fs::create_dir_all(folder)?;
        let address = crate::hub::reachable(address).to_string();
        let text = serde_json::to_string(&Entry { address, token: token.into() })?;
        // a file of a killed run may have other rights
        let _ = fs::remove_file(&part);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&part)?;
        file.write_all(text.as_bytes())?;
        fs::rename(part, &path)?;
        Ok(Self(path))
    }
}

impl Drop for Contact {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// How the cluster of a run is, by the run's folder; an error says what was expected.
pub fn status_of_run(folder: &Path) -> Result<ClusterStatus, String> {
    let path = folder.join(FILE);
    let text = fs::read_to_string(&path).map_err(|error| {
        let folder = folder.display();
        format!(
            "{}: {error}; expected {folder} to be the folder of a run with --cluster that goes on",
            path.display()
        )
    })?;
    let wrong = |error: serde_json::Error| format!("{}: {error}", path.display());
    let Entry { address, token } = serde_json::from_str(&text).map_err(wrong)?;
    status_at(&address, &token)
}

/// How the cluster of the trainer at `HOST:PORT` is.
pub fn status_at(address: &str, token: &str) -> Result<ClusterStatus, String> {
    let silent = |problem: &dyn std::fmt::Display| {
        format!(
            "no trainer at {address}: {problem}; expected the address of a run with --cluster that goes on"
        )
    };
    let stream = connect_to_any(address, TIMEOUT).map_err(|error| silent(&error))?;
    let program = env!("CARGO_PKG_VERSION").into();
    let inquiry = Message::Inquiry(Inquiry { protocol: VERSION, program, token: token.into() });
    let answered = write_by(&stream, &inquiry, TIMEOUT)
        .and_then(|()| read_by(&stream, &[Kind::Status, Kind::Refused], Instant::now() + TIMEOUT));
    match answered.map_err(|error| silent(&error))? {
        Message::Status(status) => Ok(*status),
        Message::Refused(refused) => Err(format!("the trainer at {address} refuses: {}", refused.reason)),
        _ => Err(silent(&"another answer")),
    }
}
