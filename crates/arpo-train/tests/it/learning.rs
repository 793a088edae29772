//! A fresh pocket model on the embedded desktop.

use arpo_core::config::OptimiserConfig;
use arpo_core::trajectory::{Outcome, PolicyVersion};
use arpo_engine::{Engine, EngineOptions};
use arpo_env::tasks::{Part, Suite};
use arpo_model::checkpoint::Weights;
use arpo_model::config::{self, ModelConfig};
use arpo_model::learner::adamw::AdamW;
use arpo_model::learner::step::Updater;
use arpo_model::learner::{Episode, Learner, LearnerOptions, MicroBatch, Picture};
use arpo_model::model::Model;
use arpo_tokenizer::train;
use arpo_train::agent::{Agent, pocket_style};
use arpo_train::rollout::{Job, PlayedEpisode, RolloutOptions, play_together};
use arpo_train::supervised::{self, SupervisedOptions};
use std::path::Path;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

fn agent(config: &ModelConfig) -> Agent {
    let texts = (0..50).map(|number| format!("Action: click(start_box='({number},7)')\nopen the mail"));
    let mut files = train::train(texts, 400).unwrap();
    files.insert("preprocessor_config.json".into(), br#"{"min_pixels": 784}"#.to_vec());
    Agent::new(config, &files, Path::new("made"), pocket_style()).unwrap()
}

fn engine(config: &ModelConfig, weights: &Weights, agent: &Agent) -> Engine {
    let options = EngineOptions {
        cache_bytes: 32 << 20,
        feature_bytes: 8 << 20,
        page_tokens: 16,
        most_running: 16,
        prompt_tokens: 4096,
        forbidden: agent.forbidden.clone(),
    };
    Engine::new(
        Model::new(config.clone(), weights.share()),
        agent.processor.clone(),
        options,
        PolicyVersion(0),
    )
}

fn learner(config: ModelConfig, weights: Weights, agent: &Agent) -> Learner {
    let options = LearnerOptions {
        temperature: 1.0,
        forbidden: agent.forbidden.clone(),
        activation_bytes: u64::MAX,
        logit_rows: 4096,
        length_step: 8,
    };
    Learner::new(Model::new(config, weights), options)
}

fn scored(learner: &Learner, agent: &Agent, episode: &PlayedEpisode) -> Vec<f32> {
    let pictures: Vec<Picture> = episode
        .screens
        .iter()
        .map(|screen| {
            let patches = agent.processor.process(screen).unwrap();
            let pixels = Tensor::from_slice(&patches.pixels).view([patches.grid.patches() as i64, -1]);
            Picture { pixels, grid: patches.grid }
        })
        .collect();
    let shown: Vec<usize> = (0..pictures.len()).collect();
    let mut trained = vec![false; episode.tokens.len()];
    for span in &episode.spans {
        trained[span.start..span.end].fill(true);
    }
    let one = Episode { tokens: &episode.tokens, pictures: &shown, trained: &trained };
    learner.scores(&MicroBatch { episodes: &[one], pictures: &pictures }).unwrap().logp.remove(0)
}

#[test]
fn episodes_are_what_the_engine_sampled() {
    tch::manual_seed(1);
    let config = config::pocket();
    let agent = agent(&config);
    let weights = Weights::fresh(&config, Kind::Float, Device::Cpu);
    let mut engine = engine(&config, &weights, &agent);
    let learner = learner(config, weights, &agent);
    let tasks = Suite::Pocket.tasks(Part::Train);
    let jobs: Vec<Job> = (0..6)
        .map(|number| Job { task: tasks[number].clone(), world_seed: 1, sampling_seed: number as u64 })
        .collect();
    let options =
        RolloutOptions { screen: Suite::Pocket.screen(), max_steps: 3, max_tokens: 6, temperature: 1.0 };
    let episodes = play_together(&mut engine, &agent, &jobs, &options).unwrap();
    assert_eq!(episodes.len(), jobs.len());
    for episode in &episodes {
        assert_eq!(episode.spans.len(), episode.responses.len());
        assert_eq!(episode.screens.len(), episode.responses.len());
        // a model that has learnt nothing says nothing that is an action
        assert!(matches!(episode.outcome, Outcome::Unparsable { .. }) && episode.score == 0.0);
        let again = scored(&learner, &agent, episode);
        assert_eq!(again.len(), episode.logp.len());
        assert!(again.iter().zip(&episode.logp).all(|(a, b)| (a - b).abs() < 1e-3));
    }
}

#[test]
fn imitation_makes_the_imitated_likelier_and_is_the_same_again() {
    let learn = || {
        tch::manual_seed(1);
        let config = config::pocket();
        let agent = Arc::new(agent(&config));
        let weights = Weights::fresh(&config, Kind::Float, Device::Cpu).with_gradients(|_| true);
        let learner = learner(config, weights, &agent);
        let optimiser = AdamW::new(learner.model().weights(), OptimiserConfig::default());
        let mut updater = Updater::new(learner, optimiser, None);
        let options = SupervisedOptions {
            suite: Suite::Pocket,
            grounding_updates: 3,
            updates: 6,
            screens: 2,
            episodes: 2,
            grounding_share: 0.0,
            learning_rate: 2e-3,
            warm_up: 1,
            seed: 3,
        };
        let batches = supervised::batches(Arc::clone(&agent), options.clone(), 0);
        let losses = batches.iter().enumerate().map(|(number, batch)| {
            supervised::update(&mut updater, &options, number as u64, &batch.unwrap()).unwrap()
        });
        losses.collect::<Vec<f64>>()
    };
    let losses = learn();
    assert_eq!(losses.len(), 6);
    assert!(losses[2] < losses[0] && losses[5] < losses[3], "{losses:?}");
    assert_eq!(losses, learn());
}
