//! OSWorld's tasks, trial by trial, with result folders as OSWorld writes them. Tasks that have a result are skipped.

use super::{EvalArguments, Who, policy, show, who};
use crate::show::failure_line;
use crate::{Failure, write_json};
use arpo_core::config::{Config, DesktopChoice, SuiteChoice};
use arpo_core::task::Task;
use arpo_core::trajectory::Outcome;
use arpo_osworld::results::record::Trial;
use arpo_osworld::results::table::Results;
use arpo_train::TrainError;
use arpo_train::collect::CollectEvent;
use arpo_train::episode::PlayedEpisode;
use arpo_train::policy::Policy;
use arpo_train::policy::chat::NO_ANSWER;
use arpo_train::run::stop::StopSwitch;
use arpo_train::trainer::evaluation::{Examination, examine};
use arpo_train::trainer::osworld::{Recorded, desktops, left_out};
use arpo_train::trainer::setup;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What judging has otherwise than training, as in OSWorld's script.
pub(super) const SETTINGS: &str = "\
agent.max_tokens = 4096
collect.desktops = 8
collect.refills = 2
osworld.settle_seconds = 10.0
osworld.pause_seconds = 1.0
osworld.calls_tolerated = 3
osworld.give_up_at = 15
chat.frequency_penalty = 1.0
chat.retry_unparsable = true
";

const RESULTS: &str = "results";

/// What only OSWorld's tasks take.
#[derive(Args)]
#[command(next_help_heading = "OSWorld")]
pub(super) struct OsworldArguments {
    /// Play on desktops that run already; may be repeated
    #[arg(long, value_name = "http://HOST:PORT")]
    pub(super) vm: Vec<String>,
    /// No giving up on the agent's behalf at the last turn; the same as `--set osworld.give_up_at=0`
    #[arg(long)]
    hard: bool,
    /// Film every episode
    #[arg(long)]
    film: bool,
}

impl OsworldArguments {
    /// The configuration with what is said here.
    pub(super) fn apply(&self, config: &mut Config) {
        if !self.vm.is_empty() {
            config.tasks.suite = SuiteChoice::Osworld;
            config.osworld.desktop = DesktopChoice::Running;
            config.osworld.running = self.vm.join(" ");
            // one desktop is one episode at a time
            config.collect.desktops = config.collect.desktops.min(self.vm.len());
        }
        if self.hard {
            config.osworld.give_up_at = 0;
        }
    }
}

pub(super) fn run(arguments: &EvalArguments, config: &Config, out: &mut impl Write) -> Result<(), Failure> {
    let tasks = setup::training_tasks(config).map_err(Failure::usage)?;
    for task in left_out(config).map_err(Failure::usage)? {
        say(&format!("left out: {task}"));
    }
    let mut policy = policy(arguments, config, &tasks)?;
    let root = arguments.original.result_dir.clone().unwrap_or_else(|| PathBuf::from(RESULTS));
    let first = arguments.original.trial_id.unwrap_or(0);
    let model = model_name(arguments, config);
    let trials = u32::try_from(arguments.samples.unwrap_or(1)).map_err(Failure::usage)?;
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let mut unjudged = Vec::new();
    for number in first..first + trials {
        let trial = Trial::new(&root, "screenshot", &model, &number.to_string());
        unjudged.extend(play(arguments, config, &trial, u64::from(number), &tasks, policy.as_mut(), &stop)?);
    }
    let folder = root.join("pyautogui").join("screenshot").join(&model);
    let summary = Results::read(&folder).map(|results| results.summary());
    match (&summary, arguments.output.json) {
        (Ok(summary), true) => write_json(summary, out)?,
        (Ok(summary), false) => {
            show::print(summary, out)?;
            writeln!(out, "results in {}", folder.display())?;
        }
        // nothing was judged, which is said below
        (Err(_), _) => {}
    }
    if unjudged.is_empty() {
        return summary.map(drop).map_err(Failure::failed);
    }
    out.flush()?;
    Err(Failure::failed(format!(
        "{} without a result, see above; the same command tries them again: {}",
        unjudged.len(),
        unjudged.join(", ")
    )))
}

fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// What the folder of results is named after.
fn model_name(arguments: &EvalArguments, config: &Config) -> String {
    let name = match who(arguments) {
        Who::Chat => &config.chat.model,
        Who::Script => "script",
        _ => &config.model.base,
    };
    let last = Path::new(name).file_name();
    last.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Plays what has no result yet; returns what has none afterwards.
fn play(
    arguments: &EvalArguments,
    config: &Config,
    trial: &Trial,
    number: u64,
    tasks: &[Arc<Task>],
    policy: &mut dyn Policy,
    stop: &StopSwitch,
) -> Result<Vec<String>, Failure> {
    let is_finished = |task: &&Arc<Task>| trial.is_finished(&task.application, task.id.as_str());
    let open: Vec<Arc<Task>> = tasks.iter().filter(|task| !is_finished(task)).cloned().collect();
    say(&format!("trial {number}: {} of {} tasks to play", open.len(), tasks.len()));
    if open.is_empty() {
        return Ok(vec![]);
    }
    let recorded = Recorded { trial: trial.clone(), film: arguments.osworld.film };
    let mut config = config.clone();
    config.collect.desktops = config.collect.desktops.min(open.len());
    let desktops = desktops(&config, Some(recorded)).map_err(Failure::failed)?;
    let mut collector = setup::collector_of(&config, desktops.make, &Arc::default())
        .removing(desktops.remove_all)
        .stopped_by(stop.clone());
    let examination = Examination::of(&config, number, 1);
    let examined = examine(&mut collector, policy, &open, &examination, &mut tell);
    // whatever happened: nothing stays on the engine
    if let Err(error) = collector.close() {
        say(&format!("{error}; the next start removes what is left"));
    }
    let examined = examined.map_err(|error| match error {
        TrainError::Interrupted => {
            Failure::Stopped(Some("stopped; the same command plays what has no result".into()))
        }
        error => Failure::failed(error),
    })?;
    for (task, episodes) in open.iter().zip(&examined.episodes) {
        // an episode that ended with words nobody can read is not judged, and worth nothing
        if episodes.iter().any(is_unreadable) && !is_finished(&task) {
            let finished = trial.finish(&task.application, task.id.as_str(), 0.0);
            finished.map_err(|error| Failure::failed(format!("{}: {error}", trial.folder().display())))?;
        }
    }
    Ok(open.iter().filter(|task| !is_finished(task)).map(|task| task.id.to_string()).collect())
}

/// It ended with words that nobody can read; without any words it is not the agent's fault.
fn is_unreadable(played: &PlayedEpisode) -> bool {
    let last = played.trajectory.steps.last();
    let answered = last.is_some_and(|step| !step.response.starts_with(NO_ANSWER));
    answered && matches!(played.trajectory.outcome, Outcome::Unparsable { .. })
}

fn tell(event: CollectEvent) {
    match event {
        CollectEvent::Ended { task, score: Some(score), running, waiting } => {
            say(&format!("{score:.2}  {task}  ({running} running, {waiting} waiting)"));
        }
        CollectEvent::Ended { .. } => {}
        CollectEvent::Failed(failure) => say(&failure_line(&failure)),
    }
}
