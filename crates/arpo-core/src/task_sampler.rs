//! The task sampler: deterministic, and exactly resumable from its serialised form.
//!
//! Either every task once per pass, reshuffled for each pass, or by weights that depend on recent success (see
//! [`dynamic_weight`]). A batch never contains a task twice.

use crate::random::{Purpose, stream};
use crate::selection::dynamic_weight;
use crate::task::TaskId;
use rand::RngExt;
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How tasks are sampled during training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskSamplingConfig {
    /// The order of tasks.
    pub order: TaskOrder,
    /// Whose latest rollouts `order = "weighted"` uses.
    pub history: HistoryOf,
    /// Number of latest rollouts of a task, or of a template, that `order = "weighted"` uses.
    #[schemars(range(min = 1, max = 10_000))]
    pub window: usize,
    /// Minimum weight of a task that is not always solved; tasks with mixed results have up to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub unsolved_weight: f64,
    /// Weight of a task whose whole window succeeded: small, so that it costs little and a regression is still noticed.
    /// With 0 such a task is sampled only if no other task is left.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub solved_weight: f64,
}

impl Default for TaskSamplingConfig {
    fn default() -> Self {
        Self {
            order: TaskOrder::Shuffled,
            history: HistoryOf::Task,
            window: 32,
            unsolved_weight: 0.25,
            solved_weight: 0.02,
        }
    }
}

/// The order of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskOrder {
    /// Every task once per pass, reshuffled for each pass.
    Shuffled,
    /// By weight: tasks with mixed results come more often, always solved ones rarely.
    Weighted,
}

/// Whose rollouts say how often a task is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistoryOf {
    /// Those of the task itself: for tasks that come back often.
    Task,
    /// Those of all tasks of its template, or of its application where tasks have no templates: for thousands of generated
    /// tasks, and for an endless stream of them.
    Template,
}

impl TaskSamplingConfig {
    /// Whether the success of templates decides how often their tasks are sampled.
    pub fn weighs_templates(&self) -> bool {
        self.order == TaskOrder::Weighted && self.history == HistoryOf::Template
    }
}

/// Samples tasks. The serialised form is complete: a sampler that is read back continues exactly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSampler {
    seed: u64,
    tasks: Vec<TaskId>,
    /// Batches sampled so far.
    batches: u64,
    /// Passes begun so far.
    passes: u64,
    /// The remaining tasks of this pass.
    queue: VecDeque<TaskId>,
    /// Whether each task's latest rollouts succeeded, oldest first.
    history: BTreeMap<TaskId, VecDeque<bool>>,
}

impl TaskSampler {
    /// A new sampler. Duplicate tasks count once.
    pub fn new(tasks: impl IntoIterator<Item = TaskId>, seed: u64) -> Self {
        // sorted, so that the order in which a suite lists its tasks does not matter
        let tasks: Vec<TaskId> = tasks.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let (queue, history) = (VecDeque::new(), BTreeMap::new());
        Self { seed, tasks, batches: 0, passes: 0, queue, history }
    }

    /// All tasks, in their order.
    pub fn tasks(&self) -> &[TaskId] {
        &self.tasks
    }

    /// The next `count` tasks, all different; fewer only if there are fewer tasks.
    pub fn next_batch(&mut self, count: usize, config: &TaskSamplingConfig) -> Vec<TaskId> {
        let count = count.min(self.tasks.len());
        let batch = match config.order {
            TaskOrder::Shuffled => self.next_of_pass(count),
            TaskOrder::Weighted => self.sample_by_weight(count, |task| self.weight(task, config)),
        };
        self.batches += 1;
        batch
    }

    /// The same by these weights.
    pub fn next_batch_by(&mut self, count: usize, weight: impl Fn(&TaskId) -> f64) -> Vec<TaskId> {
        let batch = self.sample_by_weight(count.min(self.tasks.len()), weight);
        self.batches += 1;
        batch
    }

    /// Records the result of a rollout of a task.
    pub fn record(&mut self, task: &TaskId, success: bool, config: &TaskSamplingConfig) {
        let history = self.history.entry(task.clone()).or_default();
        history.push_back(success);
        while history.len() > config.window {
            history.pop_front();
        }
    }

    /// How often a task is sampled, relative to others, with `order = "weighted"`.
    pub fn weight(&self, task: &TaskId, config: &TaskSamplingConfig) -> f64 {
        let (successes, rollouts) = self
            .history
            .get(task)
            .map_or((0, 0), |history| (history.iter().filter(|&&success| success).count(), history.len()));
        dynamic_weight(successes, rollouts, config)
    }

    fn next_of_pass(&mut self, count: usize) -> Vec<TaskId> {
        let mut batch = Vec::with_capacity(count);
        while batch.len() < count {
            if self.queue.is_empty() {
                let mut order = self.tasks.clone();
                order.shuffle(&mut stream(self.seed, Purpose::Tasks, self.passes, 0));
                // tasks already in this batch go last, so that no batch contains a task twice
                order.sort_by_key(|task| batch.contains(task));
                self.queue = order.into();
                self.passes += 1;
            }
            batch.extend(self.queue.pop_front());
        }
        batch
    }

