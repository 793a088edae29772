//! Task selection: the paper's selection by baseline rollouts, and sampling weights that depend on a task's recent success
//! during training.

use crate::reward::RewardConfig;
use crate::task::TaskId;
use crate::task_sampler::TaskSamplingConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the training tasks are selected beforehand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SelectionConfig {
    /// Rollouts of the base model per task (the paper: 16).
    #[schemars(range(min = 1, max = 10_000))]
    pub rollouts_per_task: usize,
    /// Also drop tasks whose rollouts all succeed: they carry no learning signal.
    pub drop_always_solved: bool,
}

impl Default for SelectionConfig {
    fn default() -> Self {
        Self { rollouts_per_task: 16, drop_always_solved: false }
    }
}

/// The base model's scores on a task. Rollouts that ended in an environment error are not in `scores`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// The task.
    pub task: TaskId,
    /// The score of each rollout.
    pub scores: Vec<f64>,
}

/// Whether a task is trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Solved at least once.
    Kept,
    /// Every rollout failed.
    NeverSolved,
    /// Every rollout succeeded, and such tasks are dropped.
    AlwaysSolved,
    /// No success yet, and fewer rollouts than requested.
    Undecided,
}

/// The verdict on one task.
pub fn verdict(baseline: &Baseline, config: &SelectionConfig, reward: &RewardConfig) -> Verdict {
    let rollouts = baseline.scores.len();
    let successes = baseline.scores.iter().filter(|&&score| reward.is_success(score)).count();
    match successes {
        0 if rollouts < config.rollouts_per_task => Verdict::Undecided,
        0 => Verdict::NeverSolved,
        _ if config.drop_always_solved && successes == rollouts => Verdict::AlwaysSolved,
        _ => Verdict::Kept,
    }
}

/// The tasks to train on, in the order given.
pub fn selected_tasks(
    baselines: &[Baseline],
    config: &SelectionConfig,
    reward: &RewardConfig,
) -> Vec<TaskId> {
    let kept = |baseline: &&Baseline| verdict(baseline, config, reward) == Verdict::Kept;
    baselines.iter().filter(kept).map(|baseline| baseline.task.clone()).collect()
}

/// How often a task is sampled, relative to others, given its latest rollouts: most often where success and failure are
/// mixed, because only such groups carry a learning signal; rarely for a task whose whole window succeeded.
pub fn dynamic_weight(successes: usize, rollouts: usize, config: &TaskSamplingConfig) -> f64 {
    if rollouts >= config.window && successes == rollouts {
        return config.solved_weight;
    }
    // Laplace smoothing: a task without rollouts counts as one half
    let rate = (successes as f64 + 1.0) / (rollouts as f64 + 2.0);
    (4.0 * rate * (1.0 - rate)).max(config.unsolved_weight)
}

#[cfg(test)]
mod tests {
    use super::Verdict::{AlwaysSolved, Kept, NeverSolved, Undecided};
    use super::*;

    fn baseline(name: &str, scores: &[f64]) -> Baseline {
        Baseline { task: TaskId::new(name), scores: scores.to_vec() }
    }

    #[test]
    fn one_success_is_enough() {
        let config = SelectionConfig { rollouts_per_task: 4, ..SelectionConfig::default() };
        let tasks = [
            baseline("sometimes", &[0.0, 0.0, 0.11, 0.0]),
            baseline("never", &[0.0, 0.1, 0.0, 0.0]),
            baseline("always", &[1.0, 1.0, 0.5, 1.0]),
            baseline("too few", &[0.0]),
            baseline("few, but solved", &[1.0]),
            baseline("none", &[]),
        ];
        let reward = RewardConfig::default();
        let verdicts = |config: &SelectionConfig| tasks.each_ref().map(|task| verdict(task, config, &reward));
        assert_eq!(verdicts(&config), [Kept, NeverSolved, Kept, Undecided, Kept, Undecided]);
        let strict = SelectionConfig { drop_always_solved: true, ..config };
        assert_eq!(verdicts(&strict), [Kept, NeverSolved, AlwaysSolved, Undecided, AlwaysSolved, Undecided]);
        assert_eq!(selected_tasks(&tasks, &strict, &reward), [TaskId::new("sometimes")]);
    }

    #[test]
    fn the_middle_weighs_most() {
        let config = TaskSamplingConfig {
            window: 16,
            unsolved_weight: 0.25,
            solved_weight: 0.05,
            ..TaskSamplingConfig::default()
        };
        let weight = |successes, rollouts| dynamic_weight(successes, rollouts, &config);
        assert!((weight(0, 0) - 1.0).abs() < 1e-12);
        assert!((weight(8, 16) - 1.0).abs() < 1e-12);
        assert!(weight(2, 16) < weight(8, 16) && weight(14, 16) < weight(8, 16));
        assert!((weight(0, 16) - 0.25).abs() < 1e-12);
        assert!((weight(16, 16) - 0.05).abs() < 1e-12);
        assert!(weight(8, 8) > 0.05);
    }
}
