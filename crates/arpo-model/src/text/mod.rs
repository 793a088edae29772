//! The language model: a decoder with grouped-query attention, M-RoPE and gated MLPs.

use crate::checkpoint::Weights;
use crate::config::TextConfig;
use crate::layers::attention::{PackedSequences, SharedPrefix};
use crate::layers::block::{Block, BlockContext, Keep, Projected, Saved};
use crate::layers::linear::{Linear, Parameter};
use crate::layers::norm::RmsNorm;
use crate::layers::rotary::{self, Rotary};
use crate::positions::Positions;
use tch::{Device, Kind, Tensor};

/// The decoder.
#[derive(Debug)]
pub struct TextModel {
    embedding: Parameter, // [vocabulary, hidden]
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear, // [vocabulary, hidden]
    /// Rotary frequencies, and the axis that each rotates by.
    frequencies: Tensor, // [head_width / 2]
    axes: Tensor, // [head_width / 2]
}

/// Token positions of packed sequences, and what attends to what.
#[derive(Debug)]
pub struct TextLayout {
    rotary: Rotary,
    sequences: PackedSequences,
}

impl TextLayout {
    fn context(&self) -> BlockContext<'_> {
        BlockContext { rotary: &self.rotary, sequences: &self.sequences }
    }
}

/// Activations saved for the backward pass.
#[derive(Debug)]
pub(crate) struct SavedText {
    blocks: Vec<Saved>,
    last: Tensor,
}

impl TextModel {
    pub(crate) fn new(config: &TextConfig, weights: &Weights) -> Self {
        let linear = |name: String| Linear { weight: weights.handle(&name), bias: None };
        let norm = |name: &str| RmsNorm { weight: weights.handle(name), epsilon: config.norm_epsilon };
        let block = |index: usize| {
            let name = format!("text.{index}");
            Block {
                norm1: norm(&format!("{name}.norm1")),
                qkv: Linear {
                    weight: weights.handle(&format!("{name}.qkv.weight")),
                    bias: Some(weights.handle(&format!("{name}.qkv.bias"))),
                },
                out: linear(format!("{name}.out.weight")),
                norm2: norm(&format!("{name}.norm2")),
                gate_up: linear(format!("{name}.gate_up.weight")),
                down: linear(format!("{name}.down.weight")),
                heads: config.heads,
                kv_heads: config.kv_heads,
            }
        };
        let embedding = weights.handle("text.embed");
        let device = embedding.value.device();
        let frequencies = rotary::frequencies(config.rope_theta, config.head_width());
        let axes: Vec<i64> =
            (0..3).flat_map(|axis| std::iter::repeat_n(axis as i64, config.mrope_section[axis])).collect();
        Self {
            frequencies: Tensor::from_slice(&frequencies).to_device(device),
            axes: Tensor::from_slice(&axes).to_device(device),
            embedding,
            blocks: (0..config.layers).map(block).collect(),
            norm: norm("text.norm"),
            head: linear(if config.tied_head { "text.embed" } else { "text.head" }.to_owned()),
        }
    }

    /// Embeddings of tokens `[tokens]`: `[tokens, hidden]`.
    pub fn embed(&self, tokens: &Tensor) -> Tensor {
        Tensor::embedding(&self.embedding.value, tokens, -1, false, false)
    }

    /// Accumulates the embedding's gradient, from `tokens` and the gradients of their embeddings.
    pub(crate) fn embed_backward(&self, tokens: &Tensor, gradient: &Tensor) {
        if let Some(buffer) = &self.embedding.gradient {
            let _ = buffer.shallow_clone().index_add_(0, tokens, &gradient.to_kind(buffer.kind()));
        }
    }

