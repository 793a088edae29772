//! How many rollouts and turns are spent on a task, based on its recent rollouts. Off by default.

use crate::task::TaskId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How many rollouts and turns are spent on a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EffortConfig {
    /// Collect further groups in an iteration until this many have rewards that differ; 0 switches it off.
    pub informative_groups: usize,
    /// Maximum number of further rounds of tasks in an iteration for `informative_groups`.
    #[schemars(range(min = 1, max = 1000))]
    pub extra_rounds: usize,
    /// Rollouts of a group that are collected first, at least 2; the others follow only if the rewards of the first differ. 0
    /// collects all at once.
    pub probe_rollouts: usize,
    /// Rollouts of a task that is nearly always solved; 0 for the full group size.
    pub solved_rollouts: usize,
    /// A task counts as nearly always solved from this success rate of its latest rollouts on.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub solved_above: f64,
    /// Step limit of a task, as a multiple of the turns of its longest recent success; 0 for no limit besides
    /// `collect.max_steps`.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub turns_factor: f64,
}

impl Default for EffortConfig {
    fn default() -> Self {
        Self {
            informative_groups: 0,
            extra_rounds: 4,
            probe_rollouts: 0,
            solved_rollouts: 0,
            solved_above: 0.9,
            turns_factor: 0.0,
        }
    }
}

/// Latest rollouts of a task that count.
const WINDOW: usize = 16;

/// Rollouts needed before a task can count as nearly always solved.
const MIN_ROLLOUTS: usize = 8;

/// The latest rollouts of every task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// Turns of the latest rollouts by task; `None` for a failure.
    turns: BTreeMap<TaskId, VecDeque<Option<usize>>>,
}

impl Effort {
    /// Records a rollout.
    pub fn record(&mut self, task: &TaskId, success: bool, turns: usize) {
        let latest = self.turns.entry(task.clone()).or_default();
        latest.push_back(success.then_some(turns));
        while latest.len() > WINDOW {
            latest.pop_front();
        }
    }

    /// Number of rollouts in the task's next group.
    pub fn rollouts(&self, task: &TaskId, group_size: usize, config: &EffortConfig) -> usize {
        let Some(latest) = self.turns.get(task).filter(|latest| latest.len() >= MIN_ROLLOUTS) else {
            return group_size;
        };
        let solved = latest.iter().flatten().count() as f64 / latest.len() as f64;
        match config.solved_rollouts {
            // a group of one has no advantage
            fewer if fewer > 0 && solved >= config.solved_above => fewer.clamp(2, group_size.max(2)),
            _ => group_size,
        }
    }

    /// Step limit of the task's next episodes.
    pub fn turns(&self, task: &TaskId, max_steps: usize, config: &EffortConfig) -> usize {
        let longest = self.turns.get(task).and_then(|latest| latest.iter().flatten().max());
        match longest {
            Some(&longest) if config.turns_factor > 0.0 => ((longest as f64 * config.turns_factor).ceil()
                as usize)
                .clamp(longest, max_steps.max(longest)),
            _ => max_steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_follows_success() {
        let task = TaskId::new("t");
        let config = EffortConfig { solved_rollouts: 3, turns_factor: 1.5, ..EffortConfig::default() };
        let mut effort = Effort::default();
        assert_eq!((effort.rollouts(&task, 8, &config), effort.turns(&task, 15, &config)), (8, 15));
        (0..7).for_each(|_| effort.record(&task, true, 4));
        assert_eq!((effort.rollouts(&task, 8, &config), effort.turns(&task, 15, &config)), (8, 6));
        effort.record(&task, true, 5);
        assert_eq!((effort.rollouts(&task, 8, &config), effort.turns(&task, 15, &config)), (3, 8));
        assert_eq!(effort.turns(&task, 6, &config), 6);
        effort.record(&task, false, 15);
        assert_eq!(effort.rollouts(&task, 8, &config), 8);
        let off = EffortConfig::default();
        assert_eq!((effort.rollouts(&task, 8, &off), effort.turns(&task, 15, &off)), (8, 15));
        // old successes drop out
        (0..16).for_each(|_| effort.record(&task, false, 15));
        assert_eq!(effort.turns(&task, 15, &config), 15);
    }
}
