//! How much is spent on a task: rollouts and turns, from what it took before. Off unless asked for.

use crate::task::TaskId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How the effort follows success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EffortConfig {
    /// Collect further groups in an iteration until so many of them have rewards that differ; 0 takes what comes.
    pub informative_groups: usize,
    /// Further rounds of tasks an iteration may take for that.
    #[schemars(range(min = 1, max = 1000))]
    pub extra_rounds: usize,
    /// Rollouts of a task that is nearly always solved; 0 for the full group.
    pub solved_rollouts: usize,
    /// Share of successes among the latest rollouts from which on a task counts as nearly always solved.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub solved_above: f64,
    /// An episode may take so many times the turns of the longest of the task's latest successes; 0 for no cap but
    /// `collect.max_steps`.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub turns_factor: f64,
}

impl Default for EffortConfig {
    fn default() -> Self {
        Self {
            informative_groups: 0,
            extra_rounds: 4,
            solved_rollouts: 0,
            solved_above: 0.9,
            turns_factor: 0.0,
        }
    }
}

/// Rollouts that are remembered of a task.
const REMEMBERED: usize = 16;

/// Rollouts before a task can count as nearly always solved.
const FEWEST: usize = 8;

/// What tasks took.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// Turns of the latest rollouts by task; `None` for a failure.
    turns: BTreeMap<TaskId, VecDeque<Option<usize>>>,
}

impl Effort {
    /// Remembers a rollout.
    pub fn record(&mut self, task: &TaskId, success: bool, turns: usize) {
        let latest = self.turns.entry(task.clone()).or_default();
        latest.push_back(success.then_some(turns));
        while latest.len() > REMEMBERED {
            latest.pop_front();
        }
    }

    /// Rollouts the task's next group should have.
    pub fn rollouts(&self, task: &TaskId, group_size: usize, config: &EffortConfig) -> usize {
        let Some(latest) = self.turns.get(task).filter(|latest| latest.len() >= FEWEST) else {
            return group_size;
        };
        let solved = latest.iter().flatten().count() as f64 / latest.len() as f64;
        match config.solved_rollouts {
            // a group of one could not be compared
            fewer if fewer > 0 && solved >= config.solved_above => fewer.clamp(2, group_size.max(2)),
            _ => group_size,
        }
    }

    /// Turns the task's next episodes may take.
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
        // old successes are forgotten
        (0..16).for_each(|_| effort.record(&task, false, 15));
        assert_eq!(effort.turns(&task, 15, &config), 15);
    }
}
