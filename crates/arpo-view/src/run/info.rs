//! What a run says of itself: `run.json`, `status.json`, `config.toml`, and the state that follows from them.

use super::metrics::{Metrics, WALL};
use arpo_core::config::{EvaluationConfig, TasksConfig};
use arpo_core::reward::RewardConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A run that has written nothing for this long is not running, whatever its files say.
const SILENT_SECONDS: f64 = 180.0;
/// Larger files of these names are not what they should be.
const MAX_BYTES: u64 = 16 << 20;

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It writes.
    Running,
    /// It reached its last iteration.
    Finished,
    /// It was stopped on request, or its process ended without a word.
    Stopped,
    /// It ended with an error.
    Failed,
    /// A folder of results, which has no state.
    Results,
}

impl State {
    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Results => "results",
        }
    }
}

/// The small files of a run, as they were last read.
#[derive(Debug, Clone, Default)]
pub struct Info {
    /// `run.json`, or null.
    pub run: Value,
    /// `status.json`, or null.
    pub status: Value,
    /// `config.toml` as text; empty if there is none.
    pub config_text: String,
    /// `config.toml`; empty if it cannot be read.
    pub config: toml::Table,
    /// When any of its files last changed; 0 if that is not known.
    pub changed: f64,
}

impl Info {
    /// Reads them.
    pub fn read(folder: &Path) -> Self {
        let config_text = text(&folder.join("config.toml")).unwrap_or_default();
        let changed = ["status.json", "run.json", "metrics.jsonl", "config.toml", "episodes"]
            .iter()
            .filter_map(|name| modified(&folder.join(name)))
            .fold(0.0, f64::max);
        Self {
            run: json(&folder.join("run.json")),
            status: json(&folder.join("status.json")),
            config: config_text.parse().unwrap_or_default(),
            config_text,
            changed,
        }
    }

    /// The number of iterations that are planned.
    pub fn iterations(&self) -> Option<f64> {
        let planned = self.run["iterations"].as_f64().or_else(|| self.status["of"].as_f64());
        planned.or_else(|| self.config.get("iterations")?.as_integer().map(|count| count as f64))
    }

    /// The score above which an episode is a success, as the run counts it.
    pub fn success_above(&self) -> f64 {
        let said = self.config.get("reward").and_then(|section| section.get("success_above")?.as_float());
        said.unwrap_or(RewardConfig::default().success_above)
    }

    /// Whether unseen tasks select its best model; false if its configuration cannot be read.
    pub fn selects_by_unseen(&self) -> bool {
        let evaluation = self.section::<EvaluationConfig>("evaluation");
        let tasks = self.section::<TasksConfig>("tasks");
        evaluation.zip(tasks).is_some_and(|(evaluation, tasks)| evaluation.selects_by_unseen(&tasks))
    }

    fn section<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.config.get(name)?.clone().try_into().ok()
    }

    /// The method, by the run's own words or by its configuration.
    pub fn method(&self) -> String {
        if let Some(method) = self.run["method"].as_str() {
            return method.to_owned();
        }
        let replay = self.config.get("replay").and_then(|section| section.get("enabled")?.as_bool());
        match replay {
            Some(true) => "ARPO".into(),
            Some(false) => "GRPO".into(),
            None => String::new(),
        }
    }

    /// The seed.
    pub fn seed(&self) -> Option<i64> {
        self.run["seed"].as_i64().or_else(|| self.config.get("seed")?.as_integer())
    }

    /// When it started.
    pub fn started(&self, metrics: &Metrics) -> Option<f64> {
        let first = || metrics.column(WALL)?.iter().copied().find(|time| !time.is_nan());
        self.run["started"].as_f64().or_else(first)
    }

    /// The state, at a time.
    pub fn state(&self, metrics: &Metrics, now: f64) -> State {
        match self.run["ending"].as_str() {
            Some("finished") => return State::Finished,
            Some("stopped") => return State::Stopped,
            Some(ending) if ending.starts_with("failed") => return State::Failed,
            _ => {}
        }
        let done = metrics.last_iteration().zip(self.iterations()).is_some_and(|(last, of)| last >= of);
        if done && self.run.is_null() {
            return State::Finished;
        }
        let last = self.status["time"].as_f64().unwrap_or(0.0).max(self.changed);
        let ended = self.status["phase"] == "ended";
        if !ended && now - last < SILENT_SECONDS { State::Running } else { State::Stopped }
    }
}

/// Unix time.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn modified(path: &Path) -> Option<f64> {
    let time = fs::metadata(path).ok()?.modified().ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
}

/// A small text file; `None` if it does not exist or is not small.
pub(crate) fn text(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    if file.metadata().ok()?.len() > MAX_BYTES {
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A small JSON file; null if there is none.
pub(crate) fn json(path: &Path) -> Value {
    text(path).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn info(run: Value, status: Value) -> Info {
        Info { run, status, config: "iterations = 3".parse().unwrap(), ..Info::default() }
    }

    #[test]
    fn states_by_what_the_files_say() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut metrics = Metrics::new(&path);
        let state = |info: &Info, metrics: &Metrics| info.state(metrics, 1000.0);
        let of = |ending: &str| info(json!({"ending": ending}), Value::Null);
        assert_eq!(state(&of("finished"), &metrics), State::Finished);
        assert_eq!(state(&of("stopped"), &metrics), State::Stopped);
        assert_eq!(state(&of("failed: no memory"), &metrics), State::Failed);
        let live = |time: f64| info(json!({"ending": null}), json!({"time": time, "phase": "collect"}));
        assert_eq!(state(&live(990.0), &metrics), State::Running);
        assert_eq!(state(&live(10.0), &metrics), State::Stopped, "killed without a word");
        let ended = info(json!({}), json!({"time": 999.0, "phase": "ended"}));
        assert_eq!(state(&ended, &metrics), State::Stopped);
        // of an older version: neither file
        let old = info(Value::Null, Value::Null);
        assert_eq!(state(&old, &metrics), State::Stopped);
        fs::write(&path, "{\"iteration\": 3}\n").unwrap();
        metrics.refresh().unwrap();
        assert_eq!(state(&old, &metrics), State::Finished);
    }
}
