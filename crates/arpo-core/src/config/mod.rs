//! Every option of a run: typed, documented, checked.
//!
//! A configuration is made of layers: the defaults, a preset, TOML files, `--set a.b=c`; later layers override earlier
//! ones. Each layer is checked against the schema of [`Config`] first, so that an error names the layer, the key, the
//! value and what was expected. The doc comments here are the documentation: the schema carries them into
//! `docs/configuration.md` (see [`mod@reference`]).
//!
//! Sections are defined beside the code they configure; this file only puts them together.

mod agent;
mod check;
mod cluster;
mod collecting;
mod generation;
mod layers;
mod learn;
mod logging;
mod offline;
mod optimiser;
mod osworld;
pub mod presets;
pub mod reference;
mod rollout;
mod run;

pub use agent::{AgentConfig, PromptLength, StyleChoice, SystemPrompt};
pub use cluster::{ClusterConfig, Workers};
pub use collecting::{CollectConfig, CollectMode, FaultsConfig, Order};
pub use layers::{Layer, resolve};
pub use learn::LearnConfig;
pub use logging::{LoggingConfig, TRACKERS};
pub use offline::OfflineConfig;
pub use optimiser::{Batch, Moments, OptimiserConfig, Schedule};
pub use osworld::{ChatConfig, DesktopChoice, NetworkChoice, OsworldConfig};
pub use rollout::{RolloutConfig, RolloutEngine, has_option};
pub use run::{
    CheckpointConfig, DeviceChoice, EvaluateWhen, EvaluationConfig, FontChoice, ModelSection, ScreenConfig,
    SuiteChoice, TasksConfig, ThemeChoice,
};

use crate::advantage::AdvantageConfig;
use crate::effort::EffortConfig;
use crate::loss::{LossConfig, OldLogp};
use crate::replay::ReplayConfig;
use crate::reward::RewardConfig;
use crate::selection::SelectionConfig;
use crate::task_sampler::{HistoryOf, TaskOrder, TaskSamplingConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pixels of the smallest image that a model sees: one feature of Qwen2.5-VL.
const SMALLEST_IMAGE: u64 = 28 * 28;

/// The resolved configuration of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Random seed. All randomness of a run is derived from it.
    #[schemars(range(max = 4_294_967_295u32))]
    pub seed: u64,
    /// Iterations of the run: each collects episodes and then updates the model.
    #[schemars(range(min = 1))]
    pub iterations: u64,
    /// The model that is trained, and its device.
    pub model: ModelSection,
    /// The tasks of the run.
    pub tasks: TasksConfig,
    /// The look of the embedded desktop, where it differs from the suite's default.
    pub screen: ScreenConfig,
    /// OSWorld's tasks and desktops, for `tasks.suite = "osworld"`.
    pub osworld: OsworldConfig,
    /// A chat server as the policy: `arpo eval --policy chat`.
    pub chat: ChatConfig,
    /// The agent's style, prompt, context and responses.
    pub agent: AgentConfig,
    /// How episodes are collected.
    pub collect: CollectConfig,
    /// What samples responses while training: the built-in engine, or inference servers.
    pub rollout: RolloutConfig,
    /// Desktops in other processes and on other machines.
    pub cluster: ClusterConfig,
    /// Fault injection, to test that a run survives failures. Rates are probabilities per call of a desktop; a call has at
    /// most one fault.
    pub faults: FaultsConfig,
    /// How the training tasks are selected beforehand.
    pub selection: SelectionConfig,
    /// How tasks are sampled during training.
    pub task_sampling: TaskSamplingConfig,
    /// How many rollouts and turns are spent on a task.
    pub effort: EffortConfig,
    /// How a score becomes a reward.
    pub reward: RewardConfig,
    /// How rewards become advantages.
    pub advantage: AdvantageConfig,
    /// The policy loss.
    pub loss: LossConfig,
    /// Experience replay: when stored successes are trained on again.
    pub replay: ReplayConfig,
    /// The optimiser (AdamW) and the batches.
    pub optimiser: OptimiserConfig,
    /// The processes that share the learner's work.
    pub learn: LearnConfig,
    /// The offline methods, which learn from collected episodes.
    pub offline: OfflineConfig,
    /// When and on which tasks the agent is evaluated during training.
    pub evaluation: EvaluationConfig,
    /// When checkpoints are written.
    pub checkpoints: CheckpointConfig,
    /// What a run keeps for viewers and sends to trackers, beside its metrics.
    pub logging: LoggingConfig,
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
            rollout: RolloutConfig::default(),
            cluster: ClusterConfig::default(),
            faults: FaultsConfig::default(),
            selection: SelectionConfig::default(),
            task_sampling: TaskSamplingConfig::default(),
            effort: EffortConfig::default(),
            reward: RewardConfig::default(),
            advantage: AdvantageConfig::default(),
            loss: LossConfig::default(),
            replay: ReplayConfig::default(),
            optimiser: OptimiserConfig::default(),
            learn: LearnConfig::default(),
            offline: OfflineConfig::default(),
            evaluation: EvaluationConfig::default(),
            checkpoints: CheckpointConfig::default(),
            logging: LoggingConfig::default(),
        }
    }
}

