//! The end of a run: a table of success rates, and the paths of what was written.

use super::lines::{format_duration, with_interval};
use super::paint::{Paint, Style};
use arpo_core::statistics::Success;
use arpo_core::task::TaskId;
use arpo_train::run::events::RunEnded;

/// Width of a column.
const COLUMN: usize = 14;

/// A column: its header, and the success by set of tasks.
type Column<'a> = (String, &'a [(String, Success)]);

/// The lines printed at the end of a run.
pub(super) fn ended(ended: &RunEnded, paint: Paint) -> Vec<String> {
    let RunEnded { iterations, of, seconds, interrupted, episodes, environment_errors, .. } = ended;
    let mut lines = success_table(ended, paint);
    let stopped = if *interrupted { ", stopped on request" } else { "" };
    lines.push(format!("{iterations} of {of} iterations in {}{stopped}", format_duration(*seconds)));
    lines.push(format!("{episodes} episodes, {environment_errors} ended by environment errors"));
    if !ended.unplayable.is_empty() {
        let names: Vec<&str> = ended.unplayable.iter().map(TaskId::as_str).collect();
        lines.push(format!("{} tasks could not be played: {}", names.len(), names.join(", ")));
    }
    let longest = ended.written.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
    for (what, path) in &ended.written {
        lines.push(format!("{}  {}", paint.style(Style::Dim, &format!("{what:longest$}")), path.display()));
    }
    lines
}

/// Success by set of tasks: first, last and best evaluation.
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
    let mut lines = vec![paint.style(Style::Bold, &format!("{title:first$}{}", head.collect::<String>()))];
    for name in names {
        let cell = |(index, (_, suites)): (usize, &Column)| {
            let found = suites.iter().find(|(suite, _)| suite == name);
            let text = found.map_or_else(|| "-".to_owned(), |(_, success)| with_interval(*success));
            let text = format!("{text:>COLUMN$}");
            let is_best = index + 1 == columns.len() && ended.best.is_some();
            format!("  {}", paint.style(if is_best { Style::Good } else { Style::Plain }, &text))
        };
        let cells: String = columns.iter().enumerate().map(cell).collect();
        lines.push(format!("{name:first$}{cells}"));
    }
    lines
}
