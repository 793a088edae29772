//! Every option of a run: typed, documented, checked.
//!
//! A configuration is made of layers, later ones winning: the defaults, a preset, TOML files, `--set a.b=c`.
//! Each layer is held against the schema of [`Config`] before it counts, so a mistake is answered with the
//! layer, the key, the value and what would be right. The doc comments here are the documentation: the schema
//! carries them into `docs/configuration.md` (see [`mod@reference`]).
//!
//! Sections lie beside the code they steer; this file only puts them together.

mod check;
mod collecting;
mod layers;
mod osworld;
pub mod presets;
pub mod reference;
mod run;
mod sections;

pub use collecting::{CollectConfig, CollectMode, FaultsConfig, Order};
pub use layers::{Layer, resolve};
pub use osworld::{ChatConfig, DesktopChoice, GenerationChoice, NetworkChoice, OsworldConfig};
pub use run::{
    CheckpointConfig, DeviceChoice, EvaluateWhen, EvaluationConfig, FontChoice, ModelSection, ScreenConfig,
    SuiteChoice, TasksConfig, ThemeChoice,
};
pub use sections::{
    AgentConfig, Batch, Moments, OfflineConfig, OptimiserConfig, PromptStyle, Schedule, SystemPrompt,
};

use crate::advantage::AdvantageConfig;
use crate::effort::EffortConfig;
use crate::loss::{LossConfig, OldLogp};
use crate::replay::ReplayConfig;
use crate::reward::RewardConfig;
use crate::sampler::{SamplingConfig, TaskOrder};
use crate::selection::SelectionConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The resolved configuration of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// All randomness of a run follows from it.
    #[schemars(range(max = 4_294_967_295u32))]
    pub seed: u64,
    /// Collect-and-learn rounds of a run.
    #[schemars(range(min = 1))]
    pub iterations: u64,
    /// What is trained and where it is computed.
    pub model: ModelSection,
    /// The tasks of the run.
    pub tasks: TasksConfig,
    /// What the embedded desktop looks like, where it is not as the suite is meant.
    pub screen: ScreenConfig,
    /// OSWorld's tasks and the desktops they are played on, for `tasks.suite = "osworld"`.
    pub osworld: OsworldConfig,
    /// A chat server that acts: `arpo eval --policy chat`.
    pub chat: ChatConfig,
    /// What the agent is shown and how its words are read.
    pub agent: AgentConfig,
    /// How episodes are collected.
    pub collect: CollectConfig,
    /// Faults that are played on purpose, to see that a run survives them. Rates are per call of a desktop; a call has one
    /// fault at most.
    pub faults: FaultsConfig,
    /// How the tasks to train on are selected beforehand.
    pub selection: SelectionConfig,
    /// How tasks are drawn while training.
    pub sampling: SamplingConfig,
    /// How much is spent on a task.
    pub effort: EffortConfig,
    /// How a score becomes a reward.
    pub reward: RewardConfig,
    /// How rewards become advantages.
    pub advantage: AdvantageConfig,
    /// What is minimised.
    pub loss: LossConfig,
    /// When stored successes are trained on again.
    pub replay: ReplayConfig,
    /// How weights are updated.
    pub optimiser: OptimiserConfig,
    /// The methods that learn from collected episodes.
    pub offline: OfflineConfig,
    /// How often and on what the agent is judged while it is trained.
    pub evaluation: EvaluationConfig,
    /// How often the run is saved.
    pub checkpoints: CheckpointConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            iterations: 100,
            model: ModelSection::default(),
            tasks: TasksConfig::default(),
            screen: ScreenConfig::default(),
            osworld: OsworldConfig::default(),
            chat: ChatConfig::default(),
            agent: AgentConfig::default(),
            collect: CollectConfig::default(),
            faults: FaultsConfig::default(),
            selection: SelectionConfig::default(),
            sampling: SamplingConfig::default(),
            effort: EffortConfig::default(),
            reward: RewardConfig::default(),
            advantage: AdvantageConfig::default(),
            loss: LossConfig::default(),
            replay: ReplayConfig::default(),
            optimiser: OptimiserConfig::default(),
            offline: OfflineConfig::default(),
            evaluation: EvaluationConfig::default(),
            checkpoints: CheckpointConfig::default(),
        }
    }
}

/// A mistake in a configuration, as one line for the person who made it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{layer}: {problem}")]
pub struct ConfigError {
    /// Which layer: a preset, a file, `--set`.
    pub layer: String,
    /// The key, its value, and what would be right.
    pub problem: String,
}

impl Config {
    /// What no single key can be wrong about: rules between keys.
    fn check_together(&self) -> Result<(), String> {
        let LossConfig { clip_dual, .. } = self.loss;
        if clip_dual > 0.0 && clip_dual <= 1.0 {
            return Err(format!(
                "`loss.clip_dual` = {clip_dual}: expected a number above 1, or 0 to switch the dual clip off"
            ));
        }
        let AgentConfig { min_pixels, max_pixels, max_screenshots, window_advance, .. } = self.agent;
        if window_advance > max_screenshots {
            return Err(format!(
                "`agent.window_advance` = {window_advance}: expected at most `agent.max_screenshots` = {max_screenshots}"
            ));
        }
        if min_pixels > max_pixels {
            return Err(format!(
                "`agent.min_pixels` = {min_pixels}: expected at most `agent.max_pixels` = {max_pixels}"
            ));
        }
        let faults = self.faults.together();
        if faults > 1.0 {
            return Err(format!(
                "`faults` has rates that add up to {faults}: expected at most 1, because a call has one fault at most"
            ));
        }
        let stale = self.collect.mode == CollectMode::Overlapped;
        if stale && self.loss.old == OldLogp::Learner && self.loss.importance_truncation <= 0.0 {
            return Err(
                "`collect.mode` = \"overlapped\" plays with older weights than it learns with: expected a correction, \
                 `loss.old` = \"sampler\" or `loss.importance_truncation` = 2.0"
                    .into(),
            );
        }
        let ReplayConfig { enabled, injections, .. } = self.replay;
        let group = self.collect.group_size;
        if enabled && injections >= group {
            return Err(format!(
                "`replay.injections` = {injections}: expected less than `collect.group_size` = {group}, \
                 because a group needs a member of its own"
            ));
        }
        self.tasks.check()?;
        self.check_endless()
    }

    /// What a run in which no task comes twice cannot have.
    fn check_endless(&self) -> Result<(), String> {
        if !self.tasks.endless {
            return Ok(());
        }
        if self.sampling.order == TaskOrder::Weighted {
            return Err("`tasks.endless` = true: no task comes twice, so `sampling.order` = \"weighted\" has nothing to \
                        weigh: expected \"shuffled\""
                .into());
        }
        let EvaluationConfig { every, unseen, .. } = self.evaluation;
        if every > 0 && self.tasks.generated == 0 && unseen != EvaluateWhen::Always {
            return Err("`tasks.endless` = true with `tasks.generated` = 0 has no trained tasks to evaluate on: expected \
                        `evaluation.unseen` = \"always\", or `tasks.generated` = 64"
                .into());
        }
        Ok(())
    }

    /// As TOML that reads back as this configuration.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a configuration holds only what TOML can say")
    }
}
