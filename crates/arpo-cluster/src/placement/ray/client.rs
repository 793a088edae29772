//! The part of Ray's Jobs and State REST interfaces that placing workers needs. Every request has a deadline.
//!
//! Ray answers with JSON when all is well and with a Python traceback as plain text when it is not; of that, the last line
//! says what happened. Written against Ray 2.60.

use super::auth::Auth;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest wait for an answer. The first job of a cluster takes Ray a second or two; a node that just died, some more.
const LIMIT: Duration = Duration::from_secs(15);

/// Longest upload of the worker's program.
const UPLOAD_LIMIT: Duration = Duration::from_mins(5);

/// Longest answer: a list of thousands of nodes fits.
const LONGEST_ANSWER_BYTES: u64 = 64 << 20;

/// Most characters of an error message that are shown.
const LONGEST_MESSAGE: usize = 300;

/// Why Ray did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RayError {
    /// No answer: whether the request was carried out is not known.
    #[error(
        "Ray's dashboard at {address} does not answer: {problem}; expected `ray start --head` there, and its port"
    )]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What happened.
        problem: String,
    },
    /// Another token, or none.
    #[error(
        "Ray at {address} requires a token: expected RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH, or \
         ~/.ray/auth_token) as on its nodes"
    )]
    Token {
        /// Where it is.
        address: String,
    },
    /// There is no such thing.
    #[error("Ray does not know {0}")]
    Unknown(String),
    /// It was refused, or it failed.
    #[error("Ray answers with status {status}: {problem}")]
    Failed {
        /// The HTTP status.
        status: u16,
        /// The last line of the traceback.
        problem: String,
    },
}

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// It waits for its resources, or for its files.
    Pending,
    /// Its program runs.
    Running,
    /// Somebody stopped it.
    Stopped,
    /// Its program ended well.
    Succeeded,
    /// Its program failed, or its node is gone.
    Failed,
}

impl Status {
    /// Whether nothing of it runs any more.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// A job, as Ray describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct JobInfo {
    /// What it is doing.
    pub status: Status,
    /// Ray's words for that.
    #[serde(default)]
    pub message: Option<String>,
}

/// A job to be started.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// Its name, never used before in this cluster.
    pub id: String,
    /// A line for the shell of the node.
    pub entrypoint: String,
    /// The resource that chooses the node, and how much of it.
    pub resource: (String, usize),
    /// Environment variables and files.
    pub runtime_env: Value,
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Node {
    /// `ALIVE` or `DEAD`.
    pub state: String,
    /// All it offers.
    #[serde(default)]
    pub resources_total: BTreeMap<String, f64>,
}

/// A cluster.
pub struct Client {
    agent: ureq::Agent,
    address: String,
    auth: Auth,
}

impl Client {
    /// The cluster with its dashboard at `HOST:PORT`.
    pub fn new(address: &str, auth: Auth) -> Self {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().new_agent();
        Self { agent, address: address.into(), auth }
    }

    /// Ray's version.
    pub fn version(&self) -> Result<String, RayError> {
        let answer = self.json("GET", "/api/version", None)?;
        Ok(answer["ray_version"].as_str().unwrap_or("of no version").into())
    }

    /// All nodes, also those that are dead.
    pub fn nodes(&self) -> Result<Vec<Node>, RayError> {
        let mut answer = self.json("GET", "/api/v0/nodes?limit=10000", None)?;
        self.parsed(answer["data"]["result"]["result"].take())
    }

    /// Starts a job as soon as its resource is free.
    pub fn submit(&self, submission: &Submission) -> Result<(), RayError> {
        let Submission { id, entrypoint, resource: (resource, count), runtime_env } = submission;
        let body = json!({
            "entrypoint": entrypoint,
            "submission_id": id,
            // the resource alone decides: a node without processors for Ray is as good as any
            "entrypoint_num_cpus": 0,
            "entrypoint_resources": {resource: count},
            "metadata": {"program": "arpo-worker"},
            "runtime_env": runtime_env,
        });
        self.json("POST", "/api/jobs/", Some(&body)).map(drop)
    }

    /// A job.
    pub fn job(&self, id: &str) -> Result<JobInfo, RayError> {
        let answer = self.json("GET", &format!("/api/jobs/{id}"), None)?;
        self.parsed(answer)
    }

