//! Evaluation on OSWorld's tasks, trial by trial, with result folders in OSWorld's format. Tasks with a result are skipped.

use super::{EvalArguments, PolicyName, policy, policy_name, show};
use crate::show::failure_line;
use crate::{Failure, write_json};
use arpo_core::config::{Config, DesktopChoice, SuiteChoice};
use arpo_core::task::Task;
use arpo_core::trajectory::Outcome;
use arpo_osworld::results::record::Trial;
use arpo_osworld::results::table::Results;
use arpo_suite::osworld::{OsworldSource, left_out};
use arpo_suite::{EnvironmentSource, RecordedSource, task_lists};
use arpo_train::TrainError;
use arpo_train::collect::CollectEvent;
use arpo_train::episode::CompletedEpisode;
use arpo_train::policy::Policy;
use arpo_train::run::notices::Notices;
use arpo_train::run::stop::StopSwitch;
use arpo_train::trainer::evaluation::{EvaluationPlan, evaluate};
use arpo_train::trainer::setup;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings in which an evaluation differs from training, as in OSWorld's script.
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

/// Options for OSWorld only.
#[derive(Args)]
#[command(next_help_heading = "OSWorld")]
pub(super) struct OsworldArguments {
    /// Use a desktop that is already running; may be repeated
    #[arg(long, value_name = "http://HOST:PORT")]
    pub(super) vm: Vec<String>,
    /// Hard mode: the last turn does not count as giving up; the same as `--set osworld.give_up_at=0`
    #[arg(long)]
    hard: bool,
    /// Record a video of every episode
    #[arg(long)]
    film: bool,
}

impl OsworldArguments {
    /// Applies the options to the configuration.
    pub(super) fn apply(&self, config: &mut Config) {
        if !self.vm.is_empty() {
            config.tasks.use_suite(SuiteChoice::Osworld);
            config.osworld.desktop = DesktopChoice::Running;
            config.osworld.running.clone_from(&self.vm);
            // a desktop runs one episode at a time
            config.collect.desktops = config.collect.desktops.min(self.vm.len());
        }
        if self.hard {
            config.osworld.give_up_at = 0;
        }
    }
}

pub(super) fn run(arguments: &EvalArguments, config: &Config, out: &mut impl Write) -> Result<(), Failure> {
    let has_workers = !config.cluster.workers.is_empty();
    if has_workers && !arguments.osworld.vm.is_empty() {
        return Err(Failure::usage(
            "--vm: a desktop that runs already is reached without workers: expected no --cluster",
        ));
    }
    if has_workers && arguments.osworld.film {
        return Err(Failure::usage("--film: workers send no videos: expected no --cluster"));
    }
    arpo_cluster::check(config).map_err(|error| Failure::of(error.into()))?;
    let tasks = task_lists::training_tasks(config).map_err(Failure::usage)?;
    for task in left_out(config).map_err(Failure::usage)? {
        log(&format!("skipped: {task}"));
    }
    let mut policy = policy(arguments, config, &tasks)?;
    let root = result_folder(arguments);
    let first = arguments.compat.trial_id.unwrap_or(0);
    let model = model_name(arguments, config);
    let trials = u32::from(arguments.samples.unwrap_or(1));
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let mut without_result = Vec::new();
    for number in first..first + trials {
        let trial = Trial::new(&root, "screenshot", &model, &number.to_string());
        without_result.extend(run_trial(
            arguments,
            config,
            &trial,
            u64::from(number),
            &tasks,
            policy.as_mut(),
            &stop,
        )?);
    }
    let folder = root.join("pyautogui").join("screenshot").join(&model);
    let summary = Results::read(&folder).map(|results| results.summary());
    match (&summary, arguments.output.json) {
        (Ok(summary), true) => write_json(summary, out)?,
        (Ok(summary), false) => {
            show::print(summary, out)?;
            writeln!(out, "results in {}", folder.display())?;
        }
        // nothing has a result, which is reported below
        (Err(_), _) => {}
    }
    if without_result.is_empty() {
        return summary.map(drop).map_err(Failure::failed);
    }
    out.flush()?;
    Err(Failure::failed(format!(
        "{} tasks without a result, see above; the same command tries them again: {}",
        without_result.len(),
        without_result.join(", ")
    )))
}

