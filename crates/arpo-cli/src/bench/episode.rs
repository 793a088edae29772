//! An episode made up for measuring: random pictures, every token in turn for words.

use arpo_model::config::ModelConfig;
use arpo_model::learner::{Episode, Picture};
use arpo_model::positions::Grid;
use tch::{Device, Kind, Tensor};

/// Words of the agent per turn, end token included, and of what opens a turn before them.
const TURN_TOKENS: usize = 120;
const HEADER_TOKENS: usize = 6;

/// The words of an episode.
pub(super) struct MadeTurns {
    pub(super) tokens: Vec<u32>,
    pub(super) trained: Vec<bool>,
}

impl MadeTurns {
    /// So many turns, each with a screenshot of this size; the last is only opened if `open`. Different `first` words
    /// make different episodes.
    pub(super) fn new(config: &ModelConfig, grid: Grid, turns: usize, first: u32, open: bool) -> Self {
        let (mut tokens, mut trained) = (Vec::new(), Vec::new());
        let features = grid.features(config.vision.merge as usize);
        let mut word = first;
        for turn in 1..=turns {
            tokens.push(config.vision_start_token);
            tokens.extend(std::iter::repeat_n(config.image_token, features));
            tokens.extend(std::iter::repeat_n(config.vision_end_token, HEADER_TOKENS));
            trained.resize(tokens.len(), false);
            if open && turn == turns {
                break;
            }
            for _ in 0..TURN_TOKENS {
                word = (word + 7919) % config.text.vocabulary as u32;
                let plain = word != config.image_token && word != config.video_token;
                tokens.push(if plain { word } else { config.vision_end_token });
                trained.push(true);
            }
        }
        Self { tokens, trained }
    }
}

pub(super) struct MadeEpisode {
    pub(super) tokens: Vec<u32>,
    pub(super) trained: Vec<bool>,
    pub(super) pictures: Vec<Picture>,
    shown: Vec<usize>,
}

impl MadeEpisode {
    /// So many turns, each with a screenshot of this size.
    pub(super) fn new(config: &ModelConfig, grid: Grid, turns: usize, device: Device) -> Self {
        Self::of_words(config, grid, turns, 0, device)
    }

    /// The same; different `first` words make different episodes.
    pub(super) fn of_words(
        config: &ModelConfig,
        grid: Grid,
        turns: usize,
        first: u32,
        device: Device,
    ) -> Self {
        let MadeTurns { tokens, trained } = MadeTurns::new(config, grid, turns, first, false);
        let size = [grid.patches() as i64, config.vision.patch_numbers()];
        let picture = |_| Picture::of_pixels(Tensor::randn(size, (Kind::Float, device)), grid);
        Self { tokens, trained, pictures: (0..turns).map(picture).collect(), shown: (0..turns).collect() }
    }

    pub(super) fn episode(&self) -> Episode<'_> {
        Episode { tokens: &self.tokens, pictures: &self.shown, trained: &self.trained }
    }

    /// Those of imitation: the mean of -logp.
    pub(super) fn coefficients(&self) -> Vec<Vec<f32>> {
        let count = self.trained.iter().filter(|&&flag| flag).count();
        vec![vec![-1.0 / count as f32; count]]
    }
}
