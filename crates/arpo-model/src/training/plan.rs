//! Which activations are kept for the backward pass, decided from a memory budget. Pure.
//!
//! What saves most time for its bytes comes first: the results of the language model's attention, then those of the vision
//! tower's together with the inputs of its blocks, then the projections of the language model, at last those of the tower.
//! By arithmetic, for the update of the 8B from 15 screenshots: 54, 27, 7 and 2 ms for a GiB.
//!
//! Blocks of the language model are raised one by one. The vision tower is kept if all of it fits; otherwise its images are
//! encoded again in the backward pass, some at a time.

use super::{MicroBatch, PassOptions};
use crate::Keep;
use crate::config::ModelConfig;
use crate::layers::saved_attention::SavedAs;
use crate::model::Model;

/// The decision for one micro-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    text: Vec<Keep>,
    vision: Keep,
    keeps_vision: bool,
    images_per_pass: usize,
}

/// What the sizes of activations depend on besides the micro-batch.
#[derive(Debug, Clone, Copy)]
struct Dimensions<'a> {
    config: &'a ModelConfig,
    value_bytes: u64,
    /// How attention of the language model and of the vision tower is saved.
    text: SavedAs,
    vision: SavedAs,
}

impl<'a> Dimensions<'a> {
    /// All attention is saved by its result.
    fn by_results(config: &'a ModelConfig, value_bytes: u64) -> Self {
        Self { config, value_bytes, text: SavedAs::AttentionResult, vision: SavedAs::AttentionResult }
    }

    /// Bytes of a block of the language model.
    fn text(self, keep: Keep, tokens: u64) -> u64 {
        keep.bytes_per_token(self.config.text.block_widths(), self.text, self.value_bytes) * tokens
    }

    /// Bytes of the vision tower.
    fn vision(self, keep: Keep, patches: u64) -> u64 {
        let vision = &self.config.vision;
        let block = keep.bytes_per_token(vision.block_widths(), self.vision, self.value_bytes);
        (block * vision.blocks as u64 + merger_values(self.config) * self.value_bytes) * patches
    }
}

impl Plan {
    /// The plan for a micro-batch with this many bytes.
    pub(super) fn new(
        model: &Model,
        batch: &MicroBatch,
        options: &PassOptions,
        trains_vision: bool,
        budget: u64,
    ) -> Self {
        let kind = model.weights().kind();
        let config = model.config();
        let saved = |head_width: i64| SavedAs::of(kind, model.device(), head_width);
        let dimensions = Dimensions {
            config,
            value_bytes: kind.elt_size_in_bytes() as u64,
            text: if options.share_prefixes { SavedAs::Graph } else { saved(config.text.head_width) },
            vision: saved(config.vision.head_width()),
        };
        let tokens: usize = batch.sequences.iter().map(|episode| episode.tokens.len()).sum();
        let images = batch.images.iter().filter(|_| trains_vision);
        let patches: Vec<usize> = images.map(|image| image.grid.patches()).collect();
        Self::for_sizes(dimensions, tokens as u64, &patches, budget)
    }

    /// The plan for a number of tokens, and images to be trained on with these numbers of patches.
    fn for_sizes(dimensions: Dimensions, tokens: u64, patches: &[usize], budget: u64) -> Self {
        let layers = dimensions.config.text.layers;
        let text_bytes = |keep: Keep| dimensions.text(keep, tokens);
        let vision_bytes = |keep: Keep, patches: u64| dimensions.vision(keep, patches);
        let all: u64 = patches.iter().map(|&patches| patches as u64).sum();

        let mut text = vec![Keep::Input; layers];
        let mut left = budget.saturating_sub(layers as u64 * text_bytes(Keep::Input));
        let has_results = raise(&mut text, &mut left, [Keep::Input, Keep::AttentionResult], text_bytes);
        let results = vision_bytes(Keep::AttentionResult, all);
        let keeps_vision = has_results && results <= left;
        if keeps_vision {
            left -= results;
        }
        let has_everything = has_results
            && raise(&mut text, &mut left, [Keep::AttentionResult, Keep::Attention], text_bytes)
            && raise(&mut text, &mut left, [Keep::Attention, Keep::Everything], text_bytes);
        if keeps_vision {
            let fits = |&keep: &Keep| has_everything && vision_bytes(keep, all) - results <= left;
            let vision =
                [Keep::Everything, Keep::Attention].into_iter().find(fits).unwrap_or(Keep::AttentionResult);
            return Self { text, vision, keeps_vision, images_per_pass: patches.len().max(1) };
        }
        // by then the language model's activations are freed; fewer images at a time cost nothing, but computing gate
        // and up a third time does
        let largest = patches.iter().copied().max().unwrap_or(0) as u64;
        let fits = |keep: Keep| vision_bytes(keep, largest) <= budget;
        let vision = if fits(Keep::Everything) { Keep::Everything } else { Keep::Attention };
        let one = vision_bytes(vision, largest);
        let images_per_pass = (budget / one.max(1)).clamp(1, patches.len().max(1) as u64) as usize;
        Self { text, vision, keeps_vision, images_per_pass }
    }

