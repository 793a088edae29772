//! `arpo osworld check`: validates a task file, then runs its set-up and its evaluator on a desktop on which nothing is done.

use crate::Failure;
use crate::config::Layers;
use arpo_core::action::Action;
use arpo_core::config::Config;
use arpo_core::task::Task;
use arpo_env::environment::{EnvironmentError, RecordEntry};
use arpo_osworld::check::problems;
use arpo_osworld::task::suite;
use arpo_suite::EnvironmentSource;
use arpo_suite::osworld::{OsworldSource, TaskText, accounts};
use arpo_train::run::stop::StopSwitch;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a stop is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The arguments of `arpo osworld check`.
#[derive(Args)]
pub(crate) struct CheckArguments {
    /// The task file
    #[arg(value_name = "TASK.json")]
    task: PathBuf,
    #[command(flatten)]
    layers: Layers,
    /// Only read the file; start no desktop
    #[arg(long)]
    no_desktop: bool,
}

/// What came of a task on a desktop: the notes of its set-up and its evaluator, and the score.
pub(crate) struct Outcome {
    pub(crate) notes: Vec<String>,
    pub(crate) score: f64,
}

pub(crate) fn run(arguments: &CheckArguments, out: &mut impl Write) -> Result<(), Failure> {
    let file = suite::read_file(&arguments.task).map_err(Failure::usage)?;
    let config = arguments.layers.resolve_after("osworld", None)?;
    let problems = problems(&file.task, &accounts(&config.osworld));
    if !problems.is_empty() {
        let name = arguments.task.display();
        return Err(Failure::usage(format!("{name}: {}", problems.join("; "))));
    }
    let (steps, checks) = (file.task.config.len(), file.task.evaluator.checks.len());
    let is_infeasible = file.task.evaluator.is_infeasible();
    writeln!(out, "{}/{}: {steps} set-up steps, {checks} checks", file.domain, file.task.id)?;
    if arguments.no_desktop {
        return Ok(());
    }
    out.flush()?;
    let text = TaskText { domain: file.domain, text: file.text };
    let Outcome { notes, score } = on_a_desktop(&config, text, vec![])?;
    for note in &notes {
        writeln!(out, "note: {note}")?;
    }
    writeln!(out, "the set-up works; with nothing done the score is {score}")?;
    if score > 0.0 && !is_infeasible {
        return Err(Failure::failed("the task counts as solved before anything is done"));
    }
    Ok(())
}

/// Runs set-up, actions and evaluator of a task; Ctrl-C ends it and leaves no container.
pub(crate) fn on_a_desktop(
    config: &Config,
    text: TaskText,
    actions: Vec<Action>,
) -> Result<Outcome, Failure> {
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let source = Arc::new(OsworldSource::with_texts(config.clone(), vec![text]));
    let task = source.tasks().map_err(Failure::usage)?.into_iter().next();
    let task = task.ok_or_else(|| Failure::usage("the task file has no task"))?;
    let (sender, receiver) = channel();
    let (running, limits) = (Arc::clone(&source), Limits::of(config));
    std::thread::spawn(move || sender.send(play(running.as_ref(), &task, &actions, limits)));
    let result = loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(result) => break result.map_err(Failure::failed),
            Err(RecvTimeoutError::Timeout) if !stop.requested() => {}
            Err(RecvTimeoutError::Timeout) => break Err(Failure::Stopped(Some("stopped".into()))),
            Err(RecvTimeoutError::Disconnected) => {
                break Err(Failure::failed("the thread of the desktop panicked"));
            }
        }
    };
    source.close().map_err(Failure::failed)?;
    result
}

#[derive(Clone, Copy)]
struct Limits {
    reset: Duration,
    step: Duration,
    evaluate: Duration,
}

impl Limits {
    fn of(config: &Config) -> Self {
        let seconds = Duration::from_secs_f64;
        Self {
            reset: seconds(config.collect.reset_seconds),
            step: seconds(config.collect.step_seconds),
            evaluate: seconds(config.collect.evaluate_seconds),
        }
    }
}

fn play(
    source: &OsworldSource,
    task: &Task,
    actions: &[Action],
    limits: Limits,
) -> Result<Outcome, EnvironmentError> {
    let mut desktop = source.make(0)?;
    desktop.reset(task, 0, Instant::now() + limits.reset)?;
    for action in actions {
        desktop.step(action, Instant::now() + limits.step)?;
    }
    let score = desktop.evaluate(Instant::now() + limits.evaluate)?;
    let note = |entry| if let RecordEntry::Note(note) = entry { Some(note) } else { None };
    Ok(Outcome { notes: desktop.take_record().into_iter().filter_map(note).collect(), score })
}
