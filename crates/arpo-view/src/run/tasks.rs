//! The matrix of tasks by iteration: mean scores in training, or in the evaluations of a set.

use super::Run;
use super::index::{Origin, is_meant};
use serde::Serialize;
use std::collections::BTreeMap;

/// The name of the matrix of training.
pub const TRAINING: &str = "collected";

/// Which matrix, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskQuery {
    /// [`TRAINING`] or the name of an evaluated set.
    pub source: Option<String>,
    /// Columns at most; iterations share a column if there are more.
    pub columns: usize,
    /// Rows at most.
    pub limit: usize,
    /// Part of a task's or application's name.
    pub search: String,
    /// The order.
    pub sort: TaskSort,
}

/// The order of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskSort {
    /// By name.
    #[default]
    Task,
    /// The hardest first.
    Difficulty,
    /// The largest gain first.
    Gain,
    /// By application, then by name.
    Application,
}

/// A column of the matrix: iterations from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Column {
    /// The first.
    pub from: u64,
    /// The last.
    pub to: u64,
}

/// A row of the matrix.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskRow {
    /// The task.
    pub task: String,
    /// Its application.
    pub application: String,
    /// What the user asks for.
    pub instruction: Option<String>,
    /// Mean score over everything.
    pub mean: f64,
    /// Mean score in its first column.
    pub first: f64,
    /// Mean score in its last column.
    pub last: f64,
    /// Mean scores by column; `None` where it was not played.
    pub cells: Vec<Option<f64>>,
    /// Kept episodes.
    pub episodes: usize,
}

/// The matrix.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskMatrix {
    /// What can be shown.
    pub sources: Vec<String>,
    /// What is shown.
    pub source: String,
    /// Iterations.
    pub columns: Vec<Column>,
    /// Tasks.
    pub rows: Vec<TaskRow>,
    /// Tasks that fit the search.
    pub total: usize,
}

/// A score of a task in an iteration.
type Cell = (u64, f64);

/// The matrix of a run.
pub fn matrix(run: &Run, query: &TaskQuery) -> TaskMatrix {
    let mut sources: Vec<String> = vec![];
    let trained = run.metrics.tasks().iter().any(|tasks| !tasks.is_empty());
    if trained || !run.index().rows.is_empty() {
        sources.push(TRAINING.into());
    }
    for set in run.evaluations.by_iteration.values().flat_map(BTreeMap::keys) {
        if !sources.contains(set) {
            sources.push(set.clone());
        }
    }
    let wanted = query.source.as_ref().filter(|source| sources.contains(source));
    let source = wanted.or(sources.first()).cloned().unwrap_or_else(|| TRAINING.into());
    let scores = if source == TRAINING { collected(run, trained) } else { evaluated(run, &source) };
    let columns = columns(&scores, query.columns.max(1), source != TRAINING);
    let mut rows = rows(run, scores, &columns);
    let words = query.search.to_lowercase();
    rows.retain(|row| is_meant(&words, &row.task, row.instruction.as_deref(), Some(&row.application[..])));
    sort(&mut rows, query.sort);
    let total = rows.len();
    rows.truncate(query.limit);
    TaskMatrix { sources, source, columns, rows, total }
}

/// Scores in training: from the metrics; of runs without them, from the episodes.
fn collected(run: &Run, trained: bool) -> BTreeMap<String, Vec<Cell>> {
    let mut scores: BTreeMap<String, Vec<Cell>> = BTreeMap::new();
    if trained {
        for (row, tasks) in run.metrics.tasks().iter().enumerate() {
            let iteration = run.metrics.iteration(row) as u64;
            for (task, &score) in tasks {
                scores.entry(task.clone()).or_default().push((iteration, score));
            }
        }
        return scores;
    }
    let index = run.index();
    for row in index.rows.iter().filter(|row| row.origin != Origin::Replayed) {
        let task = index.task_of(row).task.to_string();
        scores.entry(task).or_default().push((row.iteration, row.score));
    }
    scores
}

fn evaluated(run: &Run, set: &str) -> BTreeMap<String, Vec<Cell>> {
    let mut scores: BTreeMap<String, Vec<Cell>> = BTreeMap::new();
    for (&iteration, sets) in &run.evaluations.by_iteration {
        for result in sets.get(set).into_iter().flatten() {
            let cells = scores.entry(result.task.clone()).or_default();
            cells.extend(result.mean.map(|mean| (iteration, mean)));
        }
    }
    scores
}