    /// Bytes of all activations if everything is kept and all attention is saved by its result, of a number of tokens and of
    /// patches to be trained on. Where attention is saved as a graph, as much does not keep everything.
    pub fn full_activation_bytes(config: &ModelConfig, tokens: u64, patches: u64, value_bytes: u64) -> u64 {
        let dimensions = Dimensions::by_results(config, value_bytes);
        let text = dimensions.text(Keep::Everything, tokens) * config.text.layers as u64;
        text + dimensions.vision(Keep::Everything, patches)
    }

    /// What is kept of a block of the language model.
    pub fn text(&self, block: usize) -> Keep {
        self.text[block]
    }

    /// What is kept of every block of the vision tower.
    pub fn vision(&self) -> Keep {
        self.vision
    }

    /// Whether the vision tower's activations are kept from the forward pass.
    pub fn keeps_vision(&self) -> bool {
        self.keeps_vision
    }

    /// Images that are recomputed together, if they are not.
    pub fn images_per_pass(&self) -> usize {
        self.images_per_pass
    }
}

/// Bytes of the inputs of all blocks of the language model, the least a backward pass needs.
pub fn input_activation_bytes(config: &ModelConfig, tokens: u64, value_bytes: u64) -> u64 {
    config.text.layers as u64 * config.text.hidden as u64 * tokens * value_bytes
}

/// Temporary bytes of a block's pass at most: in the backward pass gate and up, their gradients, intermediate results,
/// and recomputed activations. Measured for 42 200 tokens of the 7B, before results of attention were kept: 14.9 GiB with
/// 28 GiB of activations, 10.2 with 44, where more is kept.
pub fn working_bytes(config: &ModelConfig, tokens: u64, value_bytes: u64) -> u64 {
    let text = &config.text;
    (4 * 2 * text.intermediate + 8 * text.hidden) as u64 * tokens * value_bytes
}

/// Values per patch that the mergers keep for the backward pass: each a block's output, normed and inside its MLP. The output
/// itself counts once, because those that DeepStack merges are inputs of the next blocks.
fn merger_values(config: &ModelConfig) -> u64 {
    (2 * config.vision.levels() as u64 + 1) * config.vision.hidden as u64
}

/// Temporary bytes while the vision tower encodes this many patches, without a backward pass: in a block the hidden states
/// before and after the norm, queries, keys and values, the result of attention, the MLP; and the features of all levels,
/// with what a merger has beside them.
pub fn vision_working_bytes(config: &ModelConfig, patches: u64, value_bytes: u64) -> u64 {
    let vision = &config.vision;
    let block = 6 * vision.hidden + vision.inner() * 3 / 2;
    let per_feature = vision.levels() as i64 * vision.output;
    let merging = 2 * vision.hidden + per_feature / (vision.merge * vision.merge);
    (block + merging) as u64 * patches * value_bytes
}

