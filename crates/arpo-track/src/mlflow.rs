//! MLflow over its REST interface: an experiment, a run, batches of metrics. Every request has a deadline. What was sent is
//! kept in `mlflow.json` of the run folder, so that a resumed run, or `arpo log`, continues the same run there.

use crate::follow::state_file;
use crate::news::{Metrics, News};
use crate::{Ending, TrackError, Tracker};
use arpo_core::config::LoggingConfig;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(15);

/// Most metrics in a request; the server takes 1 000.
const METRICS: usize = 900;

/// Most parameters in a request.
const PARAMETERS: usize = 100;

/// Longest value of a parameter that every version takes.
const LONGEST_VALUE: usize = 500;

/// What is kept between processes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct State {
    server: String,
    run_id: String,
    /// The last iteration that was sent.
    logged: Option<u64>,
    /// The configuration was sent.
    configured: bool,
}

/// A run at an MLflow server.
pub struct MlFlow {
    run: PathBuf,
    server: String,
    project: String,
    name: String,
    agent: ureq::Agent,
    authorization: Option<String>,
    state: State,
}

impl MlFlow {
    /// The run as it was sent so far; nothing is sent yet.
    pub fn new(run: &Path, config: &LoggingConfig) -> Self {
        let server = config.mlflow_server.trim_end_matches('/').to_owned();
        let text = fs::read(state_file(run, "mlflow")).unwrap_or_default();
        let known: State = serde_json::from_slice(&text).unwrap_or_default();
        // a run at another server is another run
        let state =
            if known.server == server { known } else { State { server: server.clone(), ..State::default() } };
        let folder = run.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = if config.name.is_empty() { folder } else { config.name.clone() };
        let agent = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(LIMIT));
        Self {
            run: run.to_path_buf(),
            server,
            project: config.project.clone(),
            name,
            agent: agent.build().new_agent(),
            authorization: authorization(|name| std::env::var(name).ok().filter(|value| !value.is_empty())),
            state,
        }
    }

    /// The last iteration that was sent before.
    pub fn logged(&self) -> Option<u64> {
        self.state.logged
    }

    /// Finds or creates the experiment and the run, once, and sends the configuration.
    fn begin(&mut self) -> Result<(), TrackError> {
        if self.state.run_id.is_empty() {
            let experiment = self.experiment()?;
            let started = started(&self.run).unwrap_or_else(now);
            let created = self.post(
                "runs/create",
                &json!({"experiment_id": experiment, "start_time": started, "run_name": self.name,
                    "tags": [{"key": "mlflow.source.name", "value": "arpo"}]}),
            )?;
            let id = created["run"]["info"]["run_id"].as_str();
            let garbled = || TrackError::Refused(format!("{}: no run id in the answer", self.server));
            self.state.run_id = id.ok_or_else(garbled)?.to_owned();
            self.keep()?;
        }
        if !self.state.configured {
            for part in parameters(&self.run).chunks(PARAMETERS) {
                self.post("runs/log-batch", &json!({"run_id": self.state.run_id, "params": part}))?;
            }
            self.state.configured = true;
            self.keep()?;
        }
        Ok(())
    }

    fn experiment(&self) -> Result<String, TrackError> {
        let name = &self.project;
        let id = |answer: &Value| answer.as_str().map(str::to_owned);
        let path = "experiments/get-by-name";
        if let Some(found) = self.request(path, Body::Query(name))?
            && let Some(id) = id(&found["experiment"]["experiment_id"])
        {
            return Ok(id);
        }
        let created = self.post("experiments/create", &json!({"name": name}))?;
        id(&created["experiment_id"])
            .ok_or_else(|| TrackError::Refused(format!("{}: no experiment id in the answer", self.server)))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, TrackError> {
        let missing = || TrackError::Refused(format!("{}/{path}: not found", self.server));
        self.request(path, Body::Json(body))?.ok_or_else(missing)
    }

    /// The answer; `None` if what was asked for does not exist.
    fn request(&self, path: &str, body: Body) -> Result<Option<Value>, TrackError> {
        let url = format!("{}/api/2.0/mlflow/{path}", self.server);
        let authorized = self.authorization.as_deref();
        let answered = match body {
            Body::Query(name) => {
                let mut request = self.agent.get(&url).query("experiment_name", name);
                if let Some(value) = authorized {
                    request = request.header("Authorization", value);
                }
                request.call()
            }
            Body::Json(body) => {
                let mut request = self.agent.post(&url).header("Content-Type", "application/json");
                if let Some(value) = authorized {
                    request = request.header("Authorization", value);
                }
                request.send(body.to_string())
            }
        };
        let later = |error: ureq::Error| TrackError::Later(format!("{}: {error}", self.server));
        let mut answer = answered.map_err(later)?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().map_err(later)?;
        let parsed: Option<Value> = serde_json::from_str(&text).ok();
        let parsed = if text.trim().is_empty() { Some(Value::Null) } else { parsed };
        match (status, parsed) {
            (200..=299, Some(answer)) => Ok(Some(answer)),
            (200..=299, None) => Err(TrackError::Refused(format!("{url}: an answer that is not JSON"))),
            (404, Some(answer)) if answer["error_code"] == "RESOURCE_DOES_NOT_EXIST" => Ok(None),
            (408 | 429 | 500..=599, answer) => {
                Err(TrackError::Later(format!("{url}: status {status}{}", message(answer))))
            }
            (_, answer) => Err(TrackError::Refused(format!("{url}: status {status}{}", message(answer)))),
        }
    }

    /// Keeps how far it came.
    fn keep(&self) -> Result<(), TrackError> {
        let path = state_file(&self.run, "mlflow");
        let hidden = path.with_extension("json.writing");
        let text = serde_json::to_vec(&self.state).unwrap_or_default();
        let written = fs::write(&hidden, text).and_then(|()| fs::rename(&hidden, &path));
        written.map_err(TrackError::io(path.display()))
    }
}

