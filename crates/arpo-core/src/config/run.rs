//! The sections for a run as a whole: model, device, tasks, evaluations and checkpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The model that is trained, and its device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSection {
    /// A Hugging Face folder of a Qwen2.5-VL or Qwen3-VL model, or `pocket`: the small model built into the program.
    pub base: String,
    /// The device it runs on.
    pub device: DeviceChoice,
    /// Which GPU, from 0, in the order of `CUDA_VISIBLE_DEVICES`.
    #[schemars(range(max = 63))]
    pub gpu: usize,
    /// Freeze the vision tower: an update then costs less time and memory.
    pub freeze_vision: bool,
    /// Limit for the memory used on the device, in GiB; 0 for all of it. `arpo doctor --preset NAME` shows how it is divided.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub memory_gib: f64,
    /// Memory for activations kept between the forward and the backward pass, in GiB; what does not fit is recomputed. 0
    /// for as much as is free.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub activation_gib: f64,
    /// Maximum number of tokens in a micro-batch; a single slice of an episode may have more.
    #[schemars(range(min = 1))]
    pub micro_batch_tokens: usize,
    /// Memory for the KV cache of running episodes, in GiB. A synchronous run on a GPU frees it for the learner during
    /// updates. 0 for as much as is free.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub cache_gib: f64,
}

impl Default for ModelSection {
    fn default() -> Self {
        Self {
            base: "pocket".into(),
            device: DeviceChoice::Auto,
            gpu: 0,
            freeze_vision: false,
            memory_gib: 0.0,
            activation_gib: 2.0,
            micro_batch_tokens: 1 << 15,
            cache_gib: 0.5,
        }
    }
}

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceChoice {
    /// The GPU `model.gpu` if the model is large enough to gain from it, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU `model.gpu`.
    Cuda,
}

/// The tasks of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TasksConfig {
    /// The suite: the embedded desktop's tasks on small or large screens, or OSWorld's tasks.
    pub suite: SuiteChoice,
    /// Train on the tasks of this JSON file, or of the JSON files of this folder, on the suite's screens; empty for the
    /// suite's own tasks.
    pub files: String,
    /// Train on this many of the training tasks, spread over the applications; 0 for all.
    pub count: usize,
    /// Train on the tasks listed in this file: one id per line, as `arpo select` writes it, or one of OSWorld's own lists.
    /// `osworld-128` and `osworld-32` are the lists of the presets, `quick` is 64 tasks of the suite `pocket`. Empty for no list.
    pub list: String,
    /// Only these tasks, by `id` or `application/id`; empty for all. `--task` of `arpo eval` sets it.
    pub only: Vec<String>,
    /// Train on this many tasks generated from the suite's training templates, instead of the listed ones. A task is
    /// determined by its number alone; the run's `seed` decides the order. 0 for none.
    #[schemars(range(max = 1_000_000))]
    pub generated: usize,
    /// Train on an endless stream of generated tasks: no task is repeated, so replay and what `[effort]` knows of a task have
    /// no effect.
    /// `generated` is then the number of tasks, from the first, that are evaluated as training tasks.
    pub endless: bool,
    /// Number of environment seeds per task. With 1, everything that a task leaves open is the same at every visit.
    #[schemars(range(min = 1))]
    pub worlds: u64,
}

impl Default for TasksConfig {
    fn default() -> Self {
        Self {
            suite: SuiteChoice::Pocket,
            files: String::new(),
            count: 0,
            list: String::new(),
            only: vec![],
            generated: 0,
            endless: false,
            worlds: 1,
        }
    }
}

impl TasksConfig {
    /// Whether the training tasks are generated, neither listed nor named one by one.
    pub fn are_generated(&self) -> bool {
        self.endless || (self.generated > 0 && self.only.is_empty())
    }

    /// Changes the suite. OSWorld has no templates, so none of its tasks are generated.
    pub fn use_suite(&mut self, suite: SuiteChoice) {
        self.suite = suite;
        if suite == SuiteChoice::Osworld {
            (self.generated, self.endless) = (0, false);
        }
    }

