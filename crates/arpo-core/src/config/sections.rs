//! The sections that steer what lies in other crates: the agent, the optimiser, the offline methods.

use crate::loss::offline::{DpoConfig, KtoConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the agent is shown and how its words are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// How the agent is spoken to.
    pub prompt: PromptStyle,
    /// Tokens of a response at most; a longer one is cut off and cannot be read.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_tokens: usize,
    /// Screenshots the model sees at once; older turns keep their words and lose their picture.
    #[schemars(range(min = 1, max = 1000))]
    pub max_screenshots: usize,
    /// A screenshot is enlarged to at least this many pixels ...
    #[schemars(range(min = 1))]
    pub min_pixels: u64,
    /// ... and reduced to at most this many.
    #[schemars(range(min = 784))]
    pub max_pixels: u64,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            prompt: PromptStyle::Uitars,
            max_tokens: 512,
            max_screenshots: 15,
            min_pixels: 3136,
            max_pixels: 2_116_800,
        }
    }
}

/// The words around a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptStyle {
    /// UI-TARS's: the actions are listed, a thought comes first.
    Uitars,
    /// The task and nothing else, for models that know no other.
    Short,
}

/// How weights are updated (AdamW).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OptimiserConfig {
    /// Learning rate after the warm-up.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// How it goes on from there.
    pub schedule: Schedule,
    /// Updates over which the learning rate rises from 0.
    pub warmup_updates: u64,
    /// Decay of the mean of gradients.
    #[schemars(range(min = 0.0, max = 0.9999))]
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub beta2: f64,
    /// Added to the root of the mean of squared gradients.
    #[schemars(range(min = 1e-12, max = 0.1))]
    pub epsilon: f64,
    /// Decoupled weight decay.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub weight_decay: f64,
    /// Gradients are scaled down to this norm. 0 switches it off.
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub max_grad_norm: f64,
    /// Trajectories per update.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub trajectories_per_update: usize,
    /// Times each batch of an iteration is gone through.
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
            trajectories_per_update: 64,
            epochs: 1,
        }
    }
}

impl OptimiserConfig {
    /// The learning rate of an update, counted from 0, of a run of `updates`: a straight line up to the warm-up's end,
    /// then the schedule, which reaches 0 where the run ends.
    pub fn learning_rate_at(&self, update: u64, updates: u64) -> f64 {
        if update < self.warmup_updates {
            return self.learning_rate * (update + 1) as f64 / self.warmup_updates as f64;
        }
        let after = updates.saturating_sub(self.warmup_updates).max(1) as f64;
        let done = ((update - self.warmup_updates) as f64 / after).min(1.0);
        self.learning_rate
            * match self.schedule {
                Schedule::Constant => 1.0,
                Schedule::Linear => 1.0 - done,
                Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
            }
    }
}

/// How the learning rate goes on after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// It stays.
    Constant,
    /// It falls in a straight line to 0 at the last iteration.
    Linear,
    /// It falls along a half cosine to 0 at the last iteration.
    Cosine,
}

/// The methods that learn from collected episodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OfflineConfig {
    /// Times the collected episodes are gone through.
    #[schemars(range(min = 1, max = 10_000))]
    pub epochs: usize,
    /// Preference of a success over a failure of the same task.
    pub dpo: DpoConfig,
    /// Successes are desirable, failures undesirable.
    pub kto: KtoConfig,
}

impl Default for OfflineConfig {
    fn default() -> Self {
        Self { epochs: 3, dpo: DpoConfig::default(), kto: KtoConfig::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_rates_rise_and_fall() {
        let rates = |schedule: Schedule, updates: [u64; 6]| {
            let config = OptimiserConfig {
                learning_rate: 1.0,
                warmup_updates: 4,
                schedule,
                ..OptimiserConfig::default()
            };
            updates.map(|update| (config.learning_rate_at(update, 12) * 1000.0).round() as u32)
        };
        let updates = [0, 3, 4, 8, 12, 99];
        assert_eq!(rates(Schedule::Constant, updates), [250, 1000, 1000, 1000, 1000, 1000]);
        assert_eq!(rates(Schedule::Linear, updates), [250, 1000, 1000, 500, 0, 0]);
        assert_eq!(rates(Schedule::Cosine, updates), [250, 1000, 1000, 500, 0, 0]);
        let without_warmup = OptimiserConfig { learning_rate: 1.0, ..OptimiserConfig::default() };
        assert!((without_warmup.learning_rate_at(0, 0) - 1.0).abs() < 1e-12);
    }
}
