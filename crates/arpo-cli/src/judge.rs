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

/// The same task without the steps that prepare a desktop; those of its evaluator stay. An error if the evaluator reads what
/// only the former would have stored.
fn without_setup(text: &str) -> Result<String, Failure> {
    let mut task: Map<String, Value> = serde_json::from_str(text).map_err(Failure::usage)?;
    task.remove("config");
    let evaluator = task.get("evaluator").unwrap_or(&Value::Null);
    let (mut read, mut stored) = (vec![], vec![]);
    cache_files(evaluator, &mut read);
    for step in evaluator["postconfig"].as_array().into_iter().flatten() {
        let output = |name: &str| step["parameters"][name].as_str();
        stored.extend(["stdout", "stderr"].into_iter().filter_map(output));
    }
    if let Some(missing) = read.iter().find(|name| !stored.contains(name)) {
        return Err(Failure::usage(format!(
            "the evaluator reads the cache_file {missing}, an output of the task's set-up, which is not run: expected a task whose \
             evaluator needs only the desktop"
        )));
    }
    Ok(Value::Object(task).to_string())
}

/// The outputs of steps that an evaluator reads.
fn cache_files<'a>(part: &'a Value, found: &mut Vec<&'a str>) {
    match part {
        Value::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "cache_file") {
                found.extend(fields.get("path").and_then(Value::as_str));
            }
            for field in fields.values() {
                cache_files(field, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                cache_files(item, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_task_whose_evaluator_reads_an_output_of_its_set_up_is_refused() {
        let store = json!({"type": "execute", "parameters": {"command": ["date"], "stdout": "date.txt"}});
        let task = |config: &[&Value], postconfig: &[&Value], getter: &str| {
            let result = [json!({"type": getter, "path": "date.txt"})];
            let evaluator = json!({"func": "f", "result": result, "postconfig": postconfig});
            without_setup(&json!({"id": "t", "config": config, "evaluator": evaluator}).to_string())
        };
        let Err(Failure::Usage(problem)) = task(&[&store], &[], "cache_file") else { panic!("judged") };
        assert!(
            problem.starts_with("the evaluator reads the cache_file date.txt, an output of"),
            "{problem}"
        );
        for judged in [task(&[&store], &[&store], "cache_file"), task(&[&store], &[], "vm_file")] {
            let Ok(judged) = judged else { panic!("refused") };
            assert!(!judged.contains("\"config\""), "{judged}");
        }
    }
}