#[derive(Clone, Copy)]
enum Body<'a> {
    Json(&'a Value),
    Query(&'a str),
}

impl Tracker for MlFlow {
    fn name(&self) -> &'static str {
        "mlflow"
    }

    fn log(&mut self, news: &News) -> Result<(), TrackError> {
        self.begin()?;
        for line in &news.metrics {
            // sent before the server stopped answering
            if self.state.logged.is_some_and(|logged| line.iteration <= logged) {
                continue;
            }
            for part in values(line).chunks(METRICS) {
                self.post("runs/log-batch", &json!({"run_id": self.state.run_id, "metrics": part}))?;
            }
            self.state.logged = Some(line.iteration);
            self.keep()?;
        }
        Ok(())
    }

    fn end(&mut self, ending: Ending) -> Result<(), TrackError> {
        self.begin()?;
        let status = match ending {
            Ending::Finished => "FINISHED",
            Ending::Stopped => "KILLED",
            Ending::Failed => "FAILED",
        };
        let update = json!({"run_id": self.state.run_id, "status": status, "end_time": now()});
        self.post("runs/update", &update).map(drop)
    }
}

/// The header for the credentials in the environment, as MLflow's own client reads them.
fn authorization(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    if let Some(token) = variable("MLFLOW_TRACKING_TOKEN") {
        return Some(format!("Bearer {token}"));
    }
    let user = variable("MLFLOW_TRACKING_USERNAME")?;
    let password = variable("MLFLOW_TRACKING_PASSWORD").unwrap_or_default();
    Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
}

/// The metrics of a line, with names that every version takes.
fn values(line: &Metrics) -> Vec<Value> {
    let timestamp = (line.time * 1000.0) as u64;
    let value = |(name, value): &(String, f64)| json!({"key": accepted(name), "value": value, "timestamp": timestamp, "step": line.iteration});
    line.values.iter().map(value).collect()
}

/// A name of letters, digits and `_-./ ` only.
fn accepted(name: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_-./ ".contains(letter);
    name.chars().map(|letter| if fits(letter) { letter } else { '_' }).take(250).collect()
}

/// The configuration of a run, key by key.
fn parameters(run: &Path) -> Vec<Value> {
    fn flatten(prefix: &str, table: &toml::Table, into: &mut BTreeMap<String, String>) {
        for (key, value) in table {
            let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            match value {
                toml::Value::Table(table) => flatten(&key, table, into),
                toml::Value::String(text) => drop(into.insert(key, text.clone())),
                other => drop(into.insert(key, other.to_string())),
            }
        }
    }
    let text = fs::read_to_string(run.join("config.toml")).unwrap_or_default();
    let mut flat = BTreeMap::new();
    flatten("", &text.parse().unwrap_or_default(), &mut flat);
    let short = |value: String| value.chars().take(LONGEST_VALUE).collect::<String>();
    flat.into_iter().map(|(key, value)| json!({"key": accepted(&key), "value": short(value)})).collect()
}

/// When the run was started, in milliseconds.
fn started(run: &Path) -> Option<u64> {
    let about: Value = serde_json::from_slice(&fs::read(run.join("run.json")).ok()?).ok()?;
    Some((about["started"].as_f64()? * 1000.0) as u64)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// The server's message, in one line.
fn message(answer: Option<Value>) -> String {
    const SHOWN: usize = 200;
    let text = answer.and_then(|answer| Some(answer["message"].as_str()?.replace('\n', " ")));
    text.map_or(String::new(), |text| format!(": {}", text.chars().take(SHOWN).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_those_of_the_official_client() {
        let with = |set: &[(&str, &str)]| {
            authorization(|name| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("MLFLOW_TRACKING_TOKEN", "t")]).as_deref(), Some("Bearer t"));
        let basic =
            with(&[("MLFLOW_TRACKING_USERNAME", "Aladdin"), ("MLFLOW_TRACKING_PASSWORD", "open sesame")]);
        assert_eq!(basic.as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    }

    #[test]
    fn names_and_values_fit() {
        let line = Metrics { iteration: 3, time: 1.5, values: vec![("cluster/a@b:1/x".into(), 0.25)] };
        let expected = json!({"key": "cluster/a_b_1/x", "value": 0.25, "timestamp": 1500, "step": 3});
        assert_eq!(values(&line), [expected]);
    }
}
