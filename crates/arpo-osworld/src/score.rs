//! One metric on given values, to debug an evaluator.

use crate::error::MetricError;
use crate::metrics::{self, Settings};
use crate::state::{Bytes, FileState, State};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// One line of a file of cases. A file is `{"file": "relative/path"}`, several are a list of such.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name.
    pub id: String,
    /// The metric.
    pub func: String,
    /// The result to score.
    #[serde(default)]
    pub result: Value,
    /// What it should be; absent or null, the metric is called without.
    #[serde(default)]
    pub expected: Value,
    /// Further arguments.
    #[serde(default)]
    pub options: Map<String, Value>,
}

/// A case's score. Where OSWorld's own function raises, the score is 0 and the error says so.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scored {
    /// The case.
    pub id: String,
    /// The metric.
    pub func: String,
    /// The score.
    pub score: f64,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The score of a metric on values of the command line: each a path or a JSON literal.
pub fn score_values(
    func: &str,
    result: &str,
    expected: Option<&str>,
    options: &str,
    settings: &Settings<'_>,
) -> Result<f64, MetricError> {
    let options: Map<String, Value> = serde_json::from_str(options)
        .map_err(|error| MetricError::raises(format!("options are not a JSON object: {error}")))?;
    let expected = expected.map(state_of_argument);
    metrics::score(func, &state_of_argument(result), expected.as_ref(), &options, settings)
}

/// The path of an existing file; else JSON; else a path without a file.
pub fn state_of_argument(value: &str) -> State {
    let path = Path::new(value);
    if path.is_file() {
        return file_state(path);
    }
    serde_json::from_str::<Value>(value).map_or_else(|_| State::Absent(value.to_owned()), State::from)
}

/// The cases of a file's text.
pub fn parse_cases(text: &str) -> Result<Vec<Case>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a list of cases: {error}"))
}

/// The score of a case, its files relative to a folder.
pub fn score_case(case: &Case, folder: &Path, settings: &Settings<'_>) -> Scored {
    let result = state_of_value(&case.result, folder);
    let expected = (!case.expected.is_null()).then(|| state_of_value(&case.expected, folder));
    let scored = metrics::score(&case.func, &result, expected.as_ref(), &case.options, settings);
    let (score, error) = match scored {
        Ok(score) => (score, None),
        Err(error) => (0.0, Some(error.to_string())),
    };
    Scored { id: case.id.clone(), func: case.func.clone(), score, error }
}

fn state_of_value(value: &Value, folder: &Path) -> State {
    if let Some(path) = file_of(value) {
        return file_state(&folder.join(path));
    }
    match value {
        Value::Array(items) if !items.is_empty() && items.iter().any(|item| file_of(item).is_some()) => {
            State::Many(items.iter().map(|item| state_of_value(item, folder)).collect())
        }
        other => State::from(other.clone()),
    }
}

fn file_of(value: &Value) -> Option<&str> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object.get("file")?.as_str()
}

/// A file with the tables of its sheets, `<name>-<sheet>.csv`, if they are beside it.
fn file_state(path: &Path) -> State {
    let Ok(bytes) = fs::read(path) else { return State::Absent(path.display().to_string()) };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut file = FileState::new(name, bytes);
    let start = format!("{}-", file.stem());
    let beside = path.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let is_table = |name: &str| name.strip_suffix(".csv").is_some_and(|name| name.starts_with(&start));
    let siblings: BTreeMap<String, Bytes> = beside
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .filter(|(name, _)| is_table(name))
        .filter_map(|(name, path)| Some((name, Bytes::from(fs::read(path).ok()?))))
        .collect();
    file.siblings = Arc::new(siblings);
    State::File(file)
}
