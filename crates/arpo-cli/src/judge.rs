//! `arpo osworld judge`: the score of a task on a desktop that is already running, as it is now. Whoever played the task there may
//! be another program.

use crate::Failure;
use crate::config::Layers;
use crate::dry_run::{Outcome, on_a_desktop};
use arpo_core::action::Action;
use arpo_core::config::DesktopChoice;
use arpo_osworld::task::suite;
use arpo_suite::osworld::TaskText;
use clap::Args;
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::path::PathBuf;

/// The arguments of `arpo osworld judge`.
#[derive(Args)]
pub(crate) struct JudgeArguments {
    /// The task file
    #[arg(value_name = "TASK.json")]
    task: PathBuf,
    /// The desktop: http://host:port, or http://host:server:chromium:vnc:vlc
    #[arg(long, value_name = "URL")]
    desktop: String,
    /// The agent's last action declared the task infeasible
    #[arg(long)]
    gave_up: bool,
    #[command(flatten)]
    layers: Layers,
}

pub(crate) fn run(arguments: &JudgeArguments, out: &mut impl Write) -> Result<(), Failure> {
    let file = suite::read_file(&arguments.task).map_err(Failure::usage)?;
    let mut config = arguments.layers.resolve_after("osworld", None)?;
    config.osworld.desktop = DesktopChoice::Running;
    config.osworld.running = vec![arguments.desktop.clone()];
    config.osworld.settle_seconds = 0.0;
    let text = TaskText { domain: file.domain, text: without_setup(&file.text)? };
    let actions = if arguments.gave_up { vec![Action::Infeasible {}] } else { vec![] };
    let Outcome { notes, score } = on_a_desktop(&config, text, actions)?;
    for note in &notes {
        writeln!(io::stderr(), "note: {note}")?;
    }
    writeln!(out, "{score}")?;
    Ok(())
}

/// The same task without the steps that prepare a desktop; those of its evaluator stay.
fn without_setup(text: &str) -> Result<String, Failure> {
    let mut task: Map<String, Value> = serde_json::from_str(text).map_err(Failure::usage)?;
    task.remove("config");
    Ok(Value::Object(task).to_string())
}
