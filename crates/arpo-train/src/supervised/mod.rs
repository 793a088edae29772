//! Supervised training in two phases, as a model of a million parameters needs it: first questions about screens, dense
//! and many, then whole episodes of the oracle with some questions kept in. Episodes alone teach the form of an answer
//! and not where things are.

pub mod fresh;
pub mod run;

use crate::TrainError;
use crate::agent::Agent;
use crate::collect::{CollectOptions, Collector, GroupPlan};
use crate::demonstrations::{Demonstration, episode, grounding};
use crate::episode::{EpisodePlan, PlayedEpisode};
use crate::pictures::Pictures;
use crate::policy::EnginePolicy;
use arpo_core::config::Config;
use arpo_core::random::{Purpose, stream};
use arpo_core::trajectory::EpisodeId;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::tasks::Suite;
use arpo_model::learner::step::{LossGradient, Updater};
use arpo_model::learner::{Episode, MicroBatch};
use image::RgbImage;
use rand::RngExt;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Batches made ahead of the learner.
const AHEAD: usize = 3;

/// Demonstrations are numbered from here; evaluation uses other numbers.
const FIRST_DEMONSTRATION: u64 = 1 << 32;

/// How supervised training goes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SupervisedOptions {
    /// Whose tasks.
    pub suite: Suite,
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
    /// How often an application's tasks are shown, where it is not once; 0 leaves it out.
    pub weights: BTreeMap<String, u32>,
    /// After the warm-up.
    pub learning_rate: f64,
    /// Updates until then.
    pub warm_up: u64,
    /// Turns of an evaluated episode at most.
    pub max_steps: usize,
    /// Names every draw.
    pub seed: u64,
}

impl SupervisedOptions {
    /// What contradicts itself.
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
        Ok(())
    }

    /// As a run folder keeps them.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("options hold only what TOML can say")
    }

    /// Templates in turn, as often as their application's weight says.
    fn templates(&self) -> Vec<String> {
        let often = |name: String| {
            let times = self.weights.get(application(&name)).copied().unwrap_or(1);
            std::iter::repeat_n(name, times as usize)
        };
        self.suite.templates().into_iter().flat_map(often).collect()
    }
}

/// A template's name begins with its application.
fn application(template: &str) -> &str {
    template.split('-').next().unwrap_or_default()
}

/// What one update learns from.
#[derive(Debug)]
pub struct Batch {
    /// Sorted by length, so that equal ones are computed together.
    demonstrations: Vec<Demonstration>,
    pictures: Pictures,
}

/// Makes the batches of updates from `first` on, ahead of the learner, on threads of its own. It ends when the receiver
/// is gone.
pub fn batches(
    agent: Arc<Agent>,
    options: SupervisedOptions,
    first: u64,
) -> Receiver<Result<Batch, TrainError>> {
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

fn batch(agent: &Agent, options: &SupervisedOptions, update: u64) -> Result<Batch, TrainError> {
    let mut rng = stream(options.seed, Purpose::Batches, update, 0);
    let asks = update < options.grounding_updates || rng.random_bool(options.grounding_share);
    let count = if asks { options.screens } else { options.episodes } as u64;
    // far apart, so that no update shows what another does
    let first = FIRST_DEMONSTRATION + (options.seed << 40) + update * 4096;
    let templates = options.templates();
    let make = |desktop: &mut Result<EmbeddedDesktop, _>, number: u64| -> Result<Demonstration, TrainError> {
        let desktop = desktop.as_mut().map_err(|error: &mut String| TrainError::Options(error.clone()))?;
        let template = &templates[(number % templates.len() as u64) as usize];
        let task = options.suite.further_task_of(template, number);
        let task = task.ok_or_else(|| TrainError::Options(format!("no template is called {template}")))?;
        if asks { grounding(agent, desktop, &task, number) } else { episode(agent, desktop, &task, number) }
    };
    let new_desktop = || EmbeddedDesktop::new(options.suite.screen()).map_err(|error| error.to_string());
    let mut demonstrations =
        (first..first + count).into_par_iter().map_init(new_desktop, make).collect::<Result<Vec<_>, _>>()?;
    demonstrations.retain(|one| !one.assembled.spans.is_empty());
    demonstrations.sort_by_key(|one| one.assembled.tokens.len());
    let screens: Vec<&[Arc<RgbImage>]> = demonstrations.iter().map(|one| one.screens.as_slice()).collect();
    let pictures = Pictures::new(&agent.processor, &screens)?;
    Ok(Batch { demonstrations, pictures })
}

/// One update: the mean log-probability of the demonstrated tokens goes up. Returns minus that mean.
pub fn update(
    updater: &mut Updater,
    options: &SupervisedOptions,
    number: u64,
    batch: &Batch,
) -> Result<f64, TrainError> {
    let device = updater.learner().model().device();
    let pictures = batch.pictures.on(device);
    let trained: Vec<Vec<bool>> = batch.demonstrations.iter().map(|one| one.assembled.trained()).collect();
    let episodes: Vec<Episode> = (0..trained.len())
        .map(|at| Episode {
            tokens: &batch.demonstrations[at].assembled.tokens,
            pictures: batch.pictures.shown(at),
            trained: &trained[at],
        })
        .collect();
    let micro_batch = MicroBatch { episodes: &episodes, pictures: &pictures };
    let warm = ((number + 1) as f64 / options.warm_up.max(1) as f64).min(1.0);
    let report = updater.update(&[micro_batch], options.learning_rate * warm, |_, scores| {
        let count: usize = scores.logp.iter().map(Vec::len).sum();
        let mean = scores.logp.iter().flatten().map(|&logp| f64::from(logp)).sum::<f64>() / count as f64;
        let coefficients = scores.logp.iter().map(|logp| vec![-1.0 / count as f32; logp.len()]).collect();
        LossGradient { value: -mean, coefficients }
    })?;
    Ok(report.loss)
}

/// Desktops of an evaluation.
const EVALUATION_DESKTOPS: usize = 64;

/// Plays further tasks of the suite that no demonstration shows; their scores are the agent's success.
pub fn evaluate(
    policy: &mut EnginePolicy,
    suite: Suite,
    count: usize,
    max_steps: usize,
) -> Result<Vec<(String, PlayedEpisode)>, TrainError> {
    let plan = |number: u64| {
        let task = Arc::new(suite.further_task(number));
        let id = EpisodeId::new(0, &task.id, 0);
        let plan = EpisodePlan { id, task, world_seed: number, sampling_seed: number, max_steps };
        GroupPlan { task: Arc::clone(&plan.task), episodes: vec![plan], spares: vec![] }
    };
    let plans: Vec<GroupPlan> = (0..count as u64).map(plan).collect();
    let applications: Vec<String> = plans.iter().map(|plan| plan.task.application.clone()).collect();
    let factory = move |_| Ok(Box::new(EmbeddedDesktop::new(suite.screen())?) as Box<dyn Environment>);
    let options = CollectOptions::from(&Config::default());
    let mut collector = Collector::new(Arc::new(factory), count.min(EVALUATION_DESKTOPS), options);
    let collected = collector.collect(policy, plans, &mut |_| {})?;
    let episodes = collected.groups.into_iter().map(|group| group.episodes);
    Ok(applications
        .into_iter()
        .zip(episodes)
        .flat_map(|(application, episodes)| {
            episodes.into_iter().map(move |episode| (application.clone(), episode))
        })
        .collect())
}
