//! A fresh pocket model on the embedded desktop.

use arpo_agent::style::Grammar;
use arpo_core::config::{Config, OptimiserConfig};
use arpo_core::trajectory::{Outcome, PolicyVersion};
use arpo_engine::{Engine, EngineOptions};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::tasks::{Split, Suite};
use arpo_model::checkpoint::Weights;
use arpo_model::config::{self, ModelConfig};
use arpo_model::model::Model;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::step::Updater;
use arpo_model::training::{ImageInput, MicroBatch, PassOptions, SequenceInput, TrainableModel};
use arpo_model::vision::pixels;
use arpo_tokenizer::train::{self, Spaces, Words};
use arpo_train::agent::Agent;
use arpo_train::collect::{CollectOptions, Collector, GroupSize, Planner, Worlds};
use arpo_train::episode::CompletedEpisode;
use arpo_train::policy::engine::ResponseOptions;
use arpo_train::policy::{EnginePolicy, RolloutPolicy, WeightUpdate};
use arpo_train::supervised::{self, Family, Precision, Reading, SupervisedOptions};
use image::RgbImage;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tch::{Device, Kind};

fn agent(config: &ModelConfig) -> Agent {
    let texts = (0..50).map(|number| format!("Action: click(start_box='({number},7)')\nopen the mail"));
    let mut files = train::train(texts, 400, Grammar::Uitars, Spaces::Joined, &Words::Parts).unwrap();
    files.insert("preprocessor_config.json".into(), br#"{"min_pixels": 784}"#.to_vec());
    Agent::new(config, &files, Path::new("made"), Family::Qwen25Vl.style()).unwrap()
}

fn engine(config: &ModelConfig, weights: &Weights, agent: &Agent) -> Engine {
    let options = EngineOptions {
        cache_bytes: 32 << 20,
        feature_bytes: 8 << 20,
        frozen_vision: false,
        page_tokens: 16,
        max_running: 16,
        max_prefill_tokens: 4096,
        forbidden: agent.forbidden.clone(),
    };
    Engine::new(
        Model::new(config.clone(), weights.share()),
        agent.processor.clone(),
        options,
        PolicyVersion(0),
    )
}

fn pass_options(agent: &Agent) -> PassOptions {
    PassOptions {
        temperature: 1.0,
        forbidden: agent.forbidden.clone(),
        activation_bytes: u64::MAX,
        logit_rows: 4096,
        pad_to_multiple: 8,
        share_prefixes: false,
    }
}

fn trainable_model(config: ModelConfig, weights: Weights, agent: &Agent) -> TrainableModel {
    TrainableModel::new(Model::new(config, weights), pass_options(agent))
}

fn scored(trainable: &TrainableModel, agent: &Agent, episode: &CompletedEpisode) -> Vec<f32> {
    let screens: Vec<_> = episode.screens.iter().map(|screen| screen.image().unwrap()).collect();
    let screens: Vec<&RgbImage> = screens.iter().map(AsRef::as_ref).collect();
    let patches = agent.processor.process_all(&screens).unwrap();
    let images = pixels(&patches, Device::Cpu).into_iter().zip(&patches);
    let images: Vec<ImageInput> =
        images.map(|(pixels, patches)| ImageInput::of_pixels(pixels, patches.grid)).collect();
    let shown: Vec<usize> = (0..images.len()).collect();
    let slice = episode.trajectory.views().next().unwrap();
    let tokens: Vec<u32> = slice.tokens.iter().map(|token| token.0).collect();
    let trained = episode.trajectory.action_mask(&slice);
    let one = SequenceInput { tokens: &tokens, images: &shown, trained: &trained };
    trainable.scores(&MicroBatch { sequences: &[one], images: &images }).unwrap().logp.remove(0)
}

/// Episodes of an untrained model, in rounds on this many desktops; and a trainable model with its weights.
fn collected(desktops: usize) -> (Vec<CompletedEpisode>, TrainableModel, Arc<Agent>) {
    tch::manual_seed(1);
    let config = config::pocket();
    let agent = Arc::new(agent(&config));
    let weights = Weights::from_scratch(&config, Kind::Float, Device::Cpu);
    let engine = engine(&config, &weights, &agent);
    let responses = ResponseOptions { temperature: 1.0, max_tokens: 6 };
    let mut policy = EnginePolicy::new(engine, PolicyVersion(3), Arc::clone(&agent), responses);
    policy.publish(WeightUpdate::InPlace, PolicyVersion(4)).unwrap();
    let planner = Planner { seed: 1, step: 0, worlds: Worlds::Own, faulty: false };
    let size = GroupSize::new(3, 0, 3);
    let tasks = &Suite::Pocket.tasks(Split::Train)[..2];
    let plans = tasks.iter().enumerate();
    let plans =
        plans.map(|(number, task)| planner.group(&Arc::new(task.clone()), number as u64, size)).collect();
    let factory = |_| Ok(Box::new(EmbeddedDesktop::new(Suite::Pocket.screen())?) as Box<dyn Environment>);
    let options = CollectOptions::from(&Config::default());
    let mut collector = Collector::new(Arc::new(factory), desktops, options);
    let collected = collector.collect(&mut policy, plans, &mut |_| {}).unwrap();
    let episodes = collected.groups.into_iter().flat_map(|group| group.episodes).collect();
    (episodes, trainable_model(config, weights, &agent), agent)
}

#[test]
fn episodes_are_what_the_engine_sampled() {
    let (episodes, trainable, agent) = collected(6);
    assert_eq!(episodes.len(), 6);
    for episode in &episodes {
        let trajectory = &episode.trajectory;
        assert_eq!(episode.screens.len(), trajectory.steps.len());
        assert_eq!(trajectory.policy_version, PolicyVersion(4));
        // an untrained model generates no valid action
        assert!(matches!(trajectory.outcome, Outcome::Unparsable { .. }) && trajectory.score == 0.0);
        let again = scored(&trainable, &agent, episode);
        assert_eq!(again.len(), trajectory.sampler_logp.len());
        assert!(again.iter().zip(&trajectory.sampler_logp).all(|(a, b)| (a - b).abs() < 1e-3));
    }
}

#[test]
fn rounds_of_the_engine_are_bit_identical() {
    let trajectories = |desktops| {
        let (episodes, ..) = collected(desktops);
        episodes.into_iter().map(|episode| episode.trajectory).collect::<Vec<_>>()
    };
    let first = trajectories(4);
    assert_eq!(first, trajectories(4));
    // another number of desktops means other batches: the same tokens, log-probabilities up to rounding
    for (one, other) in first.iter().zip(trajectories(2)) {
        assert_eq!(one.slices, other.slices);
        let near = one.sampler_logp.iter().zip(&other.sampler_logp).all(|(a, b)| (a - b).abs() < 1e-3);
        assert!(near);
    }
}

#[test]
fn imitation_reduces_the_loss_and_is_reproducible() {
    let losses = imitate(Precision::F32, 1).0;
    assert_eq!(losses.len(), 6);
    assert!(losses[2] < losses[0] && losses[5] < losses[3], "{losses:?}");
    // also with batches that are made at the same time
    assert_eq!(losses, imitate(Precision::F32, 4).0);
}

/// The model computes in bf16 with weights that are rounded from the masters, which are f32.
#[test]
fn imitation_in_bf16_reduces_the_loss_and_keeps_masters_in_f32() {
    let (losses, updater) = imitate(Precision::Bf16, 1);
    assert!(losses[2] < losses[0] && losses[5] < losses[3], "{losses:?}");
    let exact = imitate(Precision::F32, 1).0;
    assert!((losses[0] - exact[0]).abs() < 0.05 * exact[0], "{losses:?} instead of {exact:?}");
    let (masters, rounded) = (updater.masters(), updater.trainable().model().weights());
    assert_eq!((masters.kind(), rounded.kind()), (Kind::Float, Kind::BFloat16));
    let mut finer = 0;
    for ((layout, master), (_, value)) in masters.iter().zip(rounded.iter()) {
        assert!(master.to_kind(Kind::BFloat16).equal(value), "{} is not rounded", layout.name);
        finer += usize::from(!value.to_kind(Kind::Float).equal(master));
    }
    assert!(finer > 0, "the masters are no finer than bf16");
    assert!(rounded.trained().all(|(_, _, gradient)| gradient.abs().max().double_value(&[]) < 1e-30));
}

/// Three updates on questions and three on episodes: their losses, and the updater after them.
fn imitate(precision: Precision, makers: usize) -> (Vec<f64>, Updater) {
    tch::manual_seed(1);
    let config = config::pocket();
    let agent = Arc::new(agent(&config));
    let weights = Weights::from_scratch(&config, Kind::Float, Device::Cpu).with_gradients(|_| true);
    let optimiser = AdamW::new(&weights, OptimiserConfig::default());
    let mut updater = precision.updater(&config, weights, optimiser, pass_options(&agent), None);
    let options = SupervisedOptions {
        suite: Suite::Pocket,
        family: Family::Qwen25Vl,
        model: None,
        dimensions: None,
        letter_updates: 0,
        grounding_updates: 3,
        updates: 6,
        screens: 2,
        episodes: 2,
        grounding_share: 0.0,
        weights: BTreeMap::new(),
        reading: Reading::NONE,
        precision,
        learning_rate: 2e-3,
        warm_up: 1,
        cool_down: 0,
        max_steps: 4,
        seed: 3,
    };
    let batches = supervised::batches(&agent, &options, 0, makers);
    let losses = batches
        .enumerate()
        .map(|(number, batch)| {
            supervised::update(&mut updater, &options, number as u64, &batch.unwrap()).unwrap()
        })
        .collect();
    (losses, updater)
}
