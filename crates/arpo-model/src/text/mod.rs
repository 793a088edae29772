//! The language model: a decoder with grouped-query attention, M-RoPE and gated MLPs.

mod deepstack;

pub use deepstack::Embedded;
pub(crate) use deepstack::EmbeddedGradient;

use crate::checkpoint::Weights;
use crate::config::{MlpKind, TextConfig};
use crate::layers::attention::{PackedSequences, SharedPrefix};
use crate::layers::block::{Block, BlockContext, Keep, Projected, Saved};
use crate::layers::linear::{Linear, Parameter};
use crate::layers::mlp::Mlp;
use crate::layers::norm::{Norm, RmsNorm};
use crate::layers::qk_norm::QkNorm;
use crate::layers::rotary::{self, Rotary};
use crate::positions::Positions;
use arpo_torch::kernels::Kernels;
use deepstack::DeepStack;
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
    kernels: Kernels,
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
    deepstack: Option<DeepStack>,
}

impl TextModel {
    pub(crate) fn new(config: &TextConfig, weights: &Weights) -> Self {
        let linear = |name: String| Linear { weight: weights.handle(&name), bias: None };
        let norm = |name: &str| RmsNorm { weight: weights.handle(name), epsilon: config.norm_epsilon };
        let widths = config.block_widths();
        let block = |index: usize| {
            let name = format!("text.{index}");
            Block {
                norm1: Norm::Rms(norm(&format!("{name}.norm1"))),
                qkv: Linear {
                    weight: weights.handle(&format!("{name}.qkv.weight")),
                    bias: config.qkv_bias.then(|| weights.handle(&format!("{name}.qkv.bias"))),
                },
                qk_norm: config.qk_norm.then(|| QkNorm {
                    q: norm(&format!("{name}.q_norm")),
                    k: norm(&format!("{name}.k_norm")),
                    widths: [widths.queries, widths.keys, widths.keys],
                }),
                out: linear(format!("{name}.out.weight")),
                norm2: Norm::Rms(norm(&format!("{name}.norm2"))),
                mlp: Mlp {
                    kind: MlpKind::SwiGlu,
                    up: linear(format!("{name}.gate_up.weight")),
                    down: linear(format!("{name}.down.weight")),
                },
                heads: config.heads,
                kv_heads: config.kv_heads,
            }
        };
        let embedding = weights.handle("text.embed");
        let device = embedding.value.device();
        let frequencies = rotary::frequencies(config.rope_theta, config.head_width);
        let axes: Vec<i64> = config.rope_axes.iter().map(|&axis| axis as i64).collect();
        Self {
            frequencies: Tensor::from_slice(&frequencies).to_device(device),
            axes: Tensor::from_slice(&axes).to_device(device),
            embedding,
            blocks: (0..config.layers).map(block).collect(),
            norm: norm("text.norm"),
            kernels: weights.kernels().clone(),
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
            rotary: Rotary::new(&angles, &self.kernels),
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
    pub fn hidden_states(&self, embedded: Embedded, layout: &TextLayout) -> Vec<Tensor> {
        let Embedded { tokens, deepstack } = embedded;
        let mut states = vec![tokens];
        for (index, block) in self.blocks.iter().enumerate() {
            let y = block.forward(&states[states.len() - 1], layout.context());
            states.push(add(deepstack.as_ref(), index, y));
        }
        let last = states.pop().expect("there is at least the embedding");
        states.push(self.norm.forward(&last));
        states
    }

    /// The normed hidden states after the last block of packed sequences; nothing else is kept.
    pub fn forward(&self, embedded: Embedded, layout: &TextLayout) -> Tensor {
        let Embedded { tokens, deepstack } = embedded;
        let blocks = self.blocks.iter().enumerate();
        let x = blocks.fold(tokens, |x, (index, block)| {
            add(deepstack.as_ref(), index, block.forward(&x, layout.context()))
        });
        self.norm.forward(&x)
    }

    /// The normed hidden states after the last block of the tokens `rows`, with a given attention: from a block's index
    /// and its qkv projection it computes `[tokens, heads * width]`. This is how the rollout engine attends to its kv
    /// cache.
    pub fn forward_with_attention(
        &self,
        embedded: Embedded,
        layout: &TextLayout,
        rows: &Tensor,
        mut attend: impl FnMut(usize, &Projected) -> Tensor,
    ) -> Tensor {
        let Embedded { tokens: mut x, deepstack } = embedded;
        for (index, block) in self.blocks.iter().enumerate() {
            let y = block.forward_with_attention(&x, &layout.rotary, |projected| attend(index, projected));
            x = add(deepstack.as_ref(), index, y);
        }
        self.norm.forward(&x.index_select(0, rows))
    }

    /// The normed hidden states after the last block, `[tokens, hidden]`, and the activations for the backward
    /// pass. `keep` decides what is kept of each block.
    pub(crate) fn forward_saving(
        &self,
        embedded: Embedded,
        layout: &TextLayout,
        keep: impl Fn(usize) -> Keep,
    ) -> (Tensor, SavedText) {
        let Embedded { tokens: mut x, deepstack } = embedded;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for (index, block) in self.blocks.iter().enumerate() {
            let (y, saved) = block.forward_saving(&x, layout.context(), keep(index));
            blocks.push(saved);
            x = add(deepstack.as_ref(), index, y);
        }
        (self.norm.forward(&x), SavedText { blocks, last: x, deepstack })
    }

    /// dL/d(embeddings) from dL/d(normed hidden states). `complete` is called when all gradients of a block are.
    pub(crate) fn backward<E>(
        &self,
        saved: SavedText,
        gradient: &Tensor,
        layout: &TextLayout,
        mut complete: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<EmbeddedGradient, E> {
        let SavedText { blocks, last, deepstack } = saved;
        let mut levels = Vec::new();
        let mut gradient = self.norm.backward(&last, gradient, None);
        for (index, (block, saved)) in self.blocks.iter().zip(blocks).enumerate().rev() {
            levels.extend(deepstack.as_ref().and_then(|deep| deep.level_gradient(index, &gradient)));
            gradient = block.backward(saved, &gradient, layout.context());
            complete(index)?;
        }
        levels.reverse();
        Ok(EmbeddedGradient { tokens: gradient, deepstack: levels })
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

fn add(deepstack: Option<&DeepStack>, block: usize, x: Tensor) -> Tensor {
    match deepstack {
        Some(deepstack) => deepstack.add(block, x),
        None => x,
    }
}