/// A mistake in a configuration, described in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{layer}: {problem}")]
pub struct ConfigError {
    /// The layer: a preset, a file, `--set`.
    pub layer: String,
    /// The key, its value, and what was expected.
    pub problem: String,
}

impl Config {
    /// Rules between keys, which no check of a single key covers.
    fn check_combinations(&self) -> Result<(), String> {
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
        if max_pixels > 0 && max_pixels < SMALLEST_IMAGE {
            return Err(format!(
                "`agent.max_pixels` = {max_pixels}: expected at least {SMALLEST_IMAGE}, or 0 for the model's own limit"
            ));
        }
        if max_pixels > 0 && min_pixels > max_pixels {
            return Err(format!(
                "`agent.min_pixels` = {min_pixels}: expected at most `agent.max_pixels` = {max_pixels}"
            ));
        }
        let faults = self.faults.total_rate();
        if faults > 1.0 {
            return Err(format!(
                "`faults` has rates that add up to {faults}: expected at most 1, because a call has at most one fault"
            ));
        }
        let stale = self.collect.mode == CollectMode::Overlapped;
        if stale && self.loss.old == OldLogp::Learner && self.loss.importance_truncation <= 0.0 {
            return Err(
                "`collect.mode` = \"overlapped\" samples with older weights than it trains: expected a correction, \
                 `loss.old` = \"sampler\" or `loss.importance_truncation` = 2.0"
                    .into(),
            );
        }
        match self.effort.probe_rollouts {
            1 => return Err("`effort.probe_rollouts` = 1: expected at least 2, because one rollout differs from none, or 0".into()),
            2.. if stale => {
                return Err("`effort.probe_rollouts` needs `collect.mode` = \"synchronous\": the rollouts that follow would \
                            wait for the next iteration's"
                    .into());
            }
            _ => {}
        }
        let ReplayConfig { enabled, injections, .. } = self.replay;
        if !self.replay.seed_from.is_empty() && (!enabled || self.tasks.endless) {
            let (key, value) = if enabled { ("tasks.endless", "false") } else { ("replay.enabled", "true") };
            return Err(format!(
                "`replay.seed_from` = {:?} fills a buffer that is not used: expected `{key}` = {value}",
                self.replay.seed_from
            ));
        }
        let group = self.collect.group_size;
        if enabled && injections >= group {
            return Err(format!(
                "`replay.injections` = {injections}: expected less than `collect.group_size` = {group}, \
                 because a group needs at least one fresh member"
            ));
        }
        let probes = self.effort.probe_rollouts;
        if probes > 0 && probes >= group {
            return Err(format!(
                "`effort.probe_rollouts` = {probes}: expected less than `collect.group_size` = {group}, or 0 for none"
            ));
        }
        if probes > 0 && self.advantage.step_weight > 0.0 {
            return Err(format!(
                "`effort.probe_rollouts` = {probes} stops groups of equal rewards, which `advantage.step_weight` = {} \
                 can learn from: expected one of them to be 0",
                self.advantage.step_weight
            ));
        }
        self.learn.check()?;
        if self.learn.is_split() && self.rollout.engine != RolloutEngine::Builtin {
            return Err(format!(
                "`learn.gpus` = {} leaves the other ranks to sample, while servers do that: expected 0, or \
                 `rollout.engine` = \"builtin\"",
                self.learn.gpus
            ));
        }
        if self.model.gpu > 0 && self.learn.local_ranks() > 1 {
            return Err(format!(
                "`model.gpu` = {}: expected 0, because the {} ranks of this machine take its GPUs in their order",
                self.model.gpu,
                self.learn.local_ranks()
            ));
        }
        self.tasks.check()?;
        self.rollout.check()?;
        self.logging.check()?;
        self.check_cluster()?;
        self.check_endless()
    }

    /// Rules for desktops on workers.
    fn check_cluster(&self) -> Result<(), String> {
        let has_workers = self.cluster.placement()? != Workers::None;
        if has_workers
            && self.tasks.suite == SuiteChoice::Osworld
            && self.osworld.desktop == DesktopChoice::Running
        {
            return Err(
                "`osworld.desktop` = \"running\" has desktops that are reached without workers: expected \
                        `cluster.workers` = \"\", or workers that start desktops of their own"
                    .into(),
            );
        }
        Ok(())
    }

    /// Rules for runs that never repeat a task.
    fn check_endless(&self) -> Result<(), String> {
        if !self.tasks.endless {
            return Ok(());
        }
        let TaskSamplingConfig { order, history, .. } = self.task_sampling;
        if order == TaskOrder::Weighted && history == HistoryOf::Task {
            return Err("`tasks.endless` = true: no task is repeated, so `task_sampling.order` = \"weighted\" has no history to \
                        use: expected \"shuffled\", or `task_sampling.history` = \"template\""
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
        toml::to_string(self).expect("every value of a configuration can be written as TOML")
    }
}
