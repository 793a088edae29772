//! The evaluations of a run by task, in its folder: `evaluations/000020.json` for the one after 20 iterations, and all of
//! them side by side in `evaluations/table.txt`.

use super::TaskScores;
use crate::run::{RunError, RunFolder};
use arpo_core::statistics::Success;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "evaluations";

/// One evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationFile {
    /// Iterations before it.
    pub iteration: u64,
    /// By set of tasks.
    pub sets: Vec<EvaluatedSet>,
}

/// The result on a set of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluatedSet {
    /// Its name.
    pub name: String,
    /// Over all rollouts.
    pub success: Success,
    /// Task by task.
    pub tasks: Vec<TaskScores>,
}

/// Writes an evaluation, and the table of all so far.
pub(super) fn write(folder: &RunFolder, evaluation: &EvaluationFile) -> Result<(), RunError> {
    let text = serde_json::to_vec_pretty(evaluation)
        .map_err(|error| RunError::file(&folder.path().join(FOLDER), error.to_string()))?;
    let name = name(evaluation.iteration);
    folder.write_file(&format!("{FOLDER}/{name}"), &text)?;
    let all = read(folder.path())?;
    folder.write_file(&format!("{FOLDER}/table.txt"), table(&all).as_bytes())?;
    Ok(())
}

/// Removes evaluations after an iteration: a run that resumes there repeats them.
pub(in crate::trainer) fn remove_after(folder: &RunFolder, iteration: u64) -> Result<(), RunError> {
    for (of, path) in files(folder.path())? {
        if of > iteration {
            fs::remove_file(&path).map_err(RunError::io(&path, "removed"))?;
        }
    }
    Ok(())
}

/// The evaluations of a run folder, in their order.
pub fn read(run: &Path) -> Result<Vec<EvaluationFile>, RunError> {
    let parsed = |(_, path): (u64, PathBuf)| {
        let text = fs::read(&path).map_err(RunError::io(&path, "read"))?;
        serde_json::from_slice(&text)
            .map_err(|error| RunError::file(&path, format!("not an evaluation: {error}")))
    };
    files(run)?.into_iter().map(parsed).collect()
}

fn name(iteration: u64) -> String {
    format!("{iteration:06}.json")
}

fn files(run: &Path) -> Result<Vec<(u64, PathBuf)>, RunError> {
    let folder = run.join(FOLDER);
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(vec![]) };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(RunError::io(&folder, "read"))?.path();
        let iteration = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json")?.parse().ok());
        found.extend(iteration.map(|iteration| (iteration, path)));
    }
    found.sort();
    Ok(found)
}

/// A row for each task, a column for each evaluation; `-` if the task was not evaluated, `x` if it cannot be.
fn table(all: &[EvaluationFile]) -> String {
    let mut rows: BTreeMap<(usize, &str, &str), Vec<String>> = BTreeMap::new();
    let mut sets: Vec<&str> = vec![];
    for (column, evaluation) in all.iter().enumerate() {
        for set in &evaluation.sets {
            let known = sets.iter().position(|name| *name == set.name);
            let index = known.unwrap_or_else(|| {
                sets.push(&set.name);
                sets.len() - 1
            });
            for scores in &set.tasks {
                let row = rows.entry((index, &scores.application, scores.task.as_str())).or_default();
                row.resize(column, "-".into());
                row.push(match (scores.mean(), &scores.unplayable) {
                    (Some(mean), _) => format!("{mean:.2}"),
                    (None, Some(_)) => "x".into(),
                    (None, None) => "-".into(),
                });
            }
        }
    }
    let widest = rows.keys().map(|(_, application, task)| (application.len(), task.len()));
    let (first, second) = widest.fold((11, 4), |(a, b), (c, d)| (a.max(c), b.max(d)));
    let mut text = format!("{:8}  {:first$}  {:second$}", "set", "application", "task");
    for evaluation in all {
        let _ = write!(text, "  {:>5}", evaluation.iteration);
    }
    text.push('\n');
    for ((set, application, task), mut row) in rows {
        row.resize(all.len(), "-".into());
        let _ = write!(text, "{:8}  {application:first$}  {task:second$}", sets[set]);
        for cell in row {
            let _ = write!(text, "  {cell:>5}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::statistics::success;
    use arpo_core::task::TaskId;

    fn evaluation(iteration: u64, scores: &[f64], unplayable: bool) -> EvaluationFile {
        let task = |name: &str, scores: &[f64], unplayable: Option<String>| TaskScores {
            task: TaskId::new(name),
            application: "files".into(),
            scores: scores.to_vec(),
            unplayable,
        };
        let broken = unplayable.then(|| "its file is gone".to_owned());
        let tasks = vec![task("rename", scores, None), task("copy", &[], broken)];
        let sets = vec![EvaluatedSet { name: "training".into(), success: success(scores), tasks }];
        EvaluationFile { iteration, sets }
    }

    #[test]
    fn evaluations_are_columns() {
        let text = table(&[evaluation(0, &[0.0, 1.0], true), evaluation(20, &[1.0, 1.0], false)]);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["set", "application", "task", "0", "20"]);
        assert_eq!(rows[1], ["training", "files", "copy", "x", "-"]);
        assert_eq!(rows[2], ["training", "files", "rename", "0.50", "1.00"]);
    }
}
