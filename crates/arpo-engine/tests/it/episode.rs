//! Episodes from the golden conversation, with the agent's turns sampled by an engine.

use crate::golden::Golden;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Completion, Engine, EngineOptions, Penalties, Request, Sampling, Screenshot};
use arpo_image::ImageProcessor;
use arpo_model::model::Model;
use arpo_model::positions::Grid;
use arpo_model::training::{MicroBatch, PassOptions, SequenceInput, TrainableModel};
use std::sync::Arc;
use tch::Kind;

pub(crate) const TEMPERATURE: f64 = 0.9;

/// The text between the agent's turns, and its screenshots.
pub(crate) struct Script {
    golden: Golden,
    image_token: u32,
    grids: Vec<Grid>,
    segments: Vec<Vec<u32>>,
    screenshots: Vec<Screenshot>,
}

/// A sampled episode: all tokens, which of them are the agent's, and their log-probabilities.
pub(crate) struct SampledEpisode {
    pub(crate) tokens: Vec<u32>,
    pub(crate) trained: Vec<bool>,
    pub(crate) logp: Vec<f32>,
}

impl Script {
    pub(crate) fn all() -> Vec<Self> {
        Golden::all().into_iter().map(Self::new).collect()
    }

    fn new(golden: Golden) -> Self {
        let tokens = golden.tokens();
        let mask = Vec::<i64>::try_from(golden.expected("action_mask").to_kind(Kind::Int64)).unwrap();
        let mut segments = vec![vec![]];
        for (at, &token) in tokens.iter().enumerate() {
            if mask[at] == 0 {
                segments.last_mut().unwrap().push(token);
            } else if mask[at - 1] == 0 {
                segments.push(vec![]);
            }
        }
        segments.pop(); // after the last turn
        assert!(segments.len() > 1, "several turns");
        let screenshots = golden
            .images()
            .into_iter()
            .enumerate()
            .map(|(number, image)| Screenshot::new(number.to_string(), Arc::new(image)))
            .collect();
        let image_token = golden.checkpoint().config.image_token;
        Self { image_token, grids: golden.grids(), golden, segments, screenshots }
    }

    pub(crate) fn golden(&self) -> &Golden {
        &self.golden
    }

    /// Tokens that may not be sampled.
    pub(crate) fn forbidden(&self) -> Vec<u32> {
        let config = self.golden.checkpoint().config;
        vec![config.image_token, config.video_token, config.vision_start_token, config.vision_end_token]
    }

    pub(crate) fn options(&self) -> EngineOptions {
        EngineOptions {
            cache_bytes: 8 << 20,
            feature_bytes: 1 << 20,
            frozen_vision: false,
            page_tokens: 16,
            max_running: 8,
            max_prefill_tokens: 4096,
            forbidden: self.forbidden(),
        }
    }

    pub(crate) fn engine(&self, options: EngineOptions) -> Engine {
        let processor = ImageProcessor::read(&self.golden.folder).unwrap();
        Engine::new(Model::from_checkpoint(self.golden.checkpoint()), processor, options, PolicyVersion(0))
    }

    /// A model with the same weights, as training computes with it.
    pub(crate) fn trainable_model(&self) -> TrainableModel {
        let options = PassOptions {
            temperature: TEMPERATURE,
            forbidden: self.forbidden(),
            activation_bytes: 0,
            logit_rows: 7,
            pad_to_multiple: 1,
            share_prefixes: false,
        };
        TrainableModel::new(Model::from_checkpoint(self.golden.checkpoint()), options)
    }

    /// The request for a turn.
    pub(crate) fn request(&self, prompt: &[u32], seed: u64, turn: usize) -> Request {
        let mut left = prompt.iter().filter(|&&token| token == self.image_token).count();
        let shown = self.grids.iter().take_while(|grid| {
            let shown = left > 0;
            left = left.saturating_sub(grid.features(2));
            shown
        });
        Request {
            tokens: prompt.to_vec(),
            screenshots: self.screenshots[..shown.count()].to_vec(),
            sampling: sampling(seed, turn),
            forced: vec![],
        }
    }

    /// Samples several episodes in a batch, turn by turn.
    pub(crate) fn play(&self, engine: &mut Engine, seeds: &[u64]) -> Vec<SampledEpisode> {
        let mut episodes: Vec<SampledEpisode> =
            seeds.iter().map(|_| SampledEpisode { tokens: vec![], trained: vec![], logp: vec![] }).collect();
        for (turn, segment) in self.segments.iter().enumerate() {
            let requests = episodes.iter_mut().zip(seeds).map(|(episode, &seed)| {
                episode.tokens.extend(segment);
                episode.trained.resize(episode.tokens.len(), false);
                self.request(&episode.tokens, seed, turn)
            });
            let completions = complete(engine, requests.collect());
            for (episode, completion) in episodes.iter_mut().zip(completions) {
                assert_eq!(completion.tokens.len(), completion.logp.len());
                episode.tokens.extend(completion.tokens);
                episode.trained.resize(episode.tokens.len(), true);
                episode.logp.extend(completion.logp);
            }
        }
        episodes
    }

    /// The trainable model's log-probabilities of the agent's tokens.
    pub(crate) fn scored(&self, trainable: &TrainableModel, episode: &SampledEpisode) -> Vec<f32> {
        let images = self.golden.image_inputs();
        let shown: Vec<usize> = (0..self.request(&episode.tokens, 0, 0).screenshots.len()).collect();
        let episode = SequenceInput { tokens: &episode.tokens, images: &shown, trained: &episode.trained };
        let batch = MicroBatch { sequences: &[episode], images: &images };
        trainable.scores(&batch).unwrap().logp.remove(0)
    }
}

pub(crate) fn sampling(seed: u64, turn: usize) -> Sampling {
    let length = 6 + (seed as usize + turn) % 5;
    Sampling {
        temperature: TEMPERATURE,
        top_k: None,
        top_p: None,
        max_tokens: length,
        stop: vec![],
        penalties: Penalties::default(),
        alternatives: 0,
        seed,
        turn: turn as u64,
    }
}

/// Runs the engine until all requests are complete; completions in the order of the requests.
pub(crate) fn complete(engine: &mut Engine, requests: Vec<Request>) -> Vec<Completion> {
    let ids: Vec<_> = requests.into_iter().map(|request| engine.submit(request).unwrap()).collect();
    let mut completions = std::collections::BTreeMap::new();
    while engine.pending() > 0 {
        completions.extend(engine.pass().unwrap());
    }
    ids.iter().map(|id| completions.remove(id).unwrap()).collect()
}
