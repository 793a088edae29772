//! Supervised training in two phases, as a model of a million parameters needs them: first many grounding questions about
//! screens, then whole episodes of the oracle mixed with some questions. From episodes alone, a model learns the form of
//! a response but not where things are.

mod evaluation;
pub mod fresh;
mod reading;
pub mod run;

pub use reading::Reading;

use crate::TrainError;
use crate::agent::Agent;
use crate::demonstrations::{Demonstration, Questions, episode, grounding};
use crate::images::BatchImages;
use crate::style_choice;
use arpo_agent::style::AgentStyle;
use arpo_agent::window::ScreenshotWindow;
use arpo_core::random::{Purpose, stream};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::tasks::Suite;
use arpo_model::training::step::{LossGradient, Updater};
use arpo_model::training::{MicroBatch, SequenceInput};
use image::RgbImage;
use rand::RngExt;
use rayon::prelude::*;
use reading::{Lesson, lesson};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Batches prepared ahead of the learner.
const AHEAD: usize = 3;

/// Demonstrations are numbered from here; evaluation uses other numbers.
const FIRST_DEMONSTRATION: u64 = 1 << 32;

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
    /// Updates on questions only.
    pub grounding_updates: u64,
    /// Updates in all.
    pub updates: u64,
    /// Screens with questions in an update.
    pub screens: usize,
    /// Episodes in an update.
    pub episodes: usize,
    /// Share of updates on questions in the second phase.
    pub grounding_share: f64,
    /// Weights of applications, 1 by default: how often their tasks are shown; 0 leaves an application out.
    pub weights: BTreeMap<String, u32>,
    /// How demonstrations are varied.
    pub reading: Reading,
    /// Learning rate after the warm-up.
    pub learning_rate: f64,
    /// Updates of the warm-up.
    pub warm_up: u64,
    /// Most turns of an evaluated episode.
    pub max_steps: usize,
    /// Random seed.
    pub seed: u64,
}

impl SupervisedOptions {
    /// An error if options contradict each other.
    pub fn check(&self) -> Result<(), String> {
        let templates = self.suite.templates();
        let shown = |name: &&String| templates.iter().any(|template| application(template) == name.as_str());
        if let Some(unknown) = self.weights.keys().find(|name| !shown(name)) {
            return Err(format!("--weight {unknown}: no such application in the suite"));
        }
        if self.templates().is_empty() {
            return Err("--weight: every application is left out".into());
        }
        if !(0.0..=1.0).contains(&self.grounding_share) {
            return Err(format!("--grounding-share {}: expected a number from 0 to 1", self.grounding_share));
        }
        self.reading.check()
    }

    /// As TOML, for the run folder.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("options can be written as TOML")
    }

    /// Training templates in turn, repeated by the weight of their application.
    fn templates(&self) -> Vec<String> {
        self.repeated(self.suite.templates())
    }

    /// The same of the auxiliary templates.
    fn auxiliary_templates(&self) -> Vec<String> {
        self.repeated(self.suite.auxiliary_templates())
    }

    fn repeated(&self, templates: Vec<String>) -> Vec<String> {
        let repeated = |name: String| {
            let times = self.weights.get(application(&name)).copied().unwrap_or(1);
            std::iter::repeat_n(name, times as usize)
        };
        templates.into_iter().flat_map(repeated).collect()
    }
}

/// A template's name begins with its application.
fn application(template: &str) -> &str {
    template.split('-').next().unwrap_or_default()
}

/// The demonstrations of one update.
#[derive(Debug)]
pub struct DemonstrationBatch {
    /// Sorted by length, so that equally long ones are computed together.
    demonstrations: Vec<Demonstration>,
    images: BatchImages,
}

/// Prepares the batches of updates from `first` on, ahead of the learner, on other threads. It ends when the receiver is
/// dropped.
pub fn batches(
    agent: Arc<Agent>,
    options: SupervisedOptions,
    first: u64,
) -> Receiver<Result<DemonstrationBatch, TrainError>> {
    let (sender, receiver) = sync_channel(AHEAD);
    std::thread::spawn(move || {
        for update in first..options.updates {
            if sender.send(batch(&agent, &options, update)).is_err() {
                return;
            }
        }
    });
    receiver
}

fn batch(agent: &Agent, options: &SupervisedOptions, update: u64) -> Result<DemonstrationBatch, TrainError> {
    let mut rng = stream(options.seed, Purpose::Batches, update, 0);
    let is_grounding = update < options.grounding_updates || rng.random_bool(options.grounding_share);
    let count = if is_grounding { options.screens } else { options.episodes } as u64;
    // far apart, so that no two updates share demonstrations
    let first = FIRST_DEMONSTRATION + (options.seed << 40) + update * 4096;
    let make = |desktop: &mut Result<EmbeddedDesktop, _>, number: u64| -> Result<Demonstration, TrainError> {
        let desktop = desktop.as_mut().map_err(|error: &mut String| TrainError::Internal(error.clone()))?;
        let Lesson { task, reworded } = lesson(options, number)?;
        if is_grounding {
            let questions = Questions { steps_before: options.reading.question_steps, reworded };
            grounding(agent, desktop, &task, number, questions)
        } else {
            episode(agent, desktop, &task, number)
        }
    };
    let new_desktop = || EmbeddedDesktop::new(options.suite.screen()).map_err(|error| error.to_string());
    let mut demonstrations =
        (first..first + count).into_par_iter().map_init(new_desktop, make).collect::<Result<Vec<_>, _>>()?;
    demonstrations.retain(|one| !one.assembled.spans.is_empty());
    demonstrations.sort_by_key(|one| one.assembled.tokens.len());
    let screens: Vec<&[Arc<RgbImage>]> = demonstrations.iter().map(|one| one.screens.as_slice()).collect();
    let images = BatchImages::new(&agent.processor, &screens)?;
    Ok(DemonstrationBatch { demonstrations, images })
}

/// One update on the negative mean log-probability of the demonstrated tokens, which it returns.
pub fn update(
    updater: &mut Updater,
    options: &SupervisedOptions,
    number: u64,
    batch: &DemonstrationBatch,
) -> Result<f64, TrainError> {
    let device = updater.learner().model().device();
    let images = batch.images.on(device);
    let trained: Vec<Vec<bool>> = batch.demonstrations.iter().map(|one| one.assembled.trained()).collect();
    let episodes: Vec<SequenceInput> = (0..trained.len())
        .map(|at| SequenceInput {
            tokens: &batch.demonstrations[at].assembled.tokens,
            images: batch.images.shown(at),
            trained: &trained[at],
        })
        .collect();
    let micro_batch = MicroBatch { sequences: &episodes, images: &images };
    let warm = ((number + 1) as f64 / options.warm_up.max(1) as f64).min(1.0);
    let report = updater.update(&[micro_batch], options.learning_rate * warm, |_, scores| {
        let count: usize = scores.logp.iter().map(Vec::len).sum();
        let mean = scores.logp.iter().flatten().map(|&logp| f64::from(logp)).sum::<f64>() / count as f64;
        let coefficients = scores.logp.iter().map(|logp| vec![-1.0 / count as f32; logp.len()]).collect();
        LossGradient { value: -mean, coefficients }
    })?;
    Ok(report.loss)
}
