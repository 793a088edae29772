//! Supervised training in phases, as a model of a million parameters needs them: the vision tower learns letters; then, with
//! the tower as it is, the language model learns from many grounding questions about screens, then from whole episodes of the
//! oracle mixed with some questions. From episodes alone, a model learns the form of a response but not where things are.

mod batches;
mod desktops;
mod evaluation;
pub mod fresh;
mod letters;
mod names;
mod precision;
mod reading;
pub mod resuming;
pub mod run;

pub use batches::{Batches, DemonstrationBatch, UpdateBatch, batches, makers};
pub use letters::LetterBatch;
pub use names::NamesKnown;
pub use precision::Precision;
pub use reading::Reading;

use crate::TrainError;
use crate::dialogue::Assembled;
use crate::style_choice;
use arpo_agent::style::AgentStyle;
use arpo_agent::window::ScreenshotWindow;
use arpo_env::tasks::Suite;
use arpo_model::training::step::{LossGradient, Updater};
use arpo_model::training::{MicroBatch, SequenceInput};
use serde::Serialize;
use std::collections::BTreeMap;

/// Largest weight of an application or template: each is repeated as often in a list.
const MAX_WEIGHT: u32 = 1000;

/// The family of a fresh model, which also decides how it acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Family {
    /// In the style of UI-TARS.
    #[serde(rename = "qwen2.5-vl")]
    Qwen25Vl,
    /// Through `computer_use`.
    #[serde(rename = "qwen3-vl")]
    Qwen3Vl,
}

impl Family {
    /// The style of its agents, with a window that holds every demonstration.
    pub fn style(self) -> AgentStyle {
        let window = ScreenshotWindow::new(32, 0);
        match self {
            Self::Qwen25Vl => style_choice::short_uitars(window),
            Self::Qwen3Vl => style_choice::short_computer_use(window, 999),
        }
    }

    /// Its name in `config.json`.
    fn model_type(self) -> &'static str {
        match self {
            Self::Qwen25Vl => "qwen2_5_vl",
            Self::Qwen3Vl => "qwen3_vl",
        }
    }

    /// Tokens of a response at most: a tool call is longer, and some actions are two calls.
    fn max_tokens(self) -> usize {
        match self {
            Self::Qwen25Vl => 24,
            Self::Qwen3Vl => 48,
        }
    }
}

/// Options of supervised training.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SupervisedOptions {
    /// The suite of the tasks.
    pub suite: Suite,
    /// The family of the model.
    pub family: Family,
    /// The model to begin with, by its name or folder, instead of an untrained one. Its vision tower stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A `config.json` in Hugging Face's layout with the dimensions of the model, instead of those of its suite and family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<String>,
    /// Updates of the vision tower alone, on letters: the first phase, after which it stays as it is. Without this phase the tower of
    /// an untrained model learns with the language model.
    pub letter_updates: u64,
    /// Updates on questions only: the second phase.
    pub grounding_updates: u64,
    /// Updates in all.
    pub updates: u64,
    /// Screens with questions in an update.
    pub screens: usize,
    /// Episodes in an update.
    pub episodes: usize,
    /// Share of updates on questions in the last phase.
    pub grounding_share: f64,
    /// Weights of applications and templates, 1 by default: how often their tasks are shown; 0 leaves them out. A template's own
    /// weight overrides its application's.
    pub weights: BTreeMap<String, u32>,
    /// How demonstrations are varied.
    pub reading: Reading,
    /// The type to compute in.
    pub precision: Precision,
    /// Learning rate after the warm-up.
    pub learning_rate: f64,
    /// Updates of the warm-up.
    pub warm_up: u64,
    /// Last of all updates, in which the learning rate falls, at last to 1 / (`cool_down` + 1) of what it was.
    pub cool_down: u64,
    /// Most turns of an evaluated episode.
    pub max_steps: usize,
    /// Random seed.
    pub seed: u64,
}

impl SupervisedOptions {
    /// An error if options contradict each other.
    pub fn check(&self) -> Result<(), String> {
        let templates = self.suite.templates();
        let is_known = |name: &&String| {
            templates.contains(name)
                || templates.iter().any(|template| application(template) == name.as_str())
        };
        if let Some(unknown) = self.weights.keys().find(|name| !is_known(name)) {
            return Err(format!("--weight {unknown}: no such application or training template in the suite"));
        }
        if let Some((name, weight)) = self.weights.iter().find(|(_, weight)| **weight > MAX_WEIGHT) {
            return Err(format!("--weight {name}={weight}: expected a whole number from 0 to {MAX_WEIGHT}"));
        }
        if self.templates().is_empty() {
            return Err("--weight: every template is left out".into());
        }
        if !(0.0..=1.0).contains(&self.grounding_share) {
            return Err(format!("--grounding-share {}: expected a number from 0 to 1", self.grounding_share));
        }
        self.reading.check()
    }

