//! Synthetic episodes for benchmarks: random images, and tokens that cycle through the vocabulary.

use arpo_model::config::ModelConfig;
use arpo_model::positions::Grid;
use arpo_model::training::{ImageInput, SequenceInput};
use tch::{Device, Kind, Tensor};

/// Tokens of a response, end token included, and of the turn's header before it.
pub(super) const TURN_TOKENS: usize = 120;
const HEADER_TOKENS: usize = 6;

/// The tokens of an episode.
pub(super) struct SyntheticTurns {
    pub(super) tokens: Vec<u32>,
    pub(super) trained: Vec<bool>,
}

impl SyntheticTurns {
    /// An episode of `turns` turns, each with a screenshot of this size; with `open` the last turn has no response yet.
    /// Different `first` tokens give different episodes.
    pub(super) fn new(config: &ModelConfig, grid: Grid, turns: usize, first: u32, open: bool) -> Self {
        let (mut tokens, mut trained) = (Vec::new(), Vec::new());
        let features = grid.features(config.vision.merge as usize);
        let mut token = first;
        for turn in 1..=turns {
            tokens.push(config.vision_start_token);
            tokens.extend(std::iter::repeat_n(config.image_token, features));
            tokens.extend(std::iter::repeat_n(config.vision_end_token, HEADER_TOKENS));
            trained.resize(tokens.len(), false);
            if open && turn == turns {
                break;
            }
            for _ in 0..TURN_TOKENS {
                token = (token + 7919) % config.text.vocabulary as u32;
                let plain = token != config.image_token && token != config.video_token;
                tokens.push(if plain { token } else { config.vision_end_token });
                trained.push(true);
            }
        }
        Self { tokens, trained }
    }
}

pub(super) struct SyntheticEpisode {
    pub(super) tokens: Vec<u32>,
    pub(super) trained: Vec<bool>,
    pub(super) images: Vec<ImageInput>,
    shown: Vec<usize>,
}

impl SyntheticEpisode {
    /// An episode of `turns` turns, each with a screenshot of this size.
    pub(super) fn new(config: &ModelConfig, grid: Grid, turns: usize, device: Device) -> Self {
        Self::with_first_token(config, grid, turns, 0, device)
    }

    /// The same; different `first` tokens give different episodes.
    pub(super) fn with_first_token(
        config: &ModelConfig,
        grid: Grid,
        turns: usize,
        first: u32,
        device: Device,
    ) -> Self {
        let SyntheticTurns { tokens, trained } = SyntheticTurns::new(config, grid, turns, first, false);
        let size = [grid.patches() as i64, config.vision.patch_values()];
        let image = |_| ImageInput::of_pixels(Tensor::randn(size, (Kind::Float, device)), grid);
        Self { tokens, trained, images: (0..turns).map(image).collect(), shown: (0..turns).collect() }
    }

    pub(super) fn episode(&self) -> SequenceInput<'_> {
        SequenceInput { tokens: &self.tokens, images: &self.shown, trained: &self.trained }
    }

    /// The coefficients of supervised training: the mean of -logp.
    pub(super) fn coefficients(&self) -> Vec<Vec<f32>> {
        let count = self.trained.iter().filter(|&&flag| flag).count();
        vec![vec![-1.0 / count as f32; count]]
    }
}
