//! A model's gradients with our kernels and with the plain versions, so that every kernel gets and gives what it should;
//! and whatever is kept of the activations.

use crate::{gpu, in_f32};
use arpo_model::Keep;
use arpo_model::checkpoint::Weights;
use arpo_model::config::{self, ModelConfig};
use arpo_model::model::Model;
use arpo_model::positions::Grid;
use arpo_model::training::plan::Plan;
use arpo_model::training::{ImageInput, MicroBatch, PassOptions, SequenceInput, TrainableModel};
use arpo_torch::kernels::Kernels;
use std::iter::repeat_n;
use tch::{Device, Kind, Tensor};

/// Of a gradient's norm: both round to bf16, in different places.
const TOLERANCE: f64 = 0.1;

/// Of a gradient's norm, if only sums differ: in their order, and in how many parts they are rounded.
const SUM_TOLERANCE: f64 = 0.05;

/// The widths of the 8B, a few of its layers and tokens.
fn small_qwen3() -> ModelConfig {
    let mut config = small(config::qwen3_vl_8b());
    config.vision.deepstack = vec![0];
    config
}

/// The widths of the 7B, windowed and full attention.
fn small_qwen2_5() -> ModelConfig {
    let mut config = small(config::qwen2_5_vl_7b());
    if let Some(windows) = &mut config.vision.windows {
        windows.full_attention = vec![1];
    }
    config
}

fn small(mut config: ModelConfig) -> ModelConfig {
    config.text.layers = 2;
    config.text.vocabulary = 512;
    config.vision.blocks = 3;
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

    /// The gradients that it gives all parameters, by their names, and what was kept for them.
    fn gradients(
        &self,
        config: &ModelConfig,
        weights: &Weights,
        kernels: &Kernels,
        activation_bytes: u64,
    ) -> (Vec<(String, Tensor)>, Plan) {
        let weights = weights.share().with_kernels(kernels.clone()).with_gradients(|_| true);
        let options = PassOptions {
            temperature: 1.0,
            forbidden: vec![],
            activation_bytes,
            logit_rows: 512,
            pad_to_multiple: 1,
            share_prefixes: false,
        };
        let trainable = TrainableModel::new(Model::new(config.clone(), weights), options);
        let sequence = SequenceInput { tokens: &self.tokens, images: &[0, 1], trained: &self.trained };
        let batch = MicroBatch { sequences: &[sequence], images: &self.images };
        let plan = trainable.plan(&batch, activation_bytes);
        let pass = trainable.forward(batch).unwrap();
        let coefficients =
            pass.scores().logp.iter().map(|logp| vec![-1.0f32; logp.len()]).collect::<Vec<_>>();
        pass.backward(&coefficients).unwrap();
        let trained = trainable.model().weights().trained();
        (trained.map(|(layout, _, gradient)| (layout.name.clone(), in_f32(gradient))).collect(), plan)
    }
}

fn assert_equal(what: &str, expected: &[(String, Tensor)], actual: &[(String, Tensor)], tolerance: f64) {
    for ((name, expected), (_, actual)) in expected.iter().zip(actual) {
        let [difference, size] = [&(actual - expected), expected].map(|x| x.norm().double_value(&[]));
        assert!(difference <= tolerance * size, "{what}{name}: {difference} of {size}");
    }
}

#[test]
fn gradients_of_qwen3_are_those_of_the_plain_versions() {
    let Some((device, kernels)) = gpu() else { return };
    let config = small_qwen3();
    let weights = Weights::random(&config, Kind::BFloat16, device);
    let episode = Episode::new(&config, device);
    let [plain, fused] =
        [Kernels::none(), kernels].map(|kernels| episode.gradients(&config, &weights, &kernels, 1 << 32).0);
    assert!(plain.iter().any(|(name, _)| name.ends_with("q_norm")), "no norms of queries");
    assert_equal("", &plain, &fused, TOLERANCE);
}

/// From recomputing everything to keeping everything.
#[test]
fn gradients_do_not_depend_on_what_is_kept() {
    let Some((device, kernels)) = gpu() else { return };
    for config in [small_qwen3(), small_qwen2_5()] {
        let weights = Weights::random(&config, Kind::BFloat16, device);
        let episode = Episode::new(&config, device);
        let (expected, _) = episode.gradients(&config, &weights, &kernels, u64::MAX);
        let mut kept = vec![];
        for mebibytes in [0u64, 20, 40, 60, 80, 160] {
            let (gradients, plan) = episode.gradients(&config, &weights, &kernels, mebibytes << 20);
            assert_equal(&format!("{plan:?}, "), &expected, &gradients, SUM_TOLERANCE);
            kept.push((plan.keeps_vision(), plan.vision()));
        }
        assert!(kept.contains(&(true, Keep::AttentionResult)), "{kept:?}");
        assert!(kept.iter().any(|(keeps_vision, _)| !keeps_vision), "{kept:?}");
    }
}
