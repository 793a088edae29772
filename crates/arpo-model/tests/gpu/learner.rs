//! The learner's gradients with our kernels and with the plain versions: every kernel gets and gives what it should.

use crate::{gpu, in_f32};
use arpo_model::checkpoint::Weights;
use arpo_model::config::{self, ModelConfig};
use arpo_model::model::Model;
use arpo_model::positions::Grid;
use arpo_model::training::{ImageInput, Learner, LearnerOptions, MicroBatch, SequenceInput};
use arpo_torch::kernels::Kernels;
use std::iter::repeat_n;
use tch::{Device, Kind, Tensor};

/// Of a gradient's norm: both round to bf16, in different places.
const TOLERANCE: f64 = 0.1;

/// The widths of the 8B, a few of its layers and tokens.
fn small_qwen3() -> ModelConfig {
    let mut config = config::qwen3_vl_8b();
    config.text.layers = 2;
    config.text.vocabulary = 512;
    config.vision.blocks = 3;
    config.vision.deepstack = vec![0];
    (config.image_token, config.video_token) = (5, 6);
    (config.vision_start_token, config.vision_end_token) = (7, 8);
    config
}

/// Turns of a screenshot and a response, unequal in size.
struct Episode {
    images: Vec<ImageInput>,
    tokens: Vec<u32>,
    trained: Vec<bool>,
}

impl Episode {
    fn new(config: &ModelConfig, device: Device) -> Self {
        let mut episode = Self { images: vec![], tokens: vec![], trained: vec![] };
        for grid in [Grid { height: 34, width: 46 }, Grid { height: 6, width: 10 }] {
            let size = [grid.patches() as i64, config.vision.patch_values()];
            episode.images.push(ImageInput::of_pixels(Tensor::randn(size, (Kind::Float, device)), grid));
            episode.tokens.push(config.vision_start_token);
            episode.tokens.extend(repeat_n(config.image_token, grid.features(config.vision.merge as usize)));
            episode.tokens.push(config.vision_end_token);
            episode.trained.resize(episode.tokens.len(), false);
            episode.tokens.extend((0..40).map(|at| 20 + at * 11));
            episode.trained.resize(episode.tokens.len(), true);
        }
        episode
    }

    /// The gradients that it gives all parameters, by their names.
    fn gradients(&self, config: &ModelConfig, weights: &Weights, kernels: Kernels) -> Vec<(String, Tensor)> {
        let weights = weights.share().with_kernels(kernels).with_gradients(|_| true);
        let options = LearnerOptions {
            temperature: 1.0,
            forbidden: vec![],
            activation_bytes: 1 << 32,
            logit_rows: 512,
            pad_to_multiple: 1,
            share_prefixes: false,
        };
        let learner = Learner::new(Model::new(config.clone(), weights), options);
        let sequence = SequenceInput { tokens: &self.tokens, images: &[0, 1], trained: &self.trained };
        let batch = MicroBatch { sequences: &[sequence], images: &self.images };
        let pass = learner.forward(batch).unwrap();
        let coefficients =
            pass.scores().logp.iter().map(|logp| vec![-1.0f32; logp.len()]).collect::<Vec<_>>();
        pass.backward(&coefficients).unwrap();
        let trained = learner.model().weights().trained();
        trained.map(|(layout, _, gradient)| (layout.name.clone(), in_f32(gradient))).collect()
    }
}

#[test]
fn gradients_of_qwen3_are_those_of_the_plain_versions() {
    let Some((device, kernels)) = gpu() else { return };
    let config = small_qwen3();
    let weights = Weights::random(&config, Kind::BFloat16, device);
    let episode = Episode::new(&config, device);
    let plain = episode.gradients(&config, &weights, Kernels::none());
    let fused = episode.gradients(&config, &weights, kernels);
    assert!(plain.iter().any(|(name, _)| name.ends_with("q_norm")), "no norms of queries");
    for ((name, plain), (_, fused)) in plain.iter().zip(&fused) {
        let [difference, size] = [&(fused - plain), plain].map(|x| x.norm().double_value(&[]));
        assert!(difference <= TOLERANCE * size, "{name}: {difference} of {size}");
    }
}