    /// The last line that a job wrote; empty if there is none, or if its node cannot say.
    pub fn last_line(&self, id: &str) -> String {
        let answer = self.json("GET", &format!("/api/jobs/{id}/logs"), None);
        let logs = answer.map(|answer| answer["logs"].as_str().unwrap_or_default().trim().to_owned());
        logs.ok().filter(|logs| !logs.is_empty()).map(|logs| last_line(&logs)).unwrap_or_default()
    }

    /// Asks a job to stop; it may take a while.
    pub fn stop(&self, id: &str) -> Result<(), RayError> {
        self.json("POST", &format!("/api/jobs/{id}/stop"), None).map(drop)
    }

    /// Forgets a job that is over.
    pub fn delete(&self, id: &str) -> Result<(), RayError> {
        self.json("DELETE", &format!("/api/jobs/{id}"), None).map(drop)
    }

    /// Whether the cluster has a package of this name.
    pub fn has_package(&self, name: &str) -> Result<bool, RayError> {
        match self.text("GET", &format!("/api/packages/gcs/{name}"), Body::None, LIMIT) {
            Ok(_) => Ok(true),
            Err(RayError::Unknown(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Stores a package, which nodes get as `gcs://NAME`.
    pub fn upload_package(&self, name: &str, zip: &[u8]) -> Result<(), RayError> {
        self.text("PUT", &format!("/api/packages/gcs/{name}"), Body::Bytes(zip), UPLOAD_LIMIT).map(drop)
    }

    fn json(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, RayError> {
        let body = body.map_or(Body::None, Body::Json);
        let text = self.text(method, path, body, LIMIT)?;
        serde_json::from_str(&text).map_err(|error| self.not_ray(&error.to_string()))
    }

    fn parsed<T: serde::de::DeserializeOwned>(&self, value: Value) -> Result<T, RayError> {
        serde_json::from_value(value).map_err(|error| self.not_ray(&error.to_string()))
    }

    fn not_ray(&self, problem: &str) -> RayError {
        let problem = format!("its answer is not one of Ray's dashboard ({problem})");
        RayError::Unreachable { address: self.address.clone(), problem }
    }

    fn text(&self, method: &str, path: &str, body: Body<'_>, limit: Duration) -> Result<String, RayError> {
        let unreachable = |error: ureq::Error| RayError::Unreachable {
            address: self.address.clone(),
            problem: shortened(&error.to_string()),
        };
        let mut request =
            ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        if let Some(token) = self.auth.token() {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let bytes = match body {
            Body::None => vec![],
            Body::Json(value) => {
                request = request.header("Content-Type", "application/json");
                value.to_string().into_bytes()
            }
            Body::Bytes(bytes) => bytes.to_vec(),
        };
        let request = request.body(bytes).map_err(|error| unreachable(error.into()))?;
        let request = self.agent.configure_request(request).timeout_global(Some(limit)).build();
        let mut response = self.agent.run(request).map_err(unreachable)?;
        let status = response.status().as_u16();
        let limited = response.body_mut().with_config().limit(LONGEST_ANSWER_BYTES).lossy_utf8(true);
        let text = limited.read_to_string().map_err(unreachable)?;
        match status {
            200..300 => Ok(text),
            401 | 403 => Err(RayError::Token { address: self.address.clone() }),
            404 => Err(RayError::Unknown(path.rsplit('/').next().unwrap_or(path).into())),
            _ => Err(RayError::Failed { status, problem: last_line(&text) }),
        }
    }
}

#[derive(Clone, Copy)]
enum Body<'a> {
    None,
    Json(&'a Value),
    Bytes(&'a [u8]),
}

/// The last line that says anything.
pub(super) fn last_line(text: &str) -> String {
    let said = |line: &&str| line.chars().any(char::is_alphanumeric);
    shortened(text.lines().rev().map(str::trim).find(said).unwrap_or("nothing"))
}

fn shortened(text: &str) -> String {
    let line = text.replace(['\n', '\r'], " ");
    match line.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_traceback_says_what_happened() {
        let text =
            "Traceback (most recent call last):\n  File \"a.py\", line 3\nValueError: it exists.\n\n.\n";
        assert_eq!(last_line(text), "ValueError: it exists.");
        assert_eq!(last_line(""), "nothing");
        assert!(last_line(&"é".repeat(1000)).chars().count() == LONGEST_MESSAGE + 3);
    }
}
