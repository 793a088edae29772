//! Scores saved task by task, so that an interrupted evaluation can be resumed.

use crate::Failure;
use arpo_core::task::{Task, TaskId};
use arpo_train::collect::CollectEvent;
use arpo_train::run::metrics::{self, MetricsLog};
use arpo_train::run::{RunError, RunFolder};
use arpo_train::trainer::evaluation::TaskScores;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The options of the evaluation besides the configuration; a resumed evaluation must have the same.
const ABOUT: &str = "evaluation.json";

/// The scores of a folder.
pub(super) struct ScoreLog {
    log: MetricsLog,
    /// Tasks that do not have all scores yet.
    open: BTreeMap<TaskId, TaskScores>,
    wanted: usize,
    /// The first write error.
    failed: Option<RunError>,
}

impl ScoreLog {
    /// Opens the log of a folder and returns the scores in it.
    pub(super) fn open(
        folder: &RunFolder,
        about: &Value,
        tasks: &[Arc<Task>],
        wanted: usize,
    ) -> Result<(Self, Vec<TaskScores>), Failure> {
        let file = folder.path().join(ABOUT);
        match std::fs::read_to_string(&file) {
            Ok(text) if serde_json::from_str::<Value>(&text).ok().as_ref() != Some(about) => {
                return Err(Failure::usage(format!(
                    "--resume: {} contains an evaluation with {}: expected the same, not {about}",
                    folder.path().display(),
                    text.trim()
                )));
            }
            Ok(_) => {}
            Err(_) => {
                let text = format!("{about}\n");
                folder.write_file(ABOUT, text.as_bytes()).map_err(Failure::failed)?;
            }
        }
        let path = folder.metrics_file();
        let (mut done, mut position) = (vec![], 0);
        if path.exists() {
            for line in metrics::read(&path).map_err(Failure::failed)? {
                let scores: TaskScores = serde_json::from_value(line)
                    .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
                done.push(scores);
            }
            position = metrics::whole_lines(&path).map_err(Failure::failed)?;
        }
        let log = folder.metrics_at(position).map_err(Failure::failed)?;
        let is_done = |task: &&Arc<Task>| done.iter().any(|scores| scores.task == task.id);
        let open = tasks
            .iter()
            .filter(|task| !is_done(task))
            .map(|task| (task.id.clone(), TaskScores::none(task)))
            .collect();
        Ok((Self { log, open, wanted, failed: None }, done))
    }

    /// Handles an event.
    pub(super) fn event(&mut self, event: &CollectEvent) {
        let CollectEvent::Ended { task, score: Some(score), .. } = event else { return };
        let Some(scores) = self.open.get_mut(task) else { return };
        scores.scores.push(*score);
        if scores.scores.len() < self.wanted {
            return;
        }
        let written = self.log.append(scores);
        self.open.remove(task);
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }

    /// Returns the first write error.
    pub(super) fn close(self) -> Result<(), Failure> {
        self.failed.map_or(Ok(()), |error| Err(Failure::failed(error)))
    }
}
