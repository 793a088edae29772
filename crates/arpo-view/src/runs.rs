//! Runs in short: state, progress, best success, age. The lines of `arpo runs`.

use crate::ViewError;
use crate::library::found;
use crate::run::Run;
use crate::run::info::{State, now};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A run in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunLine {
    /// The name of its folder.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// Its state.
    pub state: State,
    /// How it ended, if it failed.
    pub ending: Option<String>,
    /// ARPO or GRPO.
    pub method: String,
    /// The seed.
    pub seed: Option<i64>,
    /// Iterations done.
    pub iteration: Option<f64>,
    /// Iterations planned.
    pub iterations: Option<f64>,
    /// What success is measured on: the set that selects the best model, or the episodes that were collected.
    pub measure: String,
    /// The best success.
    pub best: Option<f64>,
    /// The last one.
    pub last: Option<f64>,
    /// Unix time of its start.
    pub started: Option<f64>,
    /// Unix time of its last change.
    pub changed: f64,
    /// Seconds since then.
    pub age: f64,
}

/// The metric that stands for a run's success: of the set that selects its best model, else of any other evaluated set, else of the
/// episodes collected.
pub fn success_metric(run: &Run) -> Option<&str> {
    let is_set = |name: &&String| {
        let set = name.strip_prefix("evaluation/");
        set.is_some_and(|set| !set.contains('/') && set != "lost")
    };
    let names = run.metrics.names();
    let named = |wanted: &str| names.iter().find(|name| *name == wanted);
    let unseen = named("evaluation/unseen").filter(|_| run.info.selects_by_unseen());
    let others = || names.iter().find(is_set).or_else(|| named("reward/score"));
    unseen.or_else(|| named("evaluation/training")).or_else(others).map(String::as_str)
}

/// A run in short.
pub fn line(run: &Run) -> RunLine {
    let metrics = &run.metrics;
    let metric = success_metric(run);
    let results = || {
        let scores: Vec<f64> = run.index().rows.iter().map(|row| row.score).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    };
    let (best, last) = match metric {
        Some(name) => (metrics.largest(name), metrics.last(name)),
        None => (results(), results()),
    };
    let path = run.path().canonicalize().unwrap_or_else(|_| run.path().to_path_buf());
    let changed = run.info.changed;
    RunLine {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        state: run.state(),
        ending: run.info.run["ending"]
            .as_str()
            .filter(|ending| ending.starts_with("failed"))
            .map(str::to_owned),
        method: run.info.method(),
        seed: run.info.seed(),
        iteration: metrics.last_iteration(),
        iterations: run.info.iterations(),
        measure: metric.unwrap_or("episodes").trim_start_matches("evaluation/").to_owned(),
        best,
        last,
        started: run.info.started(metrics),
        changed,
        age: if changed > 0.0 { (now() - changed).max(0.0) } else { 0.0 },
        path,
    }
}

/// The runs of a folder, the newest first. A run that cannot be read is left out, and named.
pub fn list(folder: &Path) -> Result<(Vec<RunLine>, Vec<ViewError>), ViewError> {
    if !folder.is_dir() {
        return Err(ViewError::file(folder, "no such folder; expected a run folder or a folder of runs"));
    }
    let (mut lines, mut problems) = (vec![], vec![]);
    for path in found(folder) {
        match Run::open(&path) {
            Ok(run) => lines.push(line(&run)),
            Err(error) => problems.push(error),
        }
    }
    lines.sort_by(|a, b| b.changed.total_cmp(&a.changed));
    Ok((lines, problems))
}

/// A duration in words: `3 d`, `5 h`, `12 min`, `8 s`.
pub fn age_text(seconds: f64) -> String {
    let (days, hours, minutes) = (seconds / 86_400.0, seconds / 3600.0, seconds / 60.0);
    match () {
        () if days >= 2.0 => format!("{days:.0} d"),
        () if hours >= 2.0 => format!("{hours:.0} h"),
        () if minutes >= 2.0 => format!("{minutes:.0} min"),
        () => format!("{seconds:.0} s"),
    }
}

/// The lines as a table for people.
pub fn table(lines: &[RunLine]) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.2}"));
    let mut cells = vec![
        ["run", "state", "method", "seed", "iterations", "best", "last", "on", "changed"].map(str::to_owned),
    ];
    for line in lines {
        let done = line.iteration.map_or_else(|| "-".into(), |done| format!("{done:.0}"));
        let of = line.iterations.map_or_else(String::new, |of| format!("/{of:.0}"));
        cells.push([
            line.name.clone(),
            line.state.name().to_owned(),
            line.method.split(' ').next().unwrap_or("").to_owned(),
            line.seed.map_or_else(|| "-".into(), |seed| seed.to_string()),
            format!("{done}{of}"),
            number(line.best),
            number(line.last),
            line.measure.clone(),
            format!("{} ago", age_text(line.age)),
        ]);
    }
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..9).map(width).collect();
    let mut text = String::new();
    for row in &cells {
        let padded: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}
