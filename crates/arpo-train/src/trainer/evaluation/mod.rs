//! Evaluating an agent: rollouts that are not trained on, by task and by application.

pub mod files;
mod in_training;

use crate::TrainError;
use crate::collect::{CollectEvent, CollectReport, Collector, GroupPlan, GroupSize, Planner, Worlds};
use crate::episode::CompletedEpisode;
use crate::policy::Policy;
use arpo_core::config::Config;
use arpo_core::statistics::{Success, pass_at, success};
use arpo_core::task::{Task, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The plan of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvaluationPlan {
    /// Random seed.
    pub seed: u64,
    /// Which evaluation of the run it is: each has its own seeds.
    pub number: u64,
    /// Rollouts of each task.
    pub samples: usize,
    /// Most turns.
    pub max_steps: usize,
    /// Worlds of a task, used in turn.
    pub worlds: u64,
    /// Rollouts of each task that may replace those whose desktop fails.
    pub refills: usize,
    /// Faults are injected.
    pub faulty: bool,
}

impl EvaluationPlan {
    /// The run's evaluation of this number, with this many rollouts of each task.
    pub fn of(config: &Config, number: u64, samples: usize) -> Self {
        Self {
            seed: config.seed,
            number,
            samples,
            max_steps: config.collect.max_steps,
            worlds: config.tasks.worlds,
            refills: config.collect.refills,
            faulty: config.faults.any(),
        }
    }
}

/// First step number of evaluations, beyond those of iterations, so that they never share random streams.
const EVALUATION_STREAMS: u64 = 1 << 40;

/// A task's rollouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskScores {
    /// The task.
    pub task: TaskId,
    /// Its application.
    pub application: String,
    /// The score of each completed rollout.
    pub scores: Vec<f64>,
    /// Why the task cannot be set up or evaluated, if so: not a failure of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplayable: Option<String>,
}

impl TaskScores {
    /// No rollouts yet.
    pub fn none(task: &Task) -> Self {
        let (task, application) = (task.id.clone(), task.application.clone());
        Self { task, application, scores: vec![], unplayable: None }
    }

    /// Mean score; `None` without rollouts.
    pub fn mean(&self) -> Option<f64> {
        (!self.scores.is_empty()).then(|| self.scores.iter().sum::<f64>() / self.scores.len() as f64)
    }
}

/// The result of an evaluation.
#[derive(Debug, Clone)]
pub struct EvaluationResult {
    /// By task, in the given order.
    pub tasks: Vec<TaskScores>,
    /// The episodes, in the same order.
    pub episodes: Vec<Vec<CompletedEpisode>>,
    /// Statistics of the collection.
    pub report: CollectReport,
}

/// Evaluates every task.
pub fn evaluate(
    collector: &mut Collector,
    policy: &mut dyn Policy,
    tasks: &[Arc<Task>],
    plan: &EvaluationPlan,
    progress: &mut (dyn FnMut(CollectEvent) + Send),
) -> Result<EvaluationResult, TrainError> {
    evaluate_some(collector, policy, tasks, |_| true, plan, progress)
}

/// Evaluates the wanted tasks, each with the same random streams as in an evaluation of all tasks.
pub fn evaluate_some(
    collector: &mut Collector,
    policy: &mut dyn Policy,
    tasks: &[Arc<Task>],
    wanted: impl Fn(&Task) -> bool,
    plan: &EvaluationPlan,
    progress: &mut (dyn FnMut(CollectEvent) + Send),
) -> Result<EvaluationResult, TrainError> {
    let chosen: Vec<(usize, &Arc<Task>)> =
        tasks.iter().enumerate().filter(|(_, task)| wanted(task)).collect();
    let plans = chosen.iter().map(|&(number, task)| group_plan(task, number as u64, plan)).collect();
    let collected = collector.collect(policy, plans, progress)?;
    let found = chosen
        .iter()
        .zip(&collected.groups)
        .map(|((_, task), group)| TaskScores {
            scores: group.episodes.iter().map(|one| one.trajectory.score).collect(),
            unplayable: group.bad_task.clone(),
            ..TaskScores::none(task)
        })
        .collect();
    let episodes = collected.groups.into_iter().map(|group| group.episodes).collect();
    Ok(EvaluationResult { tasks: found, episodes, report: collected.report })
}