/// Raises blocks one by one while the budget lasts; returns whether all are.
fn raise(blocks: &mut [Keep], left: &mut u64, [from, to]: [Keep; 2], bytes: impl Fn(Keep) -> u64) -> bool {
    let extra = bytes(to) - bytes(from);
    for keep in blocks.iter_mut().filter(|keep| **keep == from) {
        if extra > *left {
            return false;
        }
        *keep = to;
        *left -= extra;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{qwen2_5_vl_7b, qwen3_vl_8b};

    /// The whole-episode update of the 7B: 42 270 tokens, 15 screenshots of 10 764 patches.
    fn plan(budget_gib: u64) -> Plan {
        let config = qwen2_5_vl_7b();
        Plan::for_sizes(Dimensions::by_results(&config, 2), 42_270, &[10_764; 15], budget_gib << 30)
    }

    #[test]
    fn more_memory_keeps_more() {
        let count = |gib: u64, keep: Keep| (0..28).filter(|&block| plan(gib).text(block) == keep).count();
        assert_eq!(count(0, Keep::Input), 28);
        assert!(count(12, Keep::AttentionResult) > 0 && count(12, Keep::Input) > 0);
        assert_eq!(count(16, Keep::AttentionResult), 28);
        assert!(count(20, Keep::Attention) > 0 && count(20, Keep::AttentionResult) > 0);
        // the tower comes before the projections of the language model, if it fits
        assert_eq!((count(34, Keep::Attention), plan(34).keeps_vision()), (28, false));
        assert!(plan(44).keeps_vision() && count(44, Keep::AttentionResult) > 0);
        assert_eq!((count(144, Keep::Everything), plan(144).vision()), (28, Keep::AttentionResult));
        assert_eq!((count(1000, Keep::Everything), plan(1000).vision()), (28, Keep::Everything));
        assert_eq!([0, 5, 37, 1000].map(|gib| plan(gib).images_per_pass()), [1, 1, 3, 15]);
        assert_eq!([5, 37].map(|gib| plan(gib).vision()), [Keep::Attention, Keep::Everything]);
    }

    /// What a plan keeps is within its budget, and a block's next step would not be.
    #[test]
    fn a_plan_uses_its_budget() {
        let (config, tokens, patches) = (qwen3_vl_8b(), 32_505, [8160; 15]);
        for saved in [SavedAs::AttentionResult, SavedAs::Graph] {
            let dimensions = Dimensions { text: saved, ..Dimensions::by_results(&config, 2) };
            for gib in [10, 20, 30, 40, 54, 70, 100] {
                let budget = gib << 30;
                let plan = Plan::for_sizes(dimensions, tokens, &patches, budget);
                let text: u64 = (0..36).map(|block| dimensions.text(plan.text(block), tokens)).sum();
                let vision =
                    if plan.keeps_vision() { dimensions.vision(plan.vision(), 8160 * 15) } else { 0 };
                let largest_step = dimensions.text(Keep::Everything, tokens);
                assert!(text + vision <= budget, "{saved:?}, {gib} GiB: {plan:?}");
                assert!(text + vision + largest_step > budget, "{saved:?}, {gib} GiB: {plan:?}");
            }
        }
    }

    /// Where attention is saved as a graph, its result alone cannot be kept.
    #[test]
    fn a_graph_keeps_queries_keys_and_values() {
        let widths = qwen3_vl_8b().text.block_widths();
        let bytes = |saved: SavedAs| {
            [Keep::Input, Keep::AttentionResult, Keep::Attention, Keep::Everything]
                .map(|keep| keep.bytes_per_token(widths, saved, 2))
        };
        let (hidden, queries, projections, inner) = (2 * 4096, 2 * 4096, 2 * 6144, 2 * 24_576);
        let result = hidden + queries + 32 * 4;
        let attention = result + hidden + projections;
        assert_eq!(bytes(SavedAs::AttentionResult), [hidden, result, attention, attention + inner]);
        let graph = 2 * hidden + queries + 2 * projections + 3 * queries;
        assert_eq!(bytes(SavedAs::Graph), [hidden, hidden, graph, graph + inner]);
    }

    /// A frozen tower takes nothing from the language model, whatever the budget.
    #[test]
    fn images_that_are_not_trained_on_need_nothing() {
        let config = qwen2_5_vl_7b();
        let plan = |gib: u64| Plan::for_sizes(Dimensions::by_results(&config, 2), 42_270, &[], gib << 30);
        assert_eq!([0, 10, 200].map(|gib| plan(gib).images_per_pass()), [1; 3]);
        assert_eq!(plan(34).text(27), Keep::Attention);
        let full = |patches: u64| Plan::full_activation_bytes(&config, 42_270, patches, 2);
        assert_eq!(full(0), 28 * Dimensions::by_results(&config, 2).text(Keep::Everything, 42_270));
        assert!(full(161_460) > full(0) + (100 << 30));
    }

    /// Every merger keeps twice the hidden states of its block, one of them its input too.
    #[test]
    fn mergers_count() {
        let (with, mut without) = (qwen3_vl_8b(), qwen3_vl_8b());
        without.vision.deepstack.clear();
        assert_eq!((merger_values(&with), merger_values(&without)), (9 * 1152, 3 * 1152));
        assert_eq!(merger_values(&qwen2_5_vl_7b()), 3 * 1280);
        // just enough for the tower without DeepStack's
        let budget = Dimensions::by_results(&without, 2).vision(Keep::AttentionResult, 15 * 8160);
        let of =
            |config: &ModelConfig| Plan::for_sizes(Dimensions::by_results(config, 2), 0, &[8160; 15], budget);
        assert!(of(&without).keeps_vision() && !of(&with).keeps_vision());
        // the features of three more levels, four patches each
        let more = vision_working_bytes(&with, 4, 2) - vision_working_bytes(&without, 4, 2);
        assert_eq!(more, 2 * 3 * 4096);
    }
}
