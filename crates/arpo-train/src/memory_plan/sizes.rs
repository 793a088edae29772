//! How large things are: parameters, the longest sequence, a token in the cache.

use arpo_agent::geometry::{PixelLimits, Size, smart_resize};
use arpo_agent::prompt;
use arpo_agent::window::ScreenshotWindow;
use arpo_core::config::{Config, PromptStyle};
use arpo_model::checkpoint::layout::{ParameterLayout, parameters};
use arpo_model::config::ModelConfig;

/// Tokens of a response that memory is planned for: agents say a hundred, and one that says more takes a later one's
/// place in the cache.
const USUAL_RESPONSE: usize = 200;

/// Sizes that follow from the model and the configuration alone.
pub(super) struct Sizes {
    pub(super) number_bytes: u64,
    pub(super) weights: u64,
    pub(super) gradients: u64,
    pub(super) moments: u64,
    pub(super) largest_parameter: u64,
    /// Of a token in the cache.
    pub(super) token_bytes: u64,
    /// Tokens of the longest slice with usual responses; of the longest micro-batch, one response as long as may be.
    pub(super) slice: usize,
    pub(super) micro_batch: usize,
    /// Patches of a screenshot, and how many of them a slice shows.
    pub(super) patches: usize,
    pub(super) pictures: usize,
}

impl Sizes {
    pub(super) fn new(model: &ModelConfig, config: &Config, screen: Size, number_bytes: u64) -> Self {
        let trained = |layout: &&ParameterLayout| !(config.model.freeze_vision && layout.is_vision());
        let numbers = |layout: &ParameterLayout| layout.shape.iter().product::<i64>() as u64;
        let layouts = parameters(model);
        let gradient =
            |layout: &ParameterLayout| numbers(layout) * if layout.sums_widely() { 4 } else { number_bytes };
        let limits = PixelLimits { min: config.agent.min_pixels, max: config.agent.max_pixels };
        let seen = smart_resize(screen, limits).unwrap_or(screen);
        let patch = model.vision.patch as u32;
        let patches = ((seen.width / patch) * (seen.height / patch)) as usize;
        let features = patches / (model.vision.merge * model.vision.merge) as usize;
        let window = ScreenshotWindow::new(config.agent.max_screenshots, config.agent.window_advance);
        let turns = config.collect.max_steps;
        let words = match config.agent.prompt {
            // four letters to a token
            PromptStyle::Uitars => prompt::UITARS.len() / 4 + 100,
            PromptStyle::Short => 50,
        };
        let response = config.agent.max_tokens.min(USUAL_RESPONSE) + 12;
        let slices = window.slices(turns);
        let pictures = slices.iter().map(|slice| slice.turns.end - slice.first_live).max().unwrap_or(1);
        let slice = words + pictures * (features + 8) + turns * response;
        let longest = slice + config.agent.max_tokens.saturating_sub(USUAL_RESPONSE);
        let packed = config.model.micro_batch_tokens.min(slice * config.optimiser.trajectories_per_update);
        let text = &model.text;
        Self {
            number_bytes,
            weights: layouts.iter().map(numbers).sum::<u64>() * number_bytes,
            gradients: layouts.iter().filter(trained).map(gradient).sum(),
            moments: 2 * layouts.iter().filter(trained).map(numbers).sum::<u64>() * number_bytes,
            largest_parameter: layouts.iter().map(numbers).max().unwrap_or(0) * number_bytes,
            token_bytes: (2 * text.layers as i64 * text.key_value_heads * text.head_width()) as u64
                * number_bytes,
            slice,
            micro_batch: longest.max(packed),
            patches,
            pictures,
        }
    }
}
