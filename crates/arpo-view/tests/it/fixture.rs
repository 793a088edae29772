//! A served run folder, and a client for it.

use arpo_view::server::listen::Background;
use arpo_view::testing::{Plan, SyntheticRun};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A server of some folders, and the folder they are in.
pub(crate) struct Served {
    pub(crate) folder: TempDir,
    server: Background,
}

/// A small run.
pub(crate) fn plan() -> Plan {
    Plan { iterations: 12, tasks: 8, groups: 3, screens: 6, screen: (320, 200), ..Plan::default() }
}

impl Served {
    /// Serves one small whole run under the name `run`.
    pub(crate) fn run() -> Self {
        Self::with(None, |root| SyntheticRun::whole(&root.join("run"), plan(), 7).unwrap())
    }

    pub(crate) fn with(token: Option<&str>, write: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let viewer = arpo_view::viewer(&[folder.path().to_path_buf()], token).unwrap();
        let server = Background::start(viewer, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self { folder, server }
    }

    pub(crate) fn path(&self, inner: &str) -> PathBuf {
        self.folder.path().join(inner)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// The status and body of a GET.
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        let mut response = client().get(self.url(path)).call().unwrap();
        let text = response.body_mut().read_to_string().unwrap_or_default();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// The body of a GET that must succeed.
    pub(crate) fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }
}

pub(crate) fn client() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(Duration::from_secs(20)))
        .proxy(None)
        .build()
        .new_agent()
}
