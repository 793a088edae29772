//! Evaluation on the embedded desktop's tasks: scores are saved during the evaluation, then summarised.

use super::scores::ScoreLog;
use super::{EvalArguments, PolicyName, policy, policy_name, task_sets};
use crate::resume::{rejected_changes, start, stored};
use crate::show::EpisodeProgress;
use crate::{Failure, write_json};
use arpo_core::config::Config;
use arpo_core::statistics::Success;
use arpo_core::task::Task;
use arpo_train::TrainError;
use arpo_train::collect::{CollectEvent, CollectReport};
use arpo_train::memory_plan::Work;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::{RunFolder, Start};
use arpo_train::trainer::evaluation::{
    EvaluationPlan, EvaluationResult, TaskScores, by_application, evaluate_some, histogram, mean_pass_at,
    overall,
};
use arpo_train::trainer::setup;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

#[derive(Serialize)]
struct Report {
    success: Success,
    parts: BTreeMap<&'static str, Success>,
    pass_at: BTreeMap<usize, f64>,
    applications: BTreeMap<String, Success>,
    histogram: Vec<(&'static str, usize)>,
    tasks: Vec<TaskScores>,
    seconds: f64,
    collecting: CollectReport,
}

pub(super) fn run(arguments: &EvalArguments, config: &Config, out: &mut impl Write) -> Result<(), Failure> {
    let samples = usize::from(arguments.samples.unwrap_or(4));
    if arguments.output.resume && arguments.output.out.is_none() {
        return Err(Failure::usage("--resume: expected --out with the folder of the evaluation"));
    }
    let (folder, config) = match &arguments.output.out {
        Some(path) if arguments.output.resume => {
            let (folder, config) = resumed(path, arguments, config)?;
            (Some(folder), config)
        }
        _ => (None, config.clone()),
    };
    let config = &config;
    let sets = task_sets::of(arguments.part, config)?;
    let tasks: Vec<Arc<Task>> = sets.iter().flat_map(|(_, tasks)| tasks.clone()).collect();
    // before the folder is created, so that a missing model leaves none behind
    if policy_name(arguments) == PolicyName::Checkpoint {
        setup::check_model(config, Work::Sampling).map_err(Failure::usage)?;
    }
    let folder = match (folder, &arguments.output.out) {
        (None, Some(path)) => {
            let folder = start(path, Start::New)?;
            folder.write_config(&config.to_toml()).map_err(Failure::failed)?;
            Some(folder)
        }
        (folder, _) => folder,
    };
    let mut policy = policy(arguments, config, &tasks)?;
    let plan = EvaluationPlan::of(config, 0, samples);
    let began = Instant::now();
    let about = json!({
        "part": named(&arguments.part), "samples": samples, "policy": named(&policy_name(arguments)),
        "greedy": arguments.greedy, "script": arguments.script,
    });
    let (mut log, done) = match &folder {
        None => (None, vec![]),
        Some(folder) => {
            let (log, done) = ScoreLog::open(folder, &about, &tasks, samples)?;
            (Some(log), done)
        }
    };
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let workers = folder.as_ref().map(RunFolder::path);
    let mut collector = setup::collector(config, workers, &Arc::default(), &stop).map_err(Failure::of)?;
    let is_done = |task: &Task| done.iter().any(|scores| scores.task == task.id);
    let left = tasks.iter().filter(|task| !is_done(task)).count();
    let mut progress =
        EpisodeProgress::new(left * samples, config.reward.success_above, arguments.output.quiet);
    let mut event = |event: CollectEvent| {
        progress.event(&event);
        if let Some(log) = &mut log {
            log.event(&event);
        }
    };
    let result =
        evaluate_some(&mut collector, policy.as_mut(), &tasks, |task| !is_done(task), &plan, &mut event);
    drop(progress);
    if let Some(log) = log {
        log.close()?;
    }
    let EvaluationResult { tasks: found, report, .. } =
        result.map_err(|error| match (error, &arguments.output.out) {
            (TrainError::Interrupted, Some(_)) => {
                Failure::Stopped(Some("stopped; --resume continues with the remaining tasks".into()))
            }
            (error, _) => Failure::of(error),
        })?;
    // in the order of the tasks, not of completion
    let all: Vec<TaskScores> = done.into_iter().chain(found).collect();
    let scored = |task: &Arc<Task>| all.iter().find(|scores| scores.task == task.id).cloned();
    let tasks: Vec<TaskScores> = tasks.iter().filter_map(scored).collect();
    let ks = std::iter::successors(Some(1), |k| Some(k * 2)).take_while(|&k| k <= samples);
    let report = Report {
        success: overall(&tasks),
        parts: task_sets::success(&sets, &tasks),
        pass_at: ks
            .filter_map(|k| Some((k, mean_pass_at(k, &tasks, config.reward.success_above)?)))
            .collect(),
        applications: by_application(&tasks),
        histogram: histogram(&tasks).to_vec(),
        tasks,
        seconds: began.elapsed().as_secs_f64(),
        collecting: report,
    };
    if let Some(folder) = &folder {
        let text = serde_json::to_vec_pretty(&report).map_err(Failure::failed)?;
        folder.write_file("report.json", &text).map_err(Failure::failed)?;
    }
    if arguments.output.json { write_json(&report, out) } else { print(&report, arguments.tasks, out) }
}

/// An option's value as written on the command line.
fn named(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The folder of a resumed evaluation, and its configuration; options that are given again must be the same.
fn resumed(path: &Path, arguments: &EvalArguments, config: &Config) -> Result<(RunFolder, Config), Failure> {
    let folder = start(path, Start::Resume)?;
    let was = stored(&folder)?;
    let given = !arguments.layers.is_empty() || arguments.model.is_some() || arguments.suite.is_some();
    let rejected = if given { rejected_changes(&was, config) } else { vec![] };
    if rejected.is_empty() {
        return Ok((folder, if given { config.clone() } else { was }));
    }
    let (path, rejected) = (path.display(), rejected.join("; "));
    Err(Failure::usage(format!(
        "--resume: this is not the evaluation in {path}: {rejected}; expected the same options or none"
    )))
}

fn print(report: &Report, with_tasks: bool, out: &mut impl Write) -> Result<(), Failure> {
    let row = |name: &str, Success { rollouts, mean, low, high }: Success| {
        format!("{name:<12} {mean:.3}  [{low:.3}, {high:.3}]  {rollouts:6} rollouts")
    };
    for (application, &success) in &report.applications {
        writeln!(out, "{}", row(application, success))?;
    }
    if report.parts.len() > 1 {
        for (part, &success) in &report.parts {
            writeln!(out, "{}", row(part, success))?;
        }
    }
    writeln!(out, "{}", row("all", report.success))?;
    let passes: Vec<String> =
        report.pass_at.iter().map(|(k, share)| format!("pass@{k} {share:.3}")).collect();
    writeln!(out, "{}", passes.join("  "))?;
    let bins: Vec<String> = report.histogram.iter().map(|(bin, count)| format!("{bin}: {count}")).collect();
    writeln!(out, "tasks by success  {}", bins.join("  "))?;
    if report.collecting.lost > 0 {
        writeln!(out, "{} rollouts were lost to failures", report.collecting.lost)?;
    }
    if with_tasks {
        for scores in &report.tasks {
            let mean = scores.mean().map_or_else(|| "-".to_owned(), |mean| format!("{mean:.3}"));
            writeln!(out, "{:<40} {mean}", scores.task.as_str())?;
        }
    }
    for TaskScores { task, unplayable, .. } in &report.tasks {
        if let Some(reason) = unplayable {
            writeln!(out, "{task} could not be set up and does not count: {reason}")?;
        }
    }
    writeln!(out, "{:.1} s", report.seconds)?;
    Ok(())
}
