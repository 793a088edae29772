//! The sections that steer a run as a whole: what is trained, where, on which tasks, how often it is judged and saved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is trained and where it is computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSection {
    /// A Hugging Face folder of a Qwen2.5-VL model, or `pocket`: the small model that the program carries in itself.
    pub base: String,
    /// Where it is computed.
    pub device: DeviceChoice,
    /// Leave the vision tower as it is: an update then costs less time and memory.
    pub freeze_vision: bool,
    /// Memory of the device that may be used, in GiB; 0 for all of it. `arpo doctor --preset NAME` shows how it is shared out.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub memory_gib: f64,
    /// Memory for what is kept between the forward and the backward pass, in GiB; what does not fit is computed again. 0
    /// for what there is.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub activation_gib: f64,
    /// Tokens of a micro-batch of the learner, unless a single slice of an episode has more.
    #[schemars(range(min = 1))]
    pub micro_batch_tokens: usize,
    /// Memory for keys and values of episodes under way, in GiB; a synchronous run on a GPU gives it to the learner in
    /// between. 0 for what there is.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub cache_gib: f64,
}

impl Default for ModelSection {
    fn default() -> Self {
        Self {
            base: "pocket".into(),
            device: DeviceChoice::Auto,
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
    /// The first GPU if there is one that works and the model is large enough to gain from it, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The first GPU.
    Cuda,
}

/// The tasks of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TasksConfig {
    /// Which tasks: the embedded desktop's on its small screens or its large ones, or OSWorld's.
    pub suite: SuiteChoice,
    /// Train on the tasks of this JSON file, or of the JSON files of this folder, on the suite's screens; empty for the
    /// suite's own tasks.
    pub files: String,
    /// Train on so many of the training tasks, spread over the applications; 0 for all.
    pub count: usize,
    /// Train on the tasks this file lists, one id a line, as `arpo select` writes it, or, for OSWorld, as its own lists
    /// are; `quick`, `osworld-128`, `osworld-32`: the lists of the presets; empty for no list.
    pub list: String,
    /// Train on so many tasks that the suite's training templates make, instead of the listed ones. The task of a number
    /// is the same in every run; the run's `seed` decides when it comes. 0 for none.
    #[schemars(range(max = 1_000_000))]
    pub generated: usize,
    /// Train on generated tasks without end: every visit has a new one. Nothing comes back, so replay and what `[effort]`
    /// learns of a task have nothing to do. `generated` is then how many of the first are evaluated as trained ones.
    pub endless: bool,
    /// Desktops a task is met on: 1 keeps everything that the task leaves open as it was first.
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
            generated: 0,
            endless: false,
            worlds: 1,
        }
    }
}

impl TasksConfig {
    /// Whether the tasks to train on are generated, not listed.
    pub fn are_generated(&self) -> bool {
        self.generated > 0 || self.endless
    }

    /// The keys that say where tasks come from: one of them.
    pub(super) fn check(&self) -> Result<(), String> {
        if !self.are_generated() {
            return Ok(());
        }
        let wanted = if self.endless {
            "`tasks.endless` = true".to_owned()
        } else {
            format!("`tasks.generated` = {}", self.generated)
        };
        if self.suite == SuiteChoice::Osworld {
            return Err(format!(
                "{wanted}: `tasks.suite` = \"osworld\" has no templates to make tasks with: expected \"pocket\" or \"desktop\""
            ));
        }
        let other =
            [("files", &self.files), ("list", &self.list)].into_iter().find(|(_, value)| !value.is_empty());
        if let Some((key, value)) = other {
            return Err(format!(
                "{wanted} and `tasks.{key}` = {value:?} both say what to train on: expected one of them (`tasks.{key}` = \"\")"
            ));
        }
        if self.count > 0 {
            return Err(format!(
                "{wanted} and `tasks.count` = {} both say what to train on: expected one of them (`tasks.count` = 0)",
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

/// What the embedded desktop looks like, where it is not as the suite is meant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScreenConfig {
    /// Pixels across; 0 for the suite's.
    #[schemars(range(max = 3840))]
    pub width: u32,
    /// Pixels down; 0 for the suite's.
    #[schemars(range(max = 2160))]
    pub height: u32,
    /// Colours.
    pub theme: ThemeChoice,
    /// The font of the desktop suite.
    pub font: FontChoice,
    /// Order of buttons and entries and places of windows vary with the episode's seed.
    pub jitter: bool,
}

impl Default for ScreenConfig {
    fn default() -> Self {
        Self { width: 0, height: 0, theme: ThemeChoice::Suite, font: FontChoice::Suite, jitter: true }
    }
}

/// Colours of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThemeChoice {
    /// Light in the pocket suite, either in the desktop suite.
    Suite,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
    /// Drawn from the episode's seed.
    Vary,
}

/// Font of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FontChoice {
    /// The pocket suite's own, any in the desktop suite.
    Suite,
    /// Coarse and crisp.
    Pixel,
    /// Letters of different width.
    Proportional,
    /// Letters of equal width.
    Monospace,
}

/// How often and on what the agent is judged while it is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationConfig {
    /// Iterations between evaluations; one comes before the first and one after the last. 0 for none at all.
    pub every: u64,
    /// Rollouts of each task.
    #[schemars(range(min = 1, max = 10_000))]
    pub samples: usize,
    /// Sampling temperature; 0 always takes the likeliest token.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub temperature: f64,
    /// On so many of the training tasks, spread evenly over them; 0 for all.
    pub tasks: usize,
    /// Also on 64 other tasks of the trained templates, which are never trained on. Not with `tasks.files`, nor OSWorld.
    /// Where tasks are generated and this is `"always"`, the best model is the one that does best here, else the one that
    /// does best on the training tasks.
    pub unseen: EvaluateWhen,
    /// Also on the held-out tasks, which are of other templates and never trained on.
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

/// When the agent is judged on a set of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvaluateWhen {
    /// At every evaluation.
    Always,
    /// At the first and the last.
    Ends,
    /// Not at all.
    Never,
}

/// How often a run is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Iterations between checkpoints; the last one is always written.
    #[schemars(range(min = 1))]
    pub every: u64,
    /// How many are kept, besides the best.
    #[schemars(range(min = 1, max = 10_000))]
    pub keep: usize,
    /// Write the episodes of every so many iterations to the run folder, with their screenshots; 0 for none.
    pub episodes_every: u64,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 10, keep: 2, episodes_every: 0 }
    }
}
