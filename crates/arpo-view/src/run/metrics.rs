//! The metrics of a run as columns, and the mean score of each task by iteration.

use super::info::now;
use arpo_lines::{Growth, LineFile};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

/// The key of an iteration's number.
pub const ITERATION: &str = "iteration";
/// Unix time at the end of an iteration.
pub const WALL: &str = "time/wall";

/// The metrics read so far.
#[derive(Debug, Clone)]
pub struct Metrics {
    file: LineFile,
    rows: usize,
    /// When the file was opened, or last began anew, in microseconds: a page that another process served must not take its rows
    /// for those of this one.
    generation: u64,
    names: Vec<String>,
    by_name: HashMap<String, usize>,
    /// One for each name; NaN where a line has no number.
    columns: Vec<Vec<f64>>,
    /// For each line, the mean score of each task that was collected.
    tasks: Vec<BTreeMap<String, f64>>,
}

impl Metrics {
    /// The metrics in a file that need not exist yet.
    pub fn new(path: &Path) -> Self {
        Self {
            file: LineFile::new(path),
            rows: 0,
            generation: (now() * 1e6) as u64,
            names: vec![],
            by_name: HashMap::new(),
            columns: vec![],
            tasks: vec![],
        }
    }

    /// Reads what is new.
    pub fn refresh(&mut self) -> io::Result<Growth> {
        let mut file = self.file.clone();
        let (mut restarted, mut new) = (false, Vec::new());
        let growth = file.follow(
            || restarted = true,
            |_, line| match serde_json::from_slice::<Map<String, Value>>(line) {
                Ok(line) => {
                    new.push(line);
                    true
                }
                Err(_) => false,
            },
        )?;
        if restarted {
            let next = self.generation + 1;
            *self = Self::new(Path::new(""));
            self.generation = self.generation.max(next);
        }
        self.file = file;
        for line in new {
            self.push(&line);
        }
        Ok(growth)
    }

    fn push(&mut self, line: &Map<String, Value>) {
        let mut tasks = BTreeMap::new();
        for (name, value) in line {
            if let (true, Value::Object(scores)) = (name == "tasks", value) {
                let scored = scores.iter().filter_map(|(task, score)| Some((task.clone(), score.as_f64()?)));
                tasks.extend(scored);
            }
            let Some(value) = value.as_f64() else { continue };
            let rows = self.rows;
            let index = *self.by_name.entry(name.clone()).or_insert_with(|| {
                self.names.push(name.clone());
                self.columns.push(vec![f64::NAN; rows]);
                self.names.len() - 1
            });
            self.columns[index].push(value);
        }
        self.rows += 1;
        for column in &mut self.columns {
            column.resize(self.rows, f64::NAN);
        }
        self.tasks.push(tasks);
    }

    /// Lines read.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Changes when what was read before is no longer true; never the same in two processes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Lines that could not be read.
    pub fn bad(&self) -> u64 {
        self.file.bad()
    }

    /// Bytes of a line that is not complete.
    pub fn unfinished_bytes(&self) -> u64 {
        self.file.unfinished_bytes()
    }

    /// The names of all metrics, in the order they appeared.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The values of a metric, one for each line; NaN where a line has none.
    pub fn column(&self, name: &str) -> Option<&[f64]> {
        self.by_name.get(name).map(|&index| self.columns[index].as_slice())
    }

    /// The iteration of a line; its number, if it does not say.
    pub fn iteration(&self, row: usize) -> f64 {
        let said = self.column(ITERATION).and_then(|column| column.get(row)).copied();
        said.filter(|value| !value.is_nan()).unwrap_or(row as f64 + 1.0)
    }

    /// The last iteration.
    pub fn last_iteration(&self) -> Option<f64> {
        self.rows.checked_sub(1).map(|row| self.iteration(row))
    }

    /// The mean score of each collected task, line by line.
    pub fn tasks(&self) -> &[BTreeMap<String, f64>] {
        &self.tasks
    }

    /// The largest value of a metric.
    pub fn largest(&self, name: &str) -> Option<f64> {
        self.column(name)?.iter().copied().filter(|value| !value.is_nan()).reduce(f64::max)
    }

    /// The last value of a metric.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.column(name)?.iter().copied().rfind(|value| !value.is_nan())
    }
}
