//! Judging an agent: rollouts of tasks without learning from them, by task and by application.

use super::setup::world_seed;
use crate::TrainError;
use crate::collect::{CollectEvent, CollectReport, Collector, GroupPlan};
use crate::episode::{EpisodePlan, PlayedEpisode};
use crate::policy::Policy;
use arpo_core::config::Config;
use arpo_core::random::{Purpose, stream};
use arpo_core::statistics::{Success, pass_at, success};
use arpo_core::task::{Task, TaskId};
use arpo_core::trajectory::EpisodeId;
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is played to judge an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Examination {
    /// Names every draw.
    pub seed: u64,
    /// Which examination of the run it is: each draws anew.
    pub number: u64,
    /// Rollouts of each task.
    pub samples: usize,
    /// Turns at most.
    pub max_steps: usize,
    /// Desktops that a task is met on, in turn.
    pub worlds: u64,
    /// Rollouts that may be repeated because a desktop failed, for each task.
    pub refills: usize,
    /// Faults are played on purpose.
    pub faulty: bool,
}

impl Examination {
    /// As a run is configured: the `number`-th of it, with so many rollouts of each task.
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

/// Examinations draw from streams of their own, which no iteration reaches.
const EXAMINATIONS: u64 = 1 << 40;

/// A task's rollouts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskScores {
    /// The task.
    pub task: TaskId,
    /// Its application.
    pub application: String,
    /// One for each rollout that came to its own end.
    pub scores: Vec<f64>,
    /// Why the task cannot be set up or judged, if so: none of the agent's failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplayable: Option<String>,
}

impl TaskScores {
    /// Before any rollout.
    pub fn none(task: &Task) -> Self {
        let (task, application) = (task.id.clone(), task.application.clone());
        Self { task, application, scores: vec![], unplayable: None }
    }

    /// Mean score; none without a rollout.
    pub fn mean(&self) -> Option<f64> {
        (!self.scores.is_empty()).then(|| self.scores.iter().sum::<f64>() / self.scores.len() as f64)
    }
}

/// What an examination found.
#[derive(Debug, Clone)]
pub struct Examined {
    /// By task, in the order they were given.
    pub tasks: Vec<TaskScores>,
    /// The episodes, in the same order.
    pub episodes: Vec<Vec<PlayedEpisode>>,
    /// How the collecting went.
    pub report: CollectReport,
}

/// Plays every task so many times.
pub fn examine(
    collector: &mut Collector,
    policy: &mut dyn Policy,
    tasks: &[Arc<Task>],
    examination: &Examination,
    progress: &mut (dyn FnMut(CollectEvent) + Send),
) -> Result<Examined, TrainError> {
    examine_some(collector, policy, tasks, |_| true, examination, progress)
}

/// Plays those of the tasks that are wanted, each with the draws that it has among all.
pub fn examine_some(
    collector: &mut Collector,
    policy: &mut dyn Policy,
    tasks: &[Arc<Task>],
    wanted: impl Fn(&Task) -> bool,
    examination: &Examination,
    progress: &mut (dyn FnMut(CollectEvent) + Send),
) -> Result<Examined, TrainError> {
    let played: Vec<(usize, &Arc<Task>)> =
        tasks.iter().enumerate().filter(|(_, task)| wanted(task)).collect();
    let plans = played.iter().map(|&(number, task)| plan(task, number as u64, examination)).collect();
    let collected = collector.collect(policy, plans, progress)?;
    let found = played
        .iter()
        .zip(&collected.groups)
        .map(|((_, task), group)| TaskScores {
            scores: group.episodes.iter().map(|one| one.trajectory.score).collect(),
            unplayable: group.bad_task.clone(),
            ..TaskScores::none(task)
        })
        .collect();
    let episodes = collected.groups.into_iter().map(|group| group.episodes).collect();
    Ok(Examined { tasks: found, episodes, report: collected.report })
}

fn plan(task: &Arc<Task>, number: u64, examination: &Examination) -> GroupPlan {
    let step = EXAMINATIONS + examination.number;
    let episode = |sample: usize| {
        let place = number << 32 | sample as u64;
        let sampling_seed = stream(examination.seed, Purpose::Sampling, step, place).next_u64();
        let world = sample as u64 % examination.worlds;
        EpisodePlan {
            id: EpisodeId::new(step, &task.id, sample),
            task: Arc::clone(task),
            world_seed: world_seed(world, sampling_seed, examination.faulty),
            sampling_seed,
            max_steps: examination.max_steps,
        }
    };
    let all = examination.samples + examination.refills;
    GroupPlan {
        task: Arc::clone(task),
        episodes: (0..examination.samples).map(episode).collect(),
        spares: (examination.samples..all).map(episode).collect(),
    }
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

/// The share of tasks of which at least one of `k` rollouts succeeds, estimated without bias; `None` if no task has so
/// many rollouts.
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

/// How many tasks have which share of successes: never, up to a fifth, ... always.
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
