//! `arpo env list`: tasks, a line each.

use super::chosen::{Chosen, Source};
use super::{one_of, write_json};
use crate::Failure;
use arpo_core::task::TaskId;
use arpo_env::tasks::Part;
use clap::Args;
use serde::Serialize;
use std::io::Write;

/// What `arpo env list` takes.
#[derive(Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    source: Source,
    /// Only tasks to train on, or only those held out to test on
    #[arg(long, value_parser = one_of(&Part::ALL, Part::key), conflicts_with = "tasks")]
    part: Option<Part>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A task as scripts read it.
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
    let chosen = arguments.source.all(arguments.part)?;
    if arguments.json {
        let lines: Vec<Line> = chosen.iter().map(line).collect();
        return write_json(&lines, out);
    }
    let width = |text: fn(&Chosen) -> &str| {
        chosen.iter().map(|chosen| text(chosen).chars().count()).max().unwrap_or_default()
    };
    let id_width = width(|chosen| chosen.task.id.as_str());
    let application_width = width(|chosen| &chosen.task.application);
    for Chosen { task, .. } in &chosen {
        let instruction = task.instruction.replace(char::is_control, " ");
        let (id, application) = (task.id.as_str(), &task.application);
        writeln!(out, "{id:id_width$}  {application:application_width$}  {instruction}")?;
    }
    Ok(())
}

fn line(chosen: &Chosen) -> Line<'_> {
    let task = &chosen.task;
    Line {
        id: &task.id,
        suite: chosen.listed.map(|(suite, _)| suite.key()),
        part: chosen.listed.map(|(_, part)| part.key()),
        application: &task.application,
        instruction: &task.instruction,
        infeasible: chosen.is_infeasible(),
    }
}
