//! The section `optimiser`: learning rates, moments and what a batch is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The optimiser (AdamW) and the batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OptimiserConfig {
    /// Learning rate after the warm-up.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// How the learning rate decays over the run.
    pub schedule: Schedule,
    /// Updates over which the learning rate rises from 0.
    pub warmup_updates: u64,
    /// Decay rate of the first moment.
    #[schemars(range(min = 0.0, max = 0.9999))]
    pub beta1: f64,
    /// Decay rate of the second moment.
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub beta2: f64,
    /// Added to the denominator for numerical stability.
    #[schemars(range(min = 1e-12, max = 0.1))]
    pub epsilon: f64,
    /// Decoupled weight decay.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
    /// Gradient clipping: the maximum global norm. 0 switches it off.
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub max_grad_norm: f64,
    /// Where the optimiser's moments are kept between updates.
    pub moments: Moments,
    /// Trajectories per optimiser update.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub trajectories_per_update: usize,
    /// Which trajectories of an iteration make up its batch.
    pub batch: Batch,
    /// First-K-valid: train on the first this many informative groups of an iteration, in the order of their tasks, and
    /// leave further ones out; 0 for all. With `effort.informative_groups` = K as many groups
    /// teach in each iteration.
    pub first_groups: usize,
    /// Passes over the batch of an iteration.
    #[schemars(range(min = 1, max = 1000))]
    pub epochs: usize,
}

impl Default for OptimiserConfig {
    fn default() -> Self {
        Self {
            learning_rate: 1e-6,
            schedule: Schedule::Constant,
            warmup_updates: 0,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            max_grad_norm: 1.0,
            moments: Moments::Auto,
            trajectories_per_update: 64,
            batch: Batch::All,
            first_groups: 0,
            epochs: 1,
        }
    }
}

impl OptimiserConfig {
    /// The learning rate of the `update`-th update of the run, counted from 0, at this progress of the run (from 0 to 1).
    /// The warm-up counts updates. The schedule follows the progress, because the number of updates is not known
    /// beforehand, and reaches 0 at the end of the run.
    pub fn learning_rate_at(&self, update: u64, progress: f64) -> f64 {
        let warm = ((update + 1) as f64 / self.warmup_updates.max(1) as f64).min(1.0);
        let done = progress.clamp(0.0, 1.0);
        let decayed = match self.schedule {
            Schedule::Constant => 1.0,
            Schedule::Linear => 1.0 - done,
            Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
        };
        self.learning_rate * warm * decayed
    }
}

/// Where the optimiser keeps its first and second moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Moments {
    /// On the device if they fit, else in host memory.
    Auto,
    /// On the device.
    Device,
    /// In host memory: each update copies them to the device and back.
    Host,
}

/// Which trajectories of an iteration form its batch. A trajectory with advantage 0 adds nothing to the gradient and is
/// skipped in the forward and backward pass, but it counts in the number of updates and in the loss normaliser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Batch {
    /// All trajectories, as in the released code: 128 trajectories are always two updates of 64.
    All,
    /// Only those of groups whose rewards differ: fewer updates, each with a full batch.
    Informative,
}

/// How the learning rate decays over the run; it is multiplied by the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// No decay.
    Constant,
    /// Linear decay to 0 at the end of the run.
    Linear,
    /// Cosine decay to 0 at the end of the run.
    Cosine,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(schedule: Schedule, points: &[(u64, f64)]) -> Vec<u32> {
        let config =
            OptimiserConfig { learning_rate: 1.0, warmup_updates: 4, schedule, ..OptimiserConfig::default() };
        points.iter().map(|&(at, done)| (config.learning_rate_at(at, done) * 1000.0).round() as u32).collect()
    }

    #[test]
    fn learning_rates_rise_and_fall() {
        let points = [(0, 0.0), (3, 0.0), (4, 0.25), (8, 0.5), (12, 1.0), (99, 1.5)];
        assert_eq!(rates(Schedule::Constant, &points), [250, 1000, 1000, 1000, 1000, 1000]);
        assert_eq!(rates(Schedule::Linear, &points), [250, 1000, 750, 500, 0, 0]);
        assert_eq!(rates(Schedule::Cosine, &points), [250, 1000, 854, 500, 0, 0]);
        let without_warmup = OptimiserConfig { learning_rate: 1.0, ..OptimiserConfig::default() };
        assert!((without_warmup.learning_rate_at(0, 0.0) - 1.0).abs() < 1e-12);
    }

    /// Iterations of 1, 3, 0, 2 and 5 updates: the rate decays over the run, however many updates an iteration has.
    #[test]
    fn schedules_follow_the_run_however_many_updates_iterations_have() {
        let config =
            OptimiserConfig { learning_rate: 1.0, schedule: Schedule::Linear, ..OptimiserConfig::default() };
        let iterations = [1u64, 3, 0, 2, 5];
        let mut rates = vec![];
        for (iteration, &updates) in iterations.iter().enumerate() {
            for number in 0..updates {
                let progress = (iteration as f64 + number as f64 / updates as f64) / iterations.len() as f64;
                rates.push(config.learning_rate_at(rates.len() as u64, progress));
            }
        }
        assert!((rates[0] - 1.0).abs() < 1e-12);
        let falls: Vec<f64> = rates.windows(2).map(|pair| pair[0] - pair[1]).collect();
        // the rate never rises, and never falls by more than the share of the iterations passed
        assert!(falls.iter().all(|&fall| fall > 0.0 && fall < 0.4), "{falls:?}");
        assert!((rates[rates.len() - 1] - 0.2 / 5.0).abs() < 1e-12, "one update before the end: {rates:?}");
    }
}
