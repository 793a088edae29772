//! The files that tasks take from the internet, fetched ahead of a run: those of the set-up and those that evaluators
//! compare with.

use crate::download::Cache;
use crate::error::DownloadError;
use crate::task::suite::SuiteTask;
use crate::task::{Check, Step, TaskFile};
use serde::Serialize;
use serde_json::Value;
use std::time::{Duration, Instant};

/// A file of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededFile {
    /// Where it comes from.
    pub url: String,
    /// What the task calls it.
    pub name: String,
    /// Whether the evaluator needs it, and not the set-up.
    pub is_gold: bool,
}

/// A file that could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingFile {
    /// The task, as `domain/id`.
    pub task: String,
    /// Where the file should come from.
    pub url: String,
    /// What happened.
    pub problem: String,
}

/// The files that a task downloads, in the order in which it needs them.
pub fn needed(task: &TaskFile) -> Vec<NeededFile> {
    let steps = task.config.iter().chain(&task.evaluator.postconfig);
    let of_setup = steps.flat_map(|step| match step.kind.as_str() {
        "download" => downloads(step),
        "googledrive" => uploads(step),
        _ => Vec::new(),
    });
    of_setup.chain(task.evaluator.checks.iter().flat_map(golds)).collect()
}

fn downloads(step: &Step) -> Vec<NeededFile> {
    let files = step.parameters.get("files").and_then(Value::as_array).into_iter().flatten();
    let file = |file: &Value| {
        let (url, path) = (file["url"].as_str()?, file["path"].as_str()?);
        Some(NeededFile { url: url.to_owned(), name: path.to_owned(), is_gold: false })
    };
    files.filter_map(file).collect()
}

/// The files that a step puts into a Google Drive.
fn uploads(step: &Step) -> Vec<NeededFile> {
    let arguments = step.parameters.get("args").and_then(Value::as_array).into_iter().flatten();
    let file = |upload: &Value| {
        let name = match &upload["path"] {
            Value::Array(parts) => parts.last()?.as_str()?,
            name => name.as_str()?,
        };
        Some(NeededFile { url: upload["url"].as_str()?.to_owned(), name: name.to_owned(), is_gold: false })
    };
    arguments.filter_map(file).collect()
}

fn golds(check: &Check) -> Vec<NeededFile> {
    let getters = check.result.iter().chain(&check.expected).filter(|getter| getter.kind == "cloud_file");
    let each = |value: Option<&Value>| -> Vec<String> {
        match value {
            Some(Value::String(text)) => vec![text.clone()],
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    };
    let files = |fields: &serde_json::Map<String, Value>| {
        let (urls, names) = (each(fields.get("path")), each(fields.get("dest")));
        urls.into_iter().zip(names).map(|(url, name)| NeededFile { url, name, is_gold: true })
    };
    getters.flat_map(|getter| files(&getter.fields).collect::<Vec<_>>()).collect()
}

/// Fetches one file, unless the cache has it; in any case it is checked.
pub fn obtain(
    cache: &Cache,
    task: &TaskFile,
    file: &NeededFile,
    deadline: Instant,
) -> Result<(), DownloadError> {
    let content = if file.is_gold {
        cache.obtain_for_evaluator(&task.id, &file.url, &file.name, deadline)
    } else {
        cache.obtain(&task.id, &file.url, &file.name, deadline)
    };
    content.map(drop)
}

/// Fetches the files that the evaluator of a task compares with: without them an episode cannot be judged.
pub fn obtain_golds(cache: &Cache, task: &TaskFile, deadline: Instant) -> Result<(), DownloadError> {
    needed(task).iter().filter(|file| file.is_gold).try_for_each(|file| obtain(cache, task, file, deadline))
}

/// Fetches the files of tasks one after the other, each within a limit, and says of every file whether it is there. What an
/// interrupted run has fetched is not fetched again. Returns what is missing.
pub fn obtain_all(
    cache: &Cache,
    tasks: &[SuiteTask],
    limit: Duration,
    mut progress: impl FnMut(usize, usize, &NeededFile, bool),
) -> Vec<MissingFile> {
    let all: Vec<(&SuiteTask, NeededFile)> =
        tasks.iter().flat_map(|task| needed(&task.task).into_iter().map(move |file| (task, file))).collect();
    let mut missing = Vec::new();
    for (number, (task, file)) in all.iter().enumerate() {
        let obtained = obtain(cache, &task.task, file, Instant::now() + limit);
        progress(number + 1, all.len(), file, obtained.is_ok());
        if let Err(error) = obtained {
            missing.push(MissingFile {
                task: task.name(),
                url: file.url.clone(),
                problem: error.to_string(),
            });
        }
    }
    missing
}