    /// The layout of packed sequences.
    pub fn layout(&self, positions: &[Positions], device: Device) -> TextLayout {
        // all axes in one transfer: a decoding step is short enough for it to matter
        let coordinates: Vec<i64> = (0..3)
            .flat_map(|axis| positions.iter().flat_map(move |one| one.axes[axis].iter().copied()))
            .collect();
        let coordinates =
            Tensor::from_slice(&coordinates).to_device(device).view([3, -1]).to_kind(Kind::Float);
        let angles = coordinates.index_select(0, &self.axes).transpose(0, 1) * &self.frequencies;
        let lengths = positions.iter().map(|one| one.axes[0].len() as i64).collect();
        TextLayout {
            rotary: Rotary::new(&angles),
            sequences: PackedSequences { lengths, causal: true, order: None, shared_prefix: None },
        }
    }

    /// The layout of sequences that share prefixes: `visible` lists for each the rows of everything its last token
    /// attends to, its own tokens at the end.
    pub(crate) fn layout_with_shared_prefix(
        &self,
        positions: &[Positions],
        visible: &[Vec<i64>],
        device: Device,
    ) -> TextLayout {
        let TextLayout { rotary, mut sequences } = self.layout(positions, device);
        let heads = self.blocks.first().map_or(1, |block| block.heads / block.kv_heads);
        sequences.shared_prefix = Some(SharedPrefix::new(&sequences.lengths, visible, heads, device));
        TextLayout { rotary, sequences }
    }

    /// Hidden states of packed sequences: before the first block, after each, the last one normed.
    pub fn hidden_states(&self, embedded: Tensor, layout: &TextLayout) -> Vec<Tensor> {
        let mut states = vec![embedded];
        for block in &self.blocks {
            states.push(block.forward(&states[states.len() - 1], layout.context()));
        }
        let last = states.pop().expect("there is at least the embedding");
        states.push(self.norm.forward(&last));
        states
    }

    /// The normed hidden states after the last block of packed sequences; nothing else is kept.
    pub fn forward(&self, embedded: Tensor, layout: &TextLayout) -> Tensor {
        let x = self.blocks.iter().fold(embedded, |x, block| block.forward(&x, layout.context()));
        self.norm.forward(&x)
    }

    /// The normed hidden states after the last block of the tokens `rows`, with a given attention: from a block's index
    /// and its qkv projection it computes `[tokens, heads * width]`. This is how the rollout engine attends to its kv
    /// cache.
    pub fn forward_with_attention(
        &self,
        embedded: Tensor,
        layout: &TextLayout,
        rows: &Tensor,
        mut attend: impl FnMut(usize, &Projected) -> Tensor,
    ) -> Tensor {
        let mut x = embedded;
        for (index, block) in self.blocks.iter().enumerate() {
            x = block.forward_with_attention(&x, &layout.rotary, |projected| attend(index, projected));
        }
        self.norm.forward(&x.index_select(0, rows))
    }

    /// The normed hidden states after the last block, `[tokens, hidden]`, and the activations for the backward
    /// pass. `keep` decides what is kept of each block.
    pub(crate) fn forward_saving(
        &self,
        embedded: Tensor,
        layout: &TextLayout,
        keep: impl Fn(usize) -> Keep,
    ) -> (Tensor, SavedText) {
        let mut x = embedded;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for (index, block) in self.blocks.iter().enumerate() {
            let (y, saved) = block.forward_saving(&x, layout.context(), keep(index));
            blocks.push(saved);
            x = y;
        }
        (self.norm.forward(&x), SavedText { blocks, last: x })
    }

    /// dL/d(embeddings) from dL/d(normed hidden states).
    pub(crate) fn backward(&self, saved: SavedText, gradient: &Tensor, layout: &TextLayout) -> Tensor {
        let mut gradient = self.norm.backward(&saved.last, gradient, None);
        for (block, saved) in self.blocks.iter().zip(saved.blocks).rev() {
            gradient = block.backward(saved, &gradient, layout.context());
        }
        gradient
    }

    /// Logits of hidden states: `[..., vocabulary]`.
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        self.head.forward(hidden)
    }

    /// dL/d(hidden) from dL/d(logits).
    pub(crate) fn logits_backward(&self, hidden: &Tensor, gradient: &Tensor) -> Tensor {
        self.head.backward(hidden, gradient)
    }
}
