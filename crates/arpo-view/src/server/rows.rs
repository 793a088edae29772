//! Rows of the index, filtered, ordered and by pages.

use super::query::Query;
use crate::ViewError;
use crate::run::Run;
use crate::run::index::{Ending, Index, Origin, Row, TaskNames, is_meant};
use serde::Serialize;
use serde_json::{Value, json};

/// Rows of a page at most.
const MAX_LIMIT: usize = 500;

/// A row as the pages get it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ShownRow<'a> {
    id: &'a str,
    file: &'a str,
    iteration: u64,
    origin: Origin,
    set: Option<&'a str>,
    task: &'a str,
    instruction: Option<&'a str>,
    application: Option<&'a str>,
    group: Option<u64>,
    version: u64,
    turns: u32,
    tokens: u64,
    score: f64,
    solved: bool,
    reward: Option<f64>,
    advantage: Option<f64>,
    outcome: Ending,
    reason: Option<&'a str>,
    time: f64,
    first_screen: Option<&'a str>,
    kept: bool,
}

pub(crate) fn shown<'a>(run: &'a Run, row: &'a Row) -> ShownRow<'a> {
    let index = run.index();
    let names = index.task_of(row);
    ShownRow {
        id: &row.id,
        file: &index.file_of(row).name,
        iteration: row.iteration,
        origin: row.origin,
        set: row.set.as_deref(),
        task: &names.task,
        instruction: names.instruction.as_deref(),
        application: names.application.as_deref(),
        group: row.group,
        version: row.version,
        turns: row.turns,
        tokens: row.tokens,
        score: row.score,
        solved: row.score > run.info.success_above(),
        reward: row.reward,
        advantage: row.advantage,
        outcome: row.outcome,
        reason: row.reason.as_deref(),
        time: row.time,
        first_screen: row.first_screen.as_deref(),
        kept: index.is_kept(row),
    }
}

/// Which rows.
#[derive(Debug, Clone, PartialEq)]
struct Filter {
    task: Option<u32>,
    search: Option<String>,
    outcome: Option<Ending>,
    origin: Option<Origin>,
    from: u64,
    to: u64,
    solved: Option<bool>,
    success_above: f64,
    /// Only episodes that can still be watched.
    kept: bool,
}

impl Filter {
    /// `None` if no row can fit: an unknown task.
    fn of(query: &Query, run: &Run) -> Result<Option<Self>, ViewError> {
        let task = match query.text("task") {
            None => None,
            Some(name) => match run.index().known_task(name) {
                None => return Ok(None),
                known => known,
            },
        };
        let solved = match query.text("score") {
            None => None,
            Some("solved") => Some(true),
            Some("failed") => Some(false),
            Some(other) => return Err(unknown("score", other, "solved or failed")),
        };
        Ok(Some(Self {
            task,
            search: query.text("search").map(str::to_lowercase),
            outcome: choice(query, "outcome", "finished, step_limit, unparsable or environment_error")?,
            origin: choice(query, "origin", "fresh, replayed or evaluation")?,
            from: query.number("from")?.unwrap_or(0),
            to: query.number("to")?.unwrap_or(u64::MAX),
            solved,
            success_above: run.info.success_above(),
            kept: query.text("kept").is_some(),
        }))
    }

    fn fits(&self, index: &Index, row: &Row, tasks: &[bool]) -> bool {
        self.task.is_none_or(|task| row.task == task)
            && (self.from..=self.to).contains(&row.iteration)
            && self.outcome.is_none_or(|outcome| row.outcome == outcome)
            && self.origin.is_none_or(|origin| row.origin == origin)
            && self.solved.is_none_or(|solved| (row.score > self.success_above) == solved)
            && (!self.kept || index.is_kept(row))
            && tasks.get(row.task as usize).is_none_or(|&fits| fits)
    }
}

fn choice<T: serde::de::DeserializeOwned>(
    query: &Query,
    name: &str,
    expected: &str,
) -> Result<Option<T>, ViewError> {
    let parse =
        |text: &str| serde_json::from_value(Value::from(text)).map_err(|_| unknown(name, text, expected));
    query.text(name).map(parse).transpose()
}

fn unknown(name: &str, given: &str, expected: &str) -> ViewError {
    let given: String = given.chars().take(40).collect();
    ViewError::Request(format!("{name}={given:?}: expected {expected}"))
}

/// A page of rows, the newest first unless the query says otherwise.
pub(crate) fn page(run: &Run, query: &Query) -> Result<Value, ViewError> {
    let index = run.index();
    let offset: usize = query.number("offset")?.unwrap_or(0);
    let limit = query.number("limit")?.unwrap_or(100).min(MAX_LIMIT);
    let Some(filter) = Filter::of(query, run)? else {
        return Ok(json!({"total": 0, "all": index.rows.len(), "offset": 0, "rows": []}));
    };
    // names are compared once for each task, not for each row
    let tasks: Vec<bool> = match &filter.search {
        None => vec![],
        Some(words) => {
            let fits = |TaskNames { task, instruction, application }: &TaskNames| {
                is_meant(words, task, instruction.as_deref(), application.as_deref())
            };
            index.tasks.iter().map(fits).collect()
        }
    };
    let fitting = index.rows.iter().rev().filter(|row| filter.fits(index, row, &tasks));
    let mut rows: Vec<&Row> = fitting.collect();
    match query.text("sort") {
        None | Some("newest") => {}
        Some("oldest") => rows.reverse(),
        Some("score") => rows.sort_by(|a, b| b.score.total_cmp(&a.score)),
        Some("turns") => rows.sort_by_key(|row| std::cmp::Reverse(row.turns)),
        Some("advantage") => {
            let size = |row: &Row| row.advantage.map_or(-1.0, f64::abs);
            rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
        }
        Some(other) => return Err(unknown("sort", other, "newest, oldest, score, turns or advantage")),
    }
    let shown: Vec<ShownRow> = rows.iter().skip(offset).take(limit).map(|row| shown(run, row)).collect();
    Ok(json!({"total": rows.len(), "all": index.rows.len(), "offset": offset, "rows": shown}))
}

/// The rows of the group that an episode belongs to: those of the same batch and task.
pub(crate) fn group<'a>(run: &'a Run, member: &Row) -> Vec<ShownRow<'a>> {
    let same = |row: &&Row| {
        row.file == member.file
            && row.task == member.task
            && (row.group == member.group || row.group.is_none())
    };
    // within a file the last row of an episode counts: an interrupted iteration is written again
    let mut rows: Vec<&Row> = Vec::new();
    for row in run.index().rows.iter().filter(same) {
        rows.retain(|known| known.id != row.id);
        rows.push(row);
    }
    rows.into_iter().map(|row| shown(run, row)).collect()
}