fn log(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn result_folder(arguments: &EvalArguments) -> PathBuf {
    arguments.compat.result_dir.clone().unwrap_or_else(|| PathBuf::from(RESULTS))
}

/// The model's name in the result folder.
fn model_name(arguments: &EvalArguments, config: &Config) -> String {
    let name = match policy_name(arguments) {
        PolicyName::Chat => &config.chat.model,
        PolicyName::Script => "script",
        _ => &config.model.base,
    };
    let last = Path::new(name).file_name();
    last.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Evaluates the tasks without a result; returns those that still have none.
fn run_trial(
    arguments: &EvalArguments,
    config: &Config,
    trial: &Trial,
    number: u64,
    tasks: &[Arc<Task>],
    policy: &mut dyn Policy,
    stop: &StopSwitch,
) -> Result<Vec<String>, Failure> {
    let _claim = trial.claim().map_err(Failure::failed)?;
    let is_finished = |task: &&Arc<Task>| trial.is_finished(&task.application, task.id.as_str());
    let open: Vec<Arc<Task>> = tasks.iter().filter(|task| !is_finished(task)).cloned().collect();
    log(&format!("trial {number}: {} of {} tasks to evaluate", open.len(), tasks.len()));
    if open.is_empty() {
        return Ok(vec![]);
    }
    let mut config = config.clone();
    config.collect.desktops = config.collect.desktops.min(open.len());
    let source = if arguments.osworld.film {
        Arc::new(OsworldSource::new(config.clone()).filmed(true))
    } else {
        setup::source(&config, Some(&result_folder(arguments)), stop, &Notices::default())
            .map_err(Failure::of)?
    };
    let source: Arc<dyn EnvironmentSource> = Arc::new(RecordedSource::new(source, trial.clone()));
    setup::open(source.as_ref(), stop).map_err(Failure::of)?;
    let mut collector = setup::collector_of(&config, source, &Arc::default()).stopped_by(stop.clone());
    // they are in the result folder
    collector.options.keep_screens = false;
    let plan = EvaluationPlan::of(&config, number, 1);
    let result = evaluate(&mut collector, policy, &open, &plan, &mut log_event);
    // in any case no container may stay behind
    if let Err(error) = collector.close() {
        log(&format!("{error}; the next start removes the rest"));
    }
    let result = result.map_err(|error| match error {
        TrainError::Interrupted => {
            Failure::Stopped(Some("stopped; the same command continues with the remaining tasks".into()))
        }
        error => Failure::failed(error),
    })?;
    for (task, episodes) in open.iter().zip(&result.episodes) {
        // an episode that ended with an unparsable response is not evaluated: its score is 0
        if episodes.iter().any(is_unparsable) && !is_finished(&task) {
            let finished = trial.finish(&task.application, task.id.as_str(), 0.0);
            finished.map_err(|error| Failure::failed(format!("{}: {error}", trial.folder().display())))?;
        }
    }
    Ok(open.iter().filter(|task| !is_finished(task)).map(|task| task.id.to_string()).collect())
}

/// True if it ended with an unparsable response.
fn is_unparsable(played: &CompletedEpisode) -> bool {
    matches!(played.trajectory.outcome, Outcome::Unparsable { .. })
}

fn log_event(event: CollectEvent) {
    match event {
        CollectEvent::Ended { task, score: Some(score), running, waiting } => {
            log(&format!("{score:.2}  {task}  ({running} running, {waiting} waiting)"));
        }
        CollectEvent::Ended { .. } => {}
        CollectEvent::Failed(failure) => log(&failure_line(&failure)),
    }
}