    /// At most one key may define where tasks come from.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.generated == 0 && !self.endless {
            return Ok(());
        }
        let wanted = if self.endless {
            "`tasks.endless` = true".to_owned()
        } else {
            format!("`tasks.generated` = {}", self.generated)
        };
        if self.suite == SuiteChoice::Osworld {
            return Err(format!(
                "{wanted}: `tasks.suite` = \"osworld\" has no templates to generate tasks from: expected \"pocket\" or \"desktop\""
            ));
        }
        let other =
            [("files", &self.files), ("list", &self.list)].into_iter().find(|(_, value)| !value.is_empty());
        if let Some((key, value)) = other {
            return Err(format!(
                "{wanted} and `tasks.{key}` = {value:?} both define the training tasks: expected one of them (`tasks.{key}` = \"\")"
            ));
        }
        if self.count > 0 {
            return Err(format!(
                "{wanted} and `tasks.count` = {} both define the training tasks: expected one of them (`tasks.count` = 0)",
                self.count
            ));
        }
        Ok(())
    }
}

/// A suite of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SuiteChoice {
    /// One window at a time on 168x140 pixels.
    Pocket,
    /// Overlapping windows on 640x480 pixels and more.
    Desktop,
    /// OSWorld's, on containers or virtual machines; see `[osworld]`.
    Osworld,
}

/// The look of the embedded desktop, where it differs from the suite's default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScreenConfig {
    /// Width in pixels; 0 for the suite's.
    #[schemars(range(max = 3840))]
    pub width: u32,
    /// Height in pixels; 0 for the suite's.
    #[schemars(range(max = 2160))]
    pub height: u32,
    /// The colour theme.
    pub theme: ThemeChoice,
    /// The font of the desktop suite.
    pub font: FontChoice,
    /// Vary the order of buttons and entries and the positions of windows with the episode's seed.
    pub jitter: bool,
}

impl Default for ScreenConfig {
    fn default() -> Self {
        Self { width: 0, height: 0, theme: ThemeChoice::Suite, font: FontChoice::Suite, jitter: true }
    }
}

/// The colour theme of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThemeChoice {
    /// Light in the pocket suite, random in the desktop suite.
    Suite,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
    /// Random, from the episode's seed.
    Vary,
}

/// The font of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FontChoice {
    /// The pocket suite's own font; random in the desktop suite.
    Suite,
    /// A bitmap font.
    Pixel,
    /// A proportional font.
    Proportional,
    /// A monospace font.
    Monospace,
}

/// When and on which tasks the agent is evaluated during training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationConfig {
    /// Iterations between evaluations, in addition to one before the first iteration and one after the last. 0 for none.
    pub every: u64,
    /// Rollouts of each task.
    #[schemars(range(min = 1, max = 10_000))]
    pub samples: usize,
    /// Sampling temperature; 0 for greedy decoding.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub temperature: f64,
    /// Number of training tasks to evaluate on, spread evenly over them; 0 for all, or 64 if they are generated.
    pub tasks: usize,
    /// Also evaluate on 64 unseen tasks: tasks of the training templates that are never trained on. Not available with
    /// `tasks.files` or OSWorld. The best model is chosen by these tasks if tasks are generated and this is `"always"`, else
    /// by the training tasks.
    pub unseen: EvaluateWhen,
    /// Also evaluate on the held-out tasks, which come from other templates and are never trained on.
    pub held_out: EvaluateWhen,
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self {
            every: 10,
            samples: 4,
            temperature: 1.0,
            tasks: 0,
            unseen: EvaluateWhen::Always,
            held_out: EvaluateWhen::Always,
        }
    }
}

impl EvaluationConfig {
    /// Whether unseen tasks select the best model instead of training tasks.
    pub fn selects_by_unseen(&self, tasks: &TasksConfig) -> bool {
        tasks.are_generated() && self.unseen == EvaluateWhen::Always
    }
}

/// When the agent is evaluated on a set of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvaluateWhen {
    /// At every evaluation.
    Always,
    /// At the first and the last evaluation.
    Ends,
    /// Never.
    Never,
}

/// When checkpoints are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Iterations between checkpoints; the last one is always written.
    #[schemars(range(min = 1))]
    pub every: u64,
    /// How many checkpoints are kept, besides the best.
    #[schemars(range(min = 1, max = 10_000))]
    pub keep: usize,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 10, keep: 2 }
    }
}