    fn sample_by_weight(&self, count: usize, weight: impl Fn(&TaskId) -> f64) -> Vec<TaskId> {
        let mut random = stream(self.seed, Purpose::Tasks, self.batches, 1);
        let mut rest: Vec<(&TaskId, f64)> = self.tasks.iter().map(|task| (task, weight(task))).collect();
        let mut batch = Vec::with_capacity(count);
        while batch.len() < count {
            let total: f64 = rest.iter().map(|(_, weight)| weight).sum();
            if total <= 0.0 {
                // only tasks of weight 0 are left: fill the batch from them, with equal weights
                for (_, weight) in &mut rest {
                    *weight = 1.0;
                }
                continue;
            }
            let mut point = random.random::<f64>() * total;
            let found = rest.iter().position(|(_, weight)| {
                point -= weight;
                point < 0.0
            });
            // rounding may leave the point just beyond the last weight
            let drawn =
                found.unwrap_or_else(|| rest.iter().rposition(|(_, weight)| *weight > 0.0).unwrap_or(0));
            batch.push(rest.remove(drawn).0.clone());
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(tasks: usize) -> TaskSampler {
        TaskSampler::new((0..tasks).map(|i| TaskId::new(format!("t{i}"))), 11)
    }

    #[test]
    fn a_pass_holds_every_task_once() {
        let config = TaskSamplingConfig::default();
        let mut sampler = sampler(12);
        for _ in 0..3 {
            let mut pass: Vec<TaskId> = (0..3).flat_map(|_| sampler.next_batch(4, &config)).collect();
            pass.sort();
            assert_eq!(pass, sampler.tasks);
        }
    }

    #[test]
    fn batches_across_passes_have_no_task_twice_and_lose_none() {
        let config = TaskSamplingConfig::default();
        let mut sampler = sampler(7);
        let mut counts = BTreeMap::<TaskId, usize>::new();
        for _ in 0..7 {
            let batch = sampler.next_batch(5, &config);
            assert_eq!(batch.iter().collect::<BTreeSet<_>>().len(), 5);
            for task in batch {
                *counts.entry(task).or_default() += 1;
            }
        }
        assert!(counts.values().all(|&count| count == 5), "{counts:?}");
    }

    #[test]
    fn more_than_there_is_gives_what_there_is() {
        for order in [TaskOrder::Shuffled, TaskOrder::Weighted] {
            let config = TaskSamplingConfig { order, ..TaskSamplingConfig::default() };
            assert_eq!(sampler(3).next_batch(10, &config).len(), 3);
            assert!(sampler(0).next_batch(10, &config).is_empty());
        }
    }

    #[test]
    fn solved_tasks_are_skipped_while_others_are_left() {
        let config = TaskSamplingConfig {
            order: TaskOrder::Weighted,
            window: 4,
            solved_weight: 0.0,
            ..TaskSamplingConfig::default()
        };
        let mut sampler = sampler(6);
        let solved = TaskId::new("t2");
        (0..4).for_each(|_| sampler.record(&solved, true, &config));
        for _ in 0..50 {
            assert!(!sampler.next_batch(5, &config).contains(&solved));
        }
        assert!(sampler.next_batch(6, &config).contains(&solved));
    }

    /// With a weight above 0 a solved task is still sampled now and then, and its weight recovers when it fails again.
    #[test]
    fn a_regression_is_noticed() {
        let config =
            TaskSamplingConfig { order: TaskOrder::Weighted, window: 4, ..TaskSamplingConfig::default() };
        let mut sampler = sampler(6);
        let solved = TaskId::new("t2");
        (0..4).for_each(|_| sampler.record(&solved, true, &config));
        let sampled = (0..5000).filter(|_| sampler.next_batch(1, &config).contains(&solved)).count();
        assert!((1..200).contains(&sampled), "{sampled} of 5000");
        sampler.record(&solved, false, &config);
        assert!(sampler.weight(&solved, &config) > 0.5);
    }

    #[test]
    fn a_sampler_resumed_from_json_continues_exactly() {
        for order in [TaskOrder::Shuffled, TaskOrder::Weighted] {
            let config = TaskSamplingConfig { order, ..TaskSamplingConfig::default() };
            let mut original = sampler(9);
            for round in 0..20 {
                let json = serde_json::to_string(&original).unwrap();
                let mut resumed: TaskSampler = serde_json::from_str(&json).unwrap();
                assert_eq!(resumed, original);
                let batch = original.next_batch(4, &config);
                assert_eq!(resumed.next_batch(4, &config), batch);
                for task in &batch {
                    original.record(task, round % 3 == 0, &config);
                }
            }
        }
    }
}
