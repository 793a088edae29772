//! The evaluations of a run, task by task: `evaluations/000020.json`.

use super::info::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The mean score of a task in an evaluation; `None` if it was not played.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskResult {
    /// The task.
    pub task: String,
    /// Its application.
    pub application: String,
    /// Rollouts.
    pub rollouts: usize,
    /// Their mean score.
    pub mean: Option<f64>,
}

/// The tasks of an evaluation by set.
pub type Sets = BTreeMap<String, Vec<TaskResult>>;

/// The evaluations read so far, by iteration.
#[derive(Debug, Clone)]
pub struct Evaluations {
    folder: PathBuf,
    modified: BTreeMap<u64, SystemTime>,
    /// By iteration and set.
    pub by_iteration: BTreeMap<u64, Sets>,
}

impl Evaluations {
    /// Of a folder that need not exist.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), modified: BTreeMap::new(), by_iteration: BTreeMap::new() }
    }

    /// Reads files that are new or have changed, and forgets those that are gone.
    pub fn refresh(&mut self) {
        let mut there = BTreeMap::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let iteration = name.strip_suffix(".json").and_then(|stem| stem.parse::<u64>().ok());
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            if let (Some(iteration), Ok(modified)) = (iteration, modified) {
                there.insert(iteration, (entry.path(), modified));
            }
        }
        self.by_iteration.retain(|iteration, _| there.contains_key(iteration));
        for (iteration, (path, modified)) in there {
            if self.modified.insert(iteration, modified) != Some(modified) {
                self.by_iteration.insert(iteration, read(&path));
            }
        }
    }
}

fn read(path: &Path) -> Sets {
    let file = json(path);
    let mut sets = Sets::new();
    for set in file["sets"].as_array().into_iter().flatten() {
        let Some(name) = set["name"].as_str() else { continue };
        let results = sets.entry(name.to_owned()).or_default();
        for task in set["tasks"].as_array().into_iter().flatten() {
            let scores: Vec<f64> = task["scores"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(serde_json::Value::as_f64)
                .collect();
            let Some(name) = task["task"].as_str() else { continue };
            results.push(TaskResult {
                task: name.to_owned(),
                application: task["application"].as_str().unwrap_or("").to_owned(),
                rollouts: scores.len(),
                mean: (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64),
            });
        }
    }
    sets
}
