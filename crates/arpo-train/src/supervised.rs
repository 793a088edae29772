//! Supervised training in two phases, as a model of a million parameters needs it: first questions about screens, dense
//! and many, then whole episodes of the oracle with some questions kept in. Episodes alone teach the form of an answer
//! and not where things are.

use crate::TrainError;
use crate::agent::Agent;
use crate::collect::{CollectOptions, Collector, GroupPlan};
use crate::demonstrations::{Demonstration, episode, grounding};
use crate::episode::{EpisodePlan, PlayedEpisode};
use crate::policy::EnginePolicy;
use arpo_core::config::CollectConfig;
use arpo_core::random::{Purpose, stream};
use arpo_core::trajectory::EpisodeId;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::tasks::Suite;
use arpo_image::ImageProcessor;
use arpo_model::learner::step::{LossGradient, Updater};
use arpo_model::learner::{Episode, MicroBatch, Picture};
use image::RgbImage;
use rand::RngExt;
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use tch::{Device, Tensor};

/// Batches made ahead of the learner.
const AHEAD: usize = 3;

/// Demonstrations are numbered from here; evaluation uses other numbers.
const FIRST_DEMONSTRATION: u64 = 1 << 32;

/// How supervised training goes.
#[derive(Debug, Clone)]
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
    /// After the warm-up.
    pub learning_rate: f64,
    /// Updates until then.
    pub warm_up: u64,
    /// Names every draw.
    pub seed: u64,
}

/// What one update learns from.
#[derive(Debug)]
pub struct Batch {
    /// Sorted by length, so that equal ones are computed together.
    demonstrations: Vec<Demonstration>,
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
    let make = |desktop: &mut Result<EmbeddedDesktop, _>, number: u64| -> Result<Demonstration, TrainError> {
        let desktop = desktop.as_mut().map_err(|error: &mut String| TrainError::Options(error.clone()))?;
        if asks {
            grounding(agent, desktop, options.suite, number)
        } else {
            episode(agent, desktop, options.suite, number)
        }
    };
    let new_desktop = || EmbeddedDesktop::new(options.suite.screen()).map_err(|error| error.to_string());
    let mut demonstrations =
        (first..first + count).into_par_iter().map_init(new_desktop, make).collect::<Result<Vec<_>, _>>()?;
    demonstrations.retain(|one| !one.assembled.spans.is_empty());
    demonstrations.sort_by_key(|one| one.assembled.tokens.len());
    Ok(Batch { demonstrations })
}

/// One update: the mean log-probability of the demonstrated tokens goes up. Returns minus that mean.
pub fn update(
    updater: &mut Updater,
    agent: &Agent,
    options: &SupervisedOptions,
    number: u64,
    batch: &Batch,
) -> Result<f64, TrainError> {
    let device = updater.learner().model().device();
    let pictures = Pictures::new(&agent.processor, &batch.demonstrations, device)?;
    let trained: Vec<Vec<bool>> = batch.demonstrations.iter().map(|one| one.assembled.trained()).collect();
    let episodes: Vec<Episode> = (0..trained.len())
        .map(|at| Episode {
            tokens: &batch.demonstrations[at].assembled.tokens,
            pictures: &pictures.shown[at],
            trained: &trained[at],
        })
        .collect();
    let micro_batch = MicroBatch { episodes: &episodes, pictures: &pictures.pictures };
    let warm = ((number + 1) as f64 / options.warm_up.max(1) as f64).min(1.0);
    let report = updater.update(&[micro_batch], options.learning_rate * warm, |_, scores| {
        let count: usize = scores.logp.iter().map(Vec::len).sum();
        let mean = scores.logp.iter().flatten().map(|&logp| f64::from(logp)).sum::<f64>() / count as f64;
        let coefficients = scores.logp.iter().map(|logp| vec![-1.0 / count as f32; logp.len()]).collect();
        LossGradient { value: -mean, coefficients }
    })?;
    Ok(report.loss)
}

/// The screens of a batch, each once.
struct Pictures {
    pictures: Vec<Picture>,
    shown: Vec<Vec<usize>>,
}

impl Pictures {
    fn new<'a>(
        processor: &ImageProcessor,
        demonstrations: &'a [Demonstration],
        device: Device,
    ) -> Result<Self, TrainError> {
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut distinct: Vec<&RgbImage> = vec![];
        let shown = demonstrations
            .iter()
            .map(|one| {
                let mut place = |screen: &'a Arc<RgbImage>| {
                    *places.entry(screen.as_raw()).or_insert_with(|| {
                        distinct.push(screen);
                        distinct.len() - 1
                    })
                };
                one.screens.iter().map(&mut place).collect()
            })
            .collect();
        let patches = processor.process_all(&distinct)?;
        let pictures = patches
            .iter()
            .map(|one| Picture {
                pixels: Tensor::from_slice(&one.pixels)
                    .view([one.grid.patches() as i64, -1])
                    .to_device(device),
                grid: one.grid,
            })
            .collect();
        Ok(Self { pictures, shown })
    }
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
    let options = CollectOptions::from(&CollectConfig::default());
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
