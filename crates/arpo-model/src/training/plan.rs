//! Which activations are kept for the backward pass, decided from a memory budget. Pure.
//!
//! The language model comes first: recomputing its attention costs most. Blocks are raised from keeping their input to
//! keeping attention, then to keeping everything, while the budget lasts. The vision tower is kept if all of it still
//! fits; otherwise its images are encoded again in the backward pass, some at a time.

use super::MicroBatch;
use crate::Keep;
use crate::config::ModelConfig;
use tch::Kind;

/// The decision for one micro-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    text: Vec<Keep>,
    vision: Keep,
    keeps_vision: bool,
    images_per_pass: usize,
}

impl Plan {
    pub(super) fn new(config: &ModelConfig, batch: &MicroBatch, kind: Kind, budget: u64) -> Self {
        let tokens: usize = batch.sequences.iter().map(|episode| episode.tokens.len()).sum();
        let patches: Vec<usize> = batch.images.iter().map(|image| image.grid.patches()).collect();
        Self::for_sizes(config, tokens as u64, &patches, kind.elt_size_in_bytes() as u64, budget)
    }

    /// The plan for a number of tokens, and images with these numbers of patches.
    pub fn for_sizes(
        config: &ModelConfig,
        tokens: u64,
        patches: &[usize],
        value_bytes: u64,
        budget: u64,
    ) -> Self {
        let (text, left) = raise(config.text.layers, budget, |keep| {
            keep.values_per_token(config.text.block_widths()) as u64 * value_bytes * tokens
        });
        let vision_bytes = |keep: Keep, patches: u64| {
            let values = keep.values_per_token(config.vision.block_widths());
            let blocks = values as u64 * config.vision.blocks as u64;
            (blocks + deepstack_values(config)) * value_bytes * patches
        };
        let all: u64 = patches.iter().map(|&patches| patches as u64).sum();
        let largest = patches.iter().copied().max().unwrap_or(0) as u64;
        let affordable =
            [Keep::Everything, Keep::Attention].into_iter().find(|&keep| vision_bytes(keep, all) <= left);
        if let Some(vision) = affordable {
            return Self { text, vision, keeps_vision: true, images_per_pass: patches.len().max(1) };
        }
        // by then the language model's activations are freed; fewer images at a time cost nothing, but computing gate
        // and up a third time does
        let fits = |keep: Keep| vision_bytes(keep, largest) <= budget;
        let vision = if fits(Keep::Everything) { Keep::Everything } else { Keep::Attention };
        let one = vision_bytes(vision, largest);
        let images_per_pass = (budget / one.max(1)).clamp(1, patches.len() as u64) as usize;
        Self { text, vision, keeps_vision: false, images_per_pass }
    }

    /// Bytes of the language model's activations if everything is kept.
    pub fn full_activation_bytes(config: &ModelConfig, tokens: u64, value_bytes: u64) -> u64 {
        let values = Keep::Everything.values_per_token(config.text.block_widths());
        values as u64 * value_bytes * tokens * config.text.layers as u64
    }

    /// What is kept of a block of the language model.
    pub fn text(&self, block: usize) -> Keep {
        self.text[block]
    }

    /// What is kept of every block of the vision tower.
    pub fn vision(&self, _block: usize) -> Keep {
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
/// and recomputed activations. Measured for 42 200 tokens of the 7B: 14.9 GiB with 28 GiB of activations, 10.2 with 44,
/// where more is kept.
pub fn working_bytes(config: &ModelConfig, tokens: u64, value_bytes: u64) -> u64 {
    let text = &config.text;
    (4 * 2 * text.intermediate + 8 * text.hidden) as u64 * tokens * value_bytes
}

/// Values per patch that DeepStack's mergers keep for the backward pass: the block's output, normed and inside the MLP.
fn deepstack_values(config: &ModelConfig) -> u64 {
    3 * config.vision.hidden as u64 * config.vision.deepstack.len() as u64
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

/// Raises blocks one by one while the budget lasts; returns what is left of it.
fn raise(blocks: usize, budget: u64, bytes: impl Fn(Keep) -> u64) -> (Vec<Keep>, u64) {
    let mut kept = vec![Keep::Input; blocks];
    let mut left = budget.saturating_sub(blocks as u64 * bytes(Keep::Input));
    for (from, to) in [(Keep::Input, Keep::Attention), (Keep::Attention, Keep::Everything)] {
        let extra = bytes(to) - bytes(from);
        for keep in kept.iter_mut().filter(|keep| **keep == from) {
            if extra > left {
                return (kept, left);
            }
            *keep = to;
            left -= extra;
        }
    }
    (kept, left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{qwen2_5_vl_7b, qwen3_vl_8b};

    /// The whole-episode update of the 7B: 42 270 tokens, 15 screenshots of 10 764 patches.
    fn plan(budget_gib: u64) -> Plan {
        Plan::for_sizes(&qwen2_5_vl_7b(), 42_270, &[10_764; 15], 2, budget_gib << 30)
    }

    #[test]
    fn more_memory_keeps_more() {
        let count = |gib: u64, keep: Keep| (0..28).filter(|&block| plan(gib).text(block) == keep).count();
        assert_eq!(count(0, Keep::Input), 28);
        assert!(count(20, Keep::Attention) > 0 && count(20, Keep::Input) > 0);
        assert_eq!(count(34, Keep::Attention), 28);
        assert_eq!(count(130, Keep::Everything), 28);
        assert!(!plan(37).keeps_vision() && plan(1000).keeps_vision());
        assert_eq!([0, 5, 37, 1000].map(|gib| plan(gib).images_per_pass()), [1, 1, 3, 15]);
        assert_eq!([5, 37].map(|gib| plan(gib).vision(0)), [Keep::Attention, Keep::Everything]);
    }

    /// DeepStack's mergers keep three times the hidden states of their block; without them nothing is added.
    #[test]
    fn deepstack_counts() {
        let (with, mut without) = (qwen3_vl_8b(), qwen3_vl_8b());
        without.vision.deepstack.clear();
        assert_eq!(deepstack_values(&with), 3 * 3 * 1152);
        assert_eq!((deepstack_values(&without), deepstack_values(&qwen2_5_vl_7b())), (0, 0));
        // just enough for the tower without its mergers
        let patches = [8160; 15];
        let blocks = Keep::Everything.values_per_token(with.vision.block_widths()) as u64 * 27;
        let budget = 2 * blocks * 8160 * 15;
        let of = |config: &ModelConfig| Plan::for_sizes(config, 0, &patches, 2, budget);
        assert_eq!(of(&without).vision(0), Keep::Everything);
        assert!(of(&without).keeps_vision());
        assert_ne!(of(&with), of(&without));
        // the features of three more levels, four patches each
        let more = vision_working_bytes(&with, 4, 2) - vision_working_bytes(&without, 4, 2);
        assert_eq!(more, 2 * 3 * 4096);
    }
}
