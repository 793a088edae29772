//! Sizes of the parameters, of the longest sequence and of a token in the cache.

use crate::style_choice;
use arpo_agent::geometry::{PixelLimits, Size, smart_resize};
use arpo_core::config::{Config, PromptLength};
use arpo_model::checkpoint::layout::{ParameterLayout, parameters};
use arpo_model::config::ModelConfig;
use std::collections::BTreeMap;

/// Tokens of a response that memory is planned for: agents usually generate about a hundred, and longer responses only
/// leave less cache for later ones.
const USUAL_RESPONSE: usize = 200;

/// Sizes that follow from the model and the configuration alone.
pub(super) struct Sizes {
    pub(super) value_bytes: u64,
    pub(super) weights: u64,
    pub(super) gradients: u64,
    /// Buffers that the layers' gradients pass through, if each rank keeps only its shard of them.
    pub(super) gradient_buffers: u64,
    pub(super) moments: u64,
    pub(super) largest_parameter: u64,
    /// Bytes of a token in the cache.
    pub(super) token_bytes: u64,
    /// Tokens of the longest slice with usual responses.
    pub(super) slice: usize,
    /// Tokens of the longest micro-batch; one of its responses has the maximal length.
    pub(super) micro_batch: usize,
    /// Patches of a screenshot.
    pub(super) patches: usize,
    /// Most screenshots in a slice.
    pub(super) images: usize,
}

/// The configured limits of a screenshot; without them, wide ones: what is left to the model is settled before a run.
fn pixel_limits(config: &Config) -> PixelLimits {
    let or = |pixels: u64, otherwise: u64| if pixels > 0 { pixels } else { otherwise };
    PixelLimits { min: or(config.agent.min_pixels, 1), max: or(config.agent.max_pixels, 16_777_216) }
}

