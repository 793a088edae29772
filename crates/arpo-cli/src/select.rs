//! `arpo select`: selects training tasks by rollouts of the base model. The scores of a task are written as soon as it is
//! done, so that an interrupted selection can be resumed.

use crate::Failure;
use crate::config::Layers;
use crate::resume::resume_or_start;
use crate::show::EpisodeProgress;
use arpo_core::config::Config;
use arpo_core::selection::{Baseline, Verdict, selected_tasks, verdict};
use arpo_core::task::{Task, TaskId};
use arpo_core::trajectory::PolicyVersion;
use arpo_suite::task_lists;
use arpo_train::TrainError;
use arpo_train::collect::CollectEvent;
use arpo_train::memory_plan::Work;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::{RunFolder, metrics};
use arpo_train::trainer::evaluation::{EvaluationPlan, TaskScores, evaluate, histogram};
use arpo_train::trainer::setup;
use clap::Args;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum width of a histogram's bar.
const BAR_WIDTH: usize = 40;

/// The arguments of `arpo select`.
#[derive(Args)]
pub(crate) struct SelectArguments {
    #[command(flatten)]
    layers: Layers,
    /// The folder for the scores and the list of selected tasks
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Resume the selection in --out, with the configuration stored there
    #[arg(long)]
    resume: bool,
    /// Print only problems and the result, no progress
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &SelectArguments, out: &mut impl Write) -> Result<(), Failure> {
    let (folder, config) =
        resume_or_start(&arguments.out, &arguments.layers, arguments.resume, Work::Sampling)?;
    let tasks = task_lists::training_tasks(&config).map_err(Failure::usage)?;
    let (mut baselines, position) = read_baselines(&folder)?;
    let mut log = folder.metrics_at(position).map_err(Failure::failed)?;
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let left: Vec<Arc<Task>> = tasks
        .iter()
        .filter(|task| !baselines.iter().any(|baseline| baseline.task == task.id))
        .map(Arc::clone)
        .collect();
    let model = setup::load(&config).map_err(Failure::of)?;
    let mut policy = setup::policy(&config, &model.config, &model.weights, &model.agent, PolicyVersion(0));
    let mut collector =
        setup::collector(&config, Some(folder.path()), &Arc::default(), &stop).map_err(Failure::of)?;
    let rollouts = config.selection.rollouts_per_task;
    let success_above = config.reward.success_above;
    let mut progress = EpisodeProgress::new(left.len() * rollouts, success_above, arguments.quiet);
    for chunk in left.chunks(config.collect.tasks) {
        let plan = EvaluationPlan::of(&config, baselines.len() as u64, rollouts);
        let mut ended: BTreeMap<TaskId, Vec<f64>> = BTreeMap::new();
        let mut event = |event: CollectEvent| {
            progress.event(&event);
            if let CollectEvent::Ended { task, score: Some(score), .. } = event {
                ended.entry(task).or_default().push(score);
            }
        };
        let result = match evaluate(&mut collector, &mut policy, chunk, &plan, &mut event) {
            Err(TrainError::Interrupted) => {
                drop(progress);
                // tasks whose rollouts had all ended need not be played again
                for (task, scores) in ended.into_iter().filter(|(_, scores)| scores.len() == rollouts) {
                    let baseline = Baseline { task, scores };
                    log.append(&baseline).map_err(Failure::failed)?;
                    baselines.push(baseline);
                }
                let (done, all) = (baselines.len(), tasks.len());
                let message = format!("stopped after {done} of {all} tasks; --resume continues");
                return Err(Failure::Stopped(Some(message)));
            }
            result => result.map_err(Failure::of)?,
        };
        for TaskScores { task, scores, .. } in result.tasks {
            let baseline = Baseline { task, scores };
            log.append(&baseline).map_err(Failure::failed)?;
            baselines.push(baseline);
        }
    }
    drop(progress);
    let list = folder.path().join("tasks.txt");
    let selected = selected_tasks(&baselines, &config.selection, &config.reward);
    let mut names = selected.iter().map(TaskId::as_str).collect::<Vec<_>>().join("\n");
    names.push('\n');
    fs::write(&list, names).map_err(|error| Failure::failed(format!("{}: {error}", list.display())))?;
    print(&baselines, &config, out)?;
    writeln!(out, "{} of {} tasks selected: {}", selected.len(), tasks.len(), list.display())?;
    Ok(())
}

/// The baselines written by an earlier process, and the position where they end.
fn read_baselines(folder: &RunFolder) -> Result<(Vec<Baseline>, u64), Failure> {
    let path = folder.metrics_file();
    if !path.exists() {
        return Ok((vec![], 0));
    }
    let lines = metrics::read(&path).map_err(Failure::failed)?;
    let baselines = lines
        .into_iter()
        .map(|line| serde_json::from_value(line).map_err(|error| format!("{}: {error}", path.display())))
        .collect::<Result<Vec<Baseline>, _>>()
        .map_err(Failure::failed)?;
    let position = metrics::whole_lines(&path).map_err(Failure::failed)?;
    Ok((baselines, position))
}

fn print(baselines: &[Baseline], config: &Config, out: &mut impl Write) -> Result<(), Failure> {
    let scores: Vec<TaskScores> = baselines
        .iter()
        .map(|Baseline { task, scores }| TaskScores {
            task: task.clone(),
            application: String::new(),
            scores: scores.clone(),
            unplayable: None,
        })
        .collect();
    let most = baselines.len().max(1);
    for (bin, count) in histogram(&scores) {
        writeln!(out, "{bin:>8} {count:4} {}", "#".repeat(count * BAR_WIDTH / most))?;
    }
    for (kind, reason) in [
        (Verdict::NeverSolved, "never solved"),
        (Verdict::AlwaysSolved, "always solved"),
        (Verdict::Undecided, "too few rollouts"),
    ] {
        let count =
            baselines.iter().filter(|one| verdict(one, &config.selection, &config.reward) == kind).count();
        if count > 0 {
            writeln!(out, "{count} dropped: {reason}")?;
        }
    }
    Ok(())
}
