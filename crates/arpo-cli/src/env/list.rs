//! `arpo env list`: lists tasks, one per line.

use super::tasks::{SelectedTask, Source};
use super::write_json;
use crate::Failure;
use crate::choices::one_of;
use arpo_core::task::TaskId;
use arpo_env::tasks::Split;
use clap::Args;
use serde::Serialize;
use std::io::Write;

/// The arguments of `arpo env list`.
#[derive(Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    source: Source,
    /// Only training tasks, or only held-out tasks
    #[arg(long, value_parser = one_of(&Split::ALL, Split::key), conflicts_with = "tasks")]
    part: Option<Split>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A task in the JSON output.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a TaskId,
    suite: Option<&'static str>,
    part: Option<&'static str>,
    application: &'a str,
    instruction: &'a str,
    infeasible: bool,
}

pub(crate) fn run(arguments: &ListArguments, out: &mut impl Write) -> Result<(), Failure> {
    let selected = arguments.source.all(arguments.part)?;
    if arguments.json {
        let lines: Vec<Line> = selected.iter().map(line).collect();
        return write_json(&lines, out);
    }
    let width = |text: fn(&SelectedTask) -> &str| {
        selected.iter().map(|selected| text(selected).chars().count()).max().unwrap_or_default()
    };
    let id_width = width(|selected| selected.task.id.as_str());
    let application_width = width(|selected| &selected.task.application);
    for SelectedTask { task, .. } in &selected {
        let instruction = task.instruction.replace(char::is_control, " ");
        let (id, application) = (task.id.as_str(), &task.application);
        writeln!(out, "{id:id_width$}  {application:application_width$}  {instruction}")?;
    }
    Ok(())
}

fn line(selected: &SelectedTask) -> Line<'_> {
    let task = &selected.task;
    Line {
        id: &task.id,
        suite: selected.listed.map(|(suite, _)| suite.key()),
        part: selected.listed.map(|(_, part)| part.key()),
        application: &task.application,
        instruction: &task.instruction,
        infeasible: selected.is_infeasible(),
    }
}