impl Sizes {
    pub(super) fn new(model: &ModelConfig, config: &Config, screen: Size, value_bytes: u64) -> Self {
        let trained = |layout: &&ParameterLayout| !(config.model.freeze_vision && layout.is_vision());
        let values = |layout: &ParameterLayout| layout.shape.iter().product::<i64>() as u64;
        let layouts = parameters(model);
        let gradient = |layout: &ParameterLayout| {
            values(layout) * if layout.accumulates_in_f32() { 4 } else { value_bytes }
        };
        let whole_gradients: u64 = layouts.iter().filter(trained).map(gradient).sum();
        let (gradients, gradient_buffers) = if config.learn.shards_gradients() {
            let buffers: BTreeMap<(usize, &str), u64> =
                layouts.iter().filter(trained).map(|layout| (layout.buffer(), gradient(layout))).collect();
            (whole_gradients.div_ceil(config.learn.learners() as u64), buffers.values().sum())
        } else {
            (whole_gradients, 0)
        };
        let limits = pixel_limits(config);
        let patch = model.vision.patch as u32;
        let factor = patch * model.vision.merge as u32;
        let seen = smart_resize(screen, factor, limits).unwrap_or(screen);
        let patches = ((seen.width / patch) * (seen.height / patch)) as usize;
        let features = patches / (model.vision.merge * model.vision.merge) as usize;
        let style = style_choice::style(&config.agent, style_choice::of_model(config, model));
        let turns = config.collect.max_steps;
        let prompt_tokens = match config.agent.prompt {
            // about four characters per token; the system prompt of UI-TARS is a sentence
            PromptLength::Full => style.system.len().max(style.template.len()) / 4 + 100,
            PromptLength::Short => 50,
        };
        let response = config.agent.max_tokens.min(USUAL_RESPONSE) + 12;
        let slices = style.window.slices(turns);
        let images = slices.iter().map(|slice| slice.turns.end - slice.first_live).max().unwrap_or(1);
        // a summary takes less than the responses in its place
        let slice = prompt_tokens + images * (features + 8) + turns * response;
        let longest = slice + config.agent.max_tokens.saturating_sub(USUAL_RESPONSE);
        let packed = config.model.micro_batch_tokens.min(slice * config.optimiser.trajectories_per_update);
        let text = &model.text;
        Self {
            value_bytes,
            weights: layouts.iter().map(values).sum::<u64>() * value_bytes,
            gradients,
            gradient_buffers,
            // divided between the ranks that learn
            moments: (2 * layouts.iter().filter(trained).map(values).sum::<u64>() * value_bytes)
                .div_ceil(config.learn.learners() as u64),
            largest_parameter: layouts.iter().map(values).max().unwrap_or(0) * value_bytes,
            token_bytes: (2 * text.layers as i64 * text.kv_heads * text.head_width) as u64 * value_bytes,
            slice,
            micro_batch: longest.max(packed),
            patches,
            images,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::memory_plan::tests::{SCREEN, osworld, part, plan};
    use crate::memory_plan::{DeviceMemory, MemoryPlan, Work};
    use arpo_core::config::Moments;
    use arpo_model::config::ModelConfig;

    #[test]
    fn ranks_divide_the_moments_and_the_gradients() {
        let moments = plan(78, &["learn.ranks=8"]);
        assert_eq!((moments.problem(), moments.moments), (None, Moments::Device));
        assert!((part(&moments.learning, "moments") - 30.9 / 8.0).abs() < 0.02);
        assert!((part(&moments.learning, "gradients") - 19.61).abs() < 0.02, "{moments}");
        let gradients = plan(78, &["learn.ranks=8", "learn.zero_stage=2"]);
        assert!((part(&gradients.learning, "gradients") - 19.61 / 8.0).abs() < 0.02, "{gradients}");
        assert!((part(&gradients.learning, "gradient buffers") - 5.48).abs() < 0.02, "{gradients}");
        assert!(gradients.activation_bytes > moments.activation_bytes + (11 << 30), "{gradients}");
        // one process has nothing to divide
        assert_eq!(plan(78, &["learn.zero_stage=2"]), plan(78, &[]));
    }

    /// The published Qwen2.5-VL 32B.
    fn qwen2_5_vl_32b() -> ModelConfig {
        let text = serde_json::json!({
            "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
            "intermediate_size": 27648, "vocab_size": 152_064, "rms_norm_eps": 1e-6,
            "rope_parameters": {"mrope_section": [16, 24, 24], "rope_theta": 1e6, "rope_type": "default"},
        });
        let vision = serde_json::json!({"out_hidden_size": 5120, "intermediate_size": 3456});
        let published =
            serde_json::json!({"model_type": "qwen2_5_vl", "text_config": text, "vision_config": vision});
        arpo_model::config::parse(published).unwrap()
    }

    /// 33.45e9 parameters in bf16; gradients of 2.35e9 in the attention's projections, of embedding, head and vision tower in
    /// f32. Two blocks, one of embedding and head, and the vision tower have whole gradients.
    #[test]
    fn a_32b_on_eight_cards_needs_its_gradients_in_shards() {
        let plan = |stage: &str| {
            let sets = [
                "learn.ranks=8",
                stage,
                "agent.max_screenshots=10",
                "agent.max_tokens=1024",
                "model.micro_batch_tokens=16384",
            ];
            let memory = DeviceMemory::Gpu(140 << 30);
            MemoryPlan::new(&qwen2_5_vl_32b(), &osworld(&sets), SCREEN, memory, Work::Training)
        };
        let whole = plan("learn.zero_stage=1");
        assert!((part(&whole.learning, "gradients") - 70.87).abs() < 0.1, "{whole}");
        let problem = whole.problem().unwrap();
        assert!(problem.starts_with("learning needs"), "{problem}");
        let sharded = plan("learn.zero_stage=2");
        assert_eq!((sharded.problem(), sharded.moments), (None, Moments::Device), "{sharded}");
        for (name, gib) in
            [("weights", 62.31), ("gradients", 8.86), ("gradient buffers", 7.42), ("moments", 15.58)]
        {
            assert!((part(&sharded.learning, name) - gib).abs() < 0.05, "{name}: {sharded}");
        }
    }

    /// Memory grows with the longest slice, not with the episode.
    #[test]
    fn a_hundred_turns_need_the_memory_of_their_window() {
        let long = plan(140, &["collect.max_steps=100"]);
        let short = plan(140, &[]);
        let response_tokens = 85.0 * 212.0;
        let more = long.longest_tokens as f64 - short.longest_tokens as f64;
        assert!((more - response_tokens).abs() < 1.0, "{more}");
    }
}