/// Columns for the iterations that occur: one for each if there is room, else of equal width.
fn columns(scores: &BTreeMap<String, Vec<Cell>>, most: usize, exact: bool) -> Vec<Column> {
    let mut iterations: Vec<u64> = scores.values().flatten().map(|(iteration, _)| *iteration).collect();
    iterations.sort_unstable();
    iterations.dedup();
    let (Some(&first), Some(&last)) = (iterations.first(), iterations.last()) else { return vec![] };
    if iterations.len() <= most {
        return iterations.into_iter().map(|iteration| Column { from: iteration, to: iteration }).collect();
    }
    if exact {
        // evaluations are few and far between: neighbours share a column
        let share = iterations.len().div_ceil(most);
        return iterations
            .chunks(share)
            .map(|part| Column { from: part[0], to: part[part.len() - 1] })
            .collect();
    }
    let width = (last - first) / most as u64 + 1;
    (first..=last)
        .step_by(width as usize)
        .map(|from| Column { from, to: from.saturating_add(width - 1).min(last) })
        .collect()
}

fn rows(run: &Run, scores: BTreeMap<String, Vec<Cell>>, columns: &[Column]) -> Vec<TaskRow> {
    let index = run.index();
    let mut kept = vec![0; index.tasks.len()];
    for row in index.rows.iter().filter(|row| index.is_kept(row)) {
        kept[row.task as usize] += 1;
    }
    let mut applications: BTreeMap<&str, &str> = BTreeMap::new();
    for result in run.evaluations.by_iteration.values().flat_map(BTreeMap::values).flatten() {
        applications.insert(&result.task, &result.application);
    }
    let mut rows = vec![];
    for (task, cells) in scores {
        let mut sums = vec![(0.0, 0_u32); columns.len()];
        for (iteration, score) in &cells {
            let column = columns.partition_point(|column| column.to < *iteration);
            if let Some((sum, count)) = sums.get_mut(column) {
                *sum += score;
                *count += 1;
            }
        }
        let means: Vec<Option<f64>> =
            sums.iter().map(|(sum, count)| (*count > 0).then(|| sum / f64::from(*count))).collect();
        let played: Vec<f64> = means.iter().flatten().copied().collect();
        let known = index.known_task(&task);
        let names = known.map(|number| &index.tasks[number as usize]);
        let application = names.and_then(|names| names.application.as_deref());
        let application = application.or(applications.get(task.as_str()).copied());
        rows.push(TaskRow {
            application: application.map_or_else(|| application_of(&task), str::to_owned),
            instruction: names.and_then(|names| names.instruction.as_deref().map(str::to_owned)),
            mean: cells.iter().map(|(_, score)| score).sum::<f64>() / cells.len().max(1) as f64,
            first: played.first().copied().unwrap_or(0.0),
            last: played.last().copied().unwrap_or(0.0),
            cells: means,
            episodes: known.map_or(0, |number| kept[number as usize]),
            task,
        });
    }
    rows
}

/// The application in the name of a task of the embedded desktop: `pocket-settings-open-0`.
fn application_of(task: &str) -> String {
    let mut parts = task.split('-');
    match (parts.next(), parts.next()) {
        (Some("pocket" | "desktop"), Some(application)) => application.to_owned(),
        _ => String::new(),
    }
}

fn sort(rows: &mut [TaskRow], by: TaskSort) {
    match by {
        TaskSort::Task => rows.sort_by(|a, b| a.task.cmp(&b.task)),
        TaskSort::Difficulty => rows.sort_by(|a, b| a.mean.total_cmp(&b.mean).then(a.task.cmp(&b.task))),
        TaskSort::Gain => {
            let gain = |row: &TaskRow| row.last - row.first;
            rows.sort_by(|a, b| gain(b).total_cmp(&gain(a)).then(a.task.cmp(&b.task)));
        }
        TaskSort::Application => {
            rows.sort_by(|a, b| a.application.cmp(&b.application).then(a.task.cmp(&b.task)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_cover_all_iterations() {
        let scores = |iterations: &[u64]| -> BTreeMap<String, Vec<Cell>> {
            [("t".to_owned(), iterations.iter().map(|&iteration| (iteration, 1.0)).collect())].into()
        };
        assert_eq!(columns(&scores(&[]), 4, false), []);
        let few = columns(&scores(&[1, 5, 5]), 4, false);
        assert_eq!(few, [Column { from: 1, to: 1 }, Column { from: 5, to: 5 }]);
        let many: Vec<u64> = (1..=10).collect();
        let shared = columns(&scores(&many), 4, false);
        assert_eq!(shared.len(), 4);
        assert_eq!((shared[0], shared[3]), (Column { from: 1, to: 3 }, Column { from: 10, to: 10 }));
        let exact = columns(&scores(&[0, 20, 40, 60, 80]), 3, true);
        assert_eq!(exact.last(), Some(&Column { from: 80, to: 80 }));
        assert_eq!(exact.len(), 3);
    }
}