/// The groups of an evaluation of all tasks.
pub fn group_plans(tasks: &[Arc<Task>], plan: &EvaluationPlan) -> Vec<GroupPlan> {
    tasks.iter().zip(0..).map(|(task, number)| group_plan(task, number, plan)).collect()
}

fn group_plan(task: &Arc<Task>, number: u64, plan: &EvaluationPlan) -> GroupPlan {
    let planner = Planner {
        seed: plan.seed,
        step: EVALUATION_STREAMS + plan.number,
        worlds: Worlds::InTurn { of: plan.worlds },
        faulty: plan.faulty,
    };
    planner.group(task, number, GroupSize::new(plan.samples, plan.refills, plan.max_steps))
}

/// Success over all rollouts.
pub fn overall(tasks: &[TaskScores]) -> Success {
    let scores: Vec<f64> = tasks.iter().flat_map(|task| task.scores.iter().copied()).collect();
    success(&scores)
}

/// Success by application.
pub fn by_application(tasks: &[TaskScores]) -> BTreeMap<String, Success> {
    let mut scores: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for task in tasks {
        scores.entry(task.application.clone()).or_default().extend(&task.scores);
    }
    scores.into_iter().map(|(application, scores)| (application, success(&scores))).collect()
}

/// pass@k, averaged over tasks: the unbiased estimate of the share of tasks of which at least one of `k` rollouts
/// succeeds; `None` if no task has `k` rollouts.
pub fn mean_pass_at(k: usize, tasks: &[TaskScores], success_above: f64) -> Option<f64> {
    let passes: Vec<f64> = tasks
        .iter()
        .filter_map(|task| {
            let successes = task.scores.iter().filter(|&&score| score > success_above).count();
            pass_at(k, successes, task.scores.len())
        })
        .collect();
    (!passes.is_empty()).then(|| passes.iter().sum::<f64>() / passes.len() as f64)
}

/// Numbers of tasks by mean score: 0, up to 0.2, ... 1.
pub fn histogram(tasks: &[TaskScores]) -> [(&'static str, usize); 7] {
    let mut bins =
        [("0", 0), ("to .2", 0), ("to .4", 0), ("to .6", 0), ("to .8", 0), ("below 1", 0), ("1", 0)];
    for task in tasks.iter().filter(|task| !task.scores.is_empty()) {
        let mean = task.mean().unwrap_or(0.0);
        let bin = match mean {
            mean if mean <= 0.0 => 0,
            mean if mean >= 1.0 => 6,
            mean => 1 + ((mean * 5.0) as usize).min(4),
        };
        bins[bin].1 += 1;
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(application: &str, scores: &[f64]) -> TaskScores {
        let scores = scores.to_vec();
        TaskScores { task: TaskId::new("t"), application: application.into(), scores, unplayable: None }
    }

    #[test]
    fn summaries_by_hand() {
        let tasks = [scores("mail", &[1.0, 0.0]), scores("mail", &[0.0, 0.0]), scores("files", &[1.0, 1.0])];
        assert!((overall(&tasks).mean - 0.5).abs() < 1e-12);
        assert!((by_application(&tasks)["mail"].mean - 0.25).abs() < 1e-12);
        assert!((mean_pass_at(2, &tasks, 0.1).unwrap() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(mean_pass_at(3, &tasks, 0.1), None);
        assert_eq!(histogram(&tasks).map(|(_, count)| count), [1, 0, 0, 1, 0, 0, 1]);
    }
}