    /// The first update of the last phase, on episodes.
    pub fn first_on_episodes(&self) -> u64 {
        self.letter_updates.saturating_add(self.grounding_updates)
    }

    /// Whether an update leaves the vision tower as letters, or the training of a given model, have made it. The gradients of a
    /// language model that knows nothing yet would make it forget its letters, and later it does not need to learn more.
    fn vision_is_frozen(&self, number: u64) -> bool {
        self.letter_updates <= number && (self.letter_updates > 0 || self.model.is_some())
    }

    /// The learning rate of an update. It warms up where the language model begins to learn, too.
    fn rate(&self, number: u64) -> f64 {
        let of_phase = number.checked_sub(self.letter_updates).unwrap_or(number);
        let warm = (of_phase + 1) as f64 / self.warm_up.max(1) as f64;
        let left = self.updates.saturating_sub(number) as f64 / (self.cool_down as f64 + 1.0);
        self.learning_rate * warm.min(left).min(1.0)
    }

    /// As TOML, for the run folder.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("options can be written as TOML")
    }

    /// Sequences are padded to a multiple of this many tokens on a GPU, so that a batch has about ten lengths. A screenshot is
    /// 30 tokens in the pocket suite and 391 in the desktop suite.
    fn padding_on_a_gpu(&self) -> usize {
        match self.suite {
            Suite::Pocket => 64,
            Suite::Desktop => 256,
        }
    }

    /// Training templates in turn, repeated by their weight.
    fn templates(&self) -> Vec<String> {
        self.repeated(self.suite.templates())
    }

    /// The same of the auxiliary templates.
    fn auxiliary_templates(&self) -> Vec<String> {
        self.repeated(self.suite.auxiliary_templates())
    }

    fn repeated(&self, templates: Vec<String>) -> Vec<String> {
        let repeated = |name: String| {
            let weight = self.weights.get(&name).or_else(|| self.weights.get(application(&name)));
            let times = weight.copied().unwrap_or(1);
            std::iter::repeat_n(name, times as usize)
        };
        templates.into_iter().flat_map(repeated).collect()
    }
}

/// A template's name begins with its application.
fn application(template: &str) -> &str {
    template.split('-').next().unwrap_or_default()
}

/// One update on the negative mean log-probability of what is demonstrated, which it returns.
pub fn update(
    updater: &mut Updater,
    options: &SupervisedOptions,
    number: u64,
    batch: &UpdateBatch,
) -> Result<f64, TrainError> {
    updater.set_vision_frozen(options.vision_is_frozen(number));
    let device = updater.trainable().model().device();
    let batch = match batch {
        UpdateBatch::Demonstrations(batch) => batch,
        UpdateBatch::Letters(batch) => {
            let codes = batch.codes(updater.trainable().model());
            let loss = |features: &_| batch.loss(features, &codes);
            return Ok(updater.update_vision(&batch.on(device), options.rate(number), loss)?);
        }
    };
    let images = batch.images.on(device);
    let trained: Vec<Vec<bool>> = batch.sequences.iter().map(Assembled::trained).collect();
    let episodes: Vec<SequenceInput> = (0..trained.len())
        .map(|at| SequenceInput {
            tokens: &batch.sequences[at].tokens,
            images: batch.images.shown(at),
            trained: &trained[at],
        })
        .collect();
    let micro_batch = MicroBatch { sequences: &episodes, images: &images };
    let report = updater.update(&[micro_batch], options.rate(number), |_, scores| {
        let count: usize = scores.logp.iter().map(Vec::len).sum();
        let mean = scores.logp.iter().flatten().map(|&logp| f64::from(logp)).sum::<f64>() / count as f64;
        let coefficients = scores.logp.iter().map(|logp| vec![-1.0 / count as f32; logp.len()]).collect();
        LossGradient { value: -mean, coefficients }
    })?;
    Ok(report.loss)
}

/// Options for tests: one update on questions and one on episodes.
#[cfg(test)]
fn test_options(reading: Reading) -> SupervisedOptions {
    SupervisedOptions {
        suite: Suite::Pocket,
        family: Family::Qwen25Vl,
        model: None,
        dimensions: None,
        letter_updates: 0,
        grounding_updates: 1,
        updates: 2,
        screens: 1,
        episodes: 1,
        grounding_share: 0.2,
        weights: BTreeMap::new(),
        reading,
        precision: Precision::F32,
        learning_rate: 1e-3,
        warm_up: 1,
        cool_down: 0,
        max_steps: 15,
        seed: 0,
    }
}

/// How small batches are computed on a CPU in tests.
#[cfg(test)]
fn test_pass_options(agent: &crate::agent::Agent) -> arpo_model::training::PassOptions {
    arpo_model::training::PassOptions {
        temperature: 1.0,
        forbidden: agent.forbidden.clone(),
        activation_bytes: 1 << 30,
        logit_rows: 1 << 14,
        pad_to_multiple: 1,
        share_prefixes: false,
    }
}
