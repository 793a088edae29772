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
    /// Said first to a model that is spoken to as UI-TARS.
    pub system_prompt: SystemPrompt,
    /// Tokens of a response at most; a longer one is cut off, and read as far as it goes.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_tokens: usize,
    /// Screenshots the model sees at once. In a longer episode older turns keep their words and lose their picture, and
    /// the episode is trained in slices, each in the context it was said in.
    #[schemars(range(min = 1, max = 1000))]
    pub max_screenshots: usize,
    /// Screenshots that lose their picture at once when there is one too many: in between, what the model has read stays
    /// as it is and need not be read again. 0 for half of `max_screenshots`.
    #[schemars(range(max = 1000))]
    pub window_advance: usize,
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
            system_prompt: SystemPrompt::Original,
            max_tokens: 512,
            max_screenshots: 15,
            window_advance: 0,
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

/// The first words to a model that is spoken to as UI-TARS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SystemPrompt {
    /// "Your are a helpful assistant.", as ARPO was trained.
    Original,
    /// "You are a helpful assistant."
    Corrected,
}

/// How weights are updated (AdamW).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OptimiserConfig {
    /// Learning rate after the warm-up.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: f64,
    /// How it falls over the run.
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
    /// Where the means of gradients are kept between updates.
    pub moments: Moments,
    /// Trajectories per update.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub trajectories_per_update: usize,
    /// Which trajectories of an iteration make up its batch.
    pub batch: Batch,
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
            moments: Moments::Auto,
            trajectories_per_update: 64,
            batch: Batch::All,
            epochs: 1,
        }
    }
}

impl OptimiserConfig {
    /// The learning rate of an update: the `update`-th of the run, counted from 0, when so much of the run is done
    /// (from 0 to 1). The warm-up counts updates; the schedule follows the progress, because how many updates a run
    /// will have is not known beforehand, and reaches 0 where the run ends.
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

/// Where the optimiser keeps the mean and the mean square of every gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Moments {
    /// On the device if there is room, else in the machine's memory.
    Auto,
    /// On the device.
    Device,
    /// In the machine's memory: each update moves them there and back.
    Host,
}

/// Which trajectories of an iteration are shared out among its updates. A trajectory whose advantage is 0 adds nothing
/// to the gradient and costs no pass, but it counts in the number of updates and in what the loss is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Batch {
    /// All of them, as in the original: 128 trajectories are always two updates of 64.
    All,
    /// Those of groups whose rewards differ: fewer updates, each of full strength.
    Informative,
}

/// How the learning rate falls over the run; the warm-up multiplies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// It stays.
    Constant,
    /// It falls in a straight line to 0 at the end of the run.
    Linear,
    /// It falls along a half cosine to 0 at the end of the run.
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

    fn rates(schedule: Schedule, places: &[(u64, f64)]) -> Vec<u32> {
        let config =
            OptimiserConfig { learning_rate: 1.0, warmup_updates: 4, schedule, ..OptimiserConfig::default() };
        places.iter().map(|&(at, done)| (config.learning_rate_at(at, done) * 1000.0).round() as u32).collect()
    }

    #[test]
    fn learning_rates_rise_and_fall() {
        let places = [(0, 0.0), (3, 0.0), (4, 0.25), (8, 0.5), (12, 1.0), (99, 1.5)];
        assert_eq!(rates(Schedule::Constant, &places), [250, 1000, 1000, 1000, 1000, 1000]);
        assert_eq!(rates(Schedule::Linear, &places), [250, 1000, 750, 500, 0, 0]);
        assert_eq!(rates(Schedule::Cosine, &places), [250, 1000, 854, 500, 0, 0]);
        let without_warmup = OptimiserConfig { learning_rate: 1.0, ..OptimiserConfig::default() };
        assert!((without_warmup.learning_rate_at(0, 0.0) - 1.0).abs() < 1e-12);
    }

    /// Iterations of 1, 3, 0, 2 and 5 updates: the rate falls by steps that add up to all of it, whatever comes.
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
        // none rises, and none falls by more than the iterations that it passes
        assert!(falls.iter().all(|&fall| fall > 0.0 && fall < 0.4), "{falls:?}");
        assert!((rates[rates.len() - 1] - 0.2 / 5.0).abs() < 1e-12, "one update before the end: {rates:?}");
    }
}
