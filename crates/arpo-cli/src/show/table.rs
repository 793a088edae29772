//! The end of a run: what was reached, in a table, and where it lies.

use super::lines::{in_words, with_interval};
use super::paint::{Ink, Paint};
use arpo_core::statistics::Success;
use arpo_core::task::TaskId;
use arpo_train::run::events::RunEnded;

/// The width of a column of numbers.
const COLUMN: usize = 14;

/// A head, and the success below it by set of tasks.
type Column<'a> = (String, &'a [(String, Success)]);

/// All lines.
pub(super) fn ended(ended: &RunEnded, paint: Paint) -> Vec<String> {
    let RunEnded { iterations, of, seconds, interrupted, episodes, environment_errors, .. } = ended;
    let mut lines = success_table(ended, paint);
    let stopped = if *interrupted { ", stopped on request" } else { "" };
    lines.push(format!("{iterations} of {of} iterations in {}{stopped}", in_words(*seconds)));
    lines.push(format!("{episodes} episodes, {environment_errors} ended by environment errors"));
    if !ended.unplayable.is_empty() {
        let names: Vec<&str> = ended.unplayable.iter().map(TaskId::as_str).collect();
        lines.push(format!("{} tasks could not be played: {}", names.len(), names.join(", ")));
    }
    let longest = ended.written.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
    for (what, path) in &ended.written {
        lines.push(format!("{}  {}", paint.ink(Ink::Dim, &format!("{what:longest$}")), path.display()));
    }
    lines
}

/// Success by set of tasks: at the beginning, at the end, at its best.
fn success_table(ended: &RunEnded, paint: Paint) -> Vec<String> {
    let mut columns: Vec<Column> = vec![];
    if !ended.first.is_empty() {
        columns.push(("first".into(), &ended.first));
    }
    if !ended.last.is_empty() {
        columns.push(("last".into(), &ended.last));
    }
    if let Some(best) = &ended.best {
        columns.push((format!("best, at {}", best.iteration), &best.suites));
    }
    let mut names: Vec<&str> = vec![];
    for (name, _) in columns.iter().flat_map(|(_, suites)| *suites) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return vec![];
    }
    let title = "success";
    let first = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(title.len());
    let head = columns.iter().map(|(head, _)| format!("  {head:>COLUMN$}"));
    let mut lines = vec![paint.ink(Ink::Bold, &format!("{title:first$}{}", head.collect::<String>()))];
    for name in names {
        let cell = |(place, (_, suites)): (usize, &Column)| {
            let found = suites.iter().find(|(suite, _)| suite == name);
            let text = found.map_or_else(|| "-".to_owned(), |(_, success)| with_interval(*success));
            let text = format!("{text:>COLUMN$}");
            let is_best = place + 1 == columns.len() && ended.best.is_some();
            format!("  {}", paint.ink(if is_best { Ink::Good } else { Ink::Plain }, &text))
        };
        let cells: String = columns.iter().enumerate().map(cell).collect();
        lines.push(format!("{name:first$}{cells}"));
    }
    lines
}
