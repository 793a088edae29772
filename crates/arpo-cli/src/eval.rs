//! `arpo eval`: how well an agent does, by task and by application.

use crate::config::Layers;
use crate::{Failure, write_json};
use arpo_core::config::Config;
use arpo_core::statistics::Success;
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_env::policies::{CLUMSINESS, Scripted};
use arpo_train::collect::CollectReport;
use arpo_train::policy::{Policy, ScriptedPolicy};
use arpo_train::trainer::evaluation::{
    Examination, Examined, TaskScores, by_application, examine, histogram, mean_pass_at, overall,
};
use arpo_train::trainer::setup;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What `arpo eval` takes.
#[derive(Args)]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    layers: Layers,
    /// Who acts; `checkpoint` is the model of `model.base`
    #[arg(long, value_enum, default_value = "checkpoint")]
    policy: Who,
    /// The checkpoint: a Hugging Face folder, or `pocket`; the same as `--set model.base=...`
    #[arg(long)]
    model: Option<String>,
    /// On which tasks
    #[arg(long, value_enum, default_value = "train")]
    part: Which,
    /// Rollouts of each task
    #[arg(long, default_value_t = 4)]
    samples: usize,
    /// Always take the likeliest token
    #[arg(long)]
    greedy: bool,
    /// Name every task
    #[arg(long)]
    tasks: bool,
    /// For scripts
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Who {
    Checkpoint,
    Oracle,
    Clumsy,
    Random,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// The tasks the configuration trains on
    Train,
    /// The tasks that are never trained on
    HeldOut,
    /// Both
    All,
}

#[derive(Serialize)]
struct Report {
    success: Success,
    pass_at: BTreeMap<usize, f64>,
    applications: BTreeMap<String, Success>,
    histogram: Vec<(&'static str, usize)>,
    tasks: Vec<TaskScores>,
    seconds: f64,
    collecting: CollectReport,
}

pub(crate) fn run(arguments: &EvalArguments, out: &mut impl Write) -> Result<(), Failure> {
    if arguments.samples == 0 {
        return Err(Failure::usage("--samples 0: expected at least 1"));
    }
    let mut config = arguments.layers.resolve()?;
    if let Some(model) = &arguments.model {
        config.model.base.clone_from(model);
    }
    let tasks = tasks(arguments.part, &config)?;
    let mut policy = policy(arguments, &config)?;
    let examination = Examination::of(&config, 0, arguments.samples);
    let began = Instant::now();
    let mut collector = setup::collector(&config, &Arc::default()).map_err(Failure::failed)?;
    let Examined { tasks, report, .. } =
        examine(&mut collector, policy.as_mut(), &tasks, &examination, &mut |_| {})
            .map_err(Failure::failed)?;
    let ks = std::iter::successors(Some(1), |k| Some(k * 2)).take_while(|&k| k <= arguments.samples);
    let report = Report {
        success: overall(&tasks),
        pass_at: ks
            .filter_map(|k| Some((k, mean_pass_at(k, &tasks, config.selection.success_above)?)))
            .collect(),
        applications: by_application(&tasks),
        histogram: histogram(&tasks).to_vec(),
        tasks,
        seconds: began.elapsed().as_secs_f64(),
        collecting: report,
    };
    if arguments.json { write_json(&report, out) } else { print(&report, arguments.tasks, out) }
}

fn tasks(which: Which, config: &Config) -> Result<Vec<Arc<Task>>, Failure> {
    let mut tasks = match which {
        Which::HeldOut => vec![],
        Which::Train | Which::All => setup::training_tasks(config).map_err(Failure::usage)?,
    };
    if which != Which::Train {
        tasks.extend(setup::held_out_tasks(config));
    }
    Ok(tasks)
}

fn policy(arguments: &EvalArguments, config: &Config) -> Result<Box<dyn Policy>, Failure> {
    let screen = setup::screen(config).map_err(Failure::usage)?;
    let scripted = |make: fn(u64) -> Scripted| -> Box<dyn Policy> {
        Box::new(ScriptedPolicy::following(screen.clone(), Duration::ZERO, make))
    };
    Ok(match arguments.policy {
        Who::Oracle => scripted(|_| Scripted::oracle()),
        Who::Clumsy => scripted(|seed| Scripted::clumsy(seed, CLUMSINESS)),
        Who::Random => scripted(Scripted::random),
        Who::Checkpoint => {
            let model = setup::load(config).map_err(Failure::failed)?;
            let mut policy =
                setup::policy(config, &model.config, &model.weights, &model.agent, PolicyVersion(0));
            policy.responses.temperature = if arguments.greedy { 0.0 } else { config.evaluation.temperature };
            Box::new(policy)
        }
    })
}

fn print(report: &Report, with_tasks: bool, out: &mut impl Write) -> Result<(), Failure> {
    let row = |name: &str, Success { rollouts, mean, low, high }: Success| {
        format!("{name:<12} {mean:.3}  [{low:.3}, {high:.3}]  {rollouts:6} rollouts")
    };
    for (application, &success) in &report.applications {
        writeln!(out, "{}", row(application, success))?;
    }
    writeln!(out, "{}", row("all", report.success))?;
    let passes: Vec<String> =
        report.pass_at.iter().map(|(k, share)| format!("pass@{k} {share:.3}")).collect();
    writeln!(out, "{}", passes.join("  "))?;
    let bins: Vec<String> = report.histogram.iter().map(|(bin, count)| format!("{bin}: {count}")).collect();
    writeln!(out, "tasks by success  {}", bins.join("  "))?;
    if report.collecting.lost > 0 {
        writeln!(out, "{} rollouts were lost to failures of desktops", report.collecting.lost)?;
    }
    if with_tasks {
        for TaskScores { task, scores, .. } in &report.tasks {
            let mean = scores.iter().sum::<f64>() / scores.len().max(1) as f64;
            writeln!(out, "{:<40} {mean:.3}", task.as_str())?;
        }
    }
    writeln!(out, "{:.1} s", report.seconds)?;
    Ok(())
}
