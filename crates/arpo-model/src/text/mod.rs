//! The language model: a decoder with grouped keys and values, M-RoPE and gated MLPs.

use crate::checkpoint::Weights;
use crate::config::TextConfig;
use crate::layers::attention::{GoingOn, Runs};
use crate::layers::block::{Block, Keep, Projected, Saved, Surroundings};
use crate::layers::linear::{Linear, Parameter};
use crate::layers::norm::RmsNorm;
use crate::layers::rotary::{self, Rotary};
use crate::positions::Positions;
use arpo_torch::kernels::token::{TokenBlock, TokenModel, WholeToken};
use tch::{Device, Kind, Tensor};

/// The decoder.
#[derive(Debug)]
pub struct TextModel {
    embedding: Parameter, // [vocabulary, hidden]
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Linear, // [vocabulary, hidden]
    /// Of the rotary positions, with the axis that each follows.
    frequencies: Tensor, // [head_width / 2]
    axes: Tensor, // [head_width / 2]
}

/// Where the tokens of sequences stand and what they see.
#[derive(Debug)]
pub struct TextLayout {
    rotary: Rotary,
    runs: Runs,
}

impl TextLayout {
    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings { rotary: &self.rotary, runs: &self.runs }
    }
}

/// What the backward pass needs of a forward pass.
#[derive(Debug)]
pub(crate) struct SavedText {
    blocks: Vec<Saved>,
    last: Tensor,
}

impl TextModel {
    pub(crate) fn new(config: &TextConfig, weights: &Weights) -> Self {
        let linear = |name: String| Linear { weight: weights.handle(&name), bias: None };
        let norm = |name: &str| RmsNorm { weight: weights.handle(name), epsilon: config.norm_epsilon };
        let block = |number: usize| {
            let name = format!("text.{number}");
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
                key_value_heads: config.key_value_heads,
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

    /// Adds to the embedding's gradient: `tokens` and the gradients of their embeddings.
    pub(crate) fn embed_backward(&self, tokens: &Tensor, gradient: &Tensor) {
        if let Some(buffer) = &self.embedding.gradient {
            let _ = buffer.shallow_clone().index_add_(0, tokens, &gradient.to_kind(buffer.kind()));
        }
    }

    /// The layout of sequences one behind the other.
    pub fn layout(&self, positions: &[Positions], device: Device) -> TextLayout {
        // all axes in one transfer: a step of the rollout engine is short enough to notice
        let places: Vec<i64> = (0..3)
            .flat_map(|axis| positions.iter().flat_map(move |one| one.axes[axis].iter().copied()))
            .collect();
        let places = Tensor::from_slice(&places).to_device(device).view([3, -1]).to_kind(Kind::Float);
        let angles = places.index_select(0, &self.axes).transpose(0, 1) * &self.frequencies;
        let lengths = positions.iter().map(|one| one.axes[0].len() as i64).collect();
        TextLayout {
            rotary: Rotary::new(&angles),
            runs: Runs { lengths, causal: true, order: None, going_on: None },
        }
    }

    /// The layout of runs that go on where others part: `seen` lists for each where everything lies that its last token
    /// sees, its own tokens at the end.
    pub(crate) fn layout_going_on(
        &self,
        positions: &[Positions],
        seen: &[Vec<i64>],
        device: Device,
    ) -> TextLayout {
        let TextLayout { rotary, mut runs } = self.layout(positions, device);
        let heads = self.blocks.first().map_or(1, |block| block.heads / block.key_value_heads);
        runs.going_on = Some(GoingOn::new(&runs.lengths, seen, heads, device));
        TextLayout { rotary, runs }
    }

    /// Hidden states of sequences one behind the other: before the first block, after each, the last one normed.
    pub fn hidden_states(&self, embedded: Tensor, layout: &TextLayout) -> Vec<Tensor> {
        let mut states = vec![embedded];
        for block in &self.blocks {
            states.push(block.forward(&states[states.len() - 1], layout.surroundings()));
        }
        let last = states.pop().expect("there is at least the embedding");
        states.push(self.norm.forward(&last));
        states
    }

    /// The normed hidden states after the last block of sequences one behind the other; nothing else is kept.
    pub fn forward(&self, embedded: Tensor, layout: &TextLayout) -> Tensor {
        let x = self.blocks.iter().fold(embedded, |x, block| block.forward(&x, layout.surroundings()));
        self.norm.forward(&x)
    }

    /// The normed hidden states after the last block of the tokens `rows`, with another attention than that within the
    /// given tokens: of a block's number and its queries, keys and values it makes `[tokens, heads * width]`. This is how
    /// a cache of earlier tokens comes in.
    pub fn forward_attending(
        &self,
        embedded: Tensor,
        layout: &TextLayout,
        rows: &Tensor,
        mut attend: impl FnMut(usize, &Projected) -> Tensor,
    ) -> Tensor {
        let mut x = embedded;
        for (number, block) in self.blocks.iter().enumerate() {
            x = block.forward_attending(&x, &layout.rotary, |projected| attend(number, projected));
        }
        self.norm.forward(&x.index_select(0, rows))
    }

    /// The normed hidden states after the last block, `[tokens, hidden]`, and what the backward pass needs. `keep` says
    /// what is kept of each block.
    pub(crate) fn forward_saving(
        &self,
        embedded: Tensor,
        layout: &TextLayout,
        keep: impl Fn(usize) -> Keep,
    ) -> (Tensor, SavedText) {
        let mut x = embedded;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for (number, block) in self.blocks.iter().enumerate() {
            let (y, saved) = block.forward_saving(&x, layout.surroundings(), keep(number));
            blocks.push(saved);
            x = y;
        }
        (self.norm.forward(&x), SavedText { blocks, last: x })
    }

    /// dL/d(embeddings) from dL/d(normed hidden states).
    pub(crate) fn backward(&self, saved: SavedText, gradient: &Tensor, layout: &TextLayout) -> Tensor {
        let mut gradient = self.norm.backward(&saved.last, gradient, None);
        for (block, saved) in self.blocks.iter().zip(saved.blocks).rev() {
            gradient = block.backward(saved, &gradient, layout.surroundings());
        }
        gradient
    }

    /// The embedding of one token, `[hidden]`, where it lies.
    pub fn embedding_of(&self, token: u32) -> Tensor {
        self.embedding.value.get(i64::from(token))
    }

    /// Ready for single tokens of single sequences, whose keys and values lie in these pages of each block. An error says why
    /// there is no kernel for that.
    pub fn whole_token<'a>(&'a self, pages: impl Fn(usize) -> [&'a Tensor; 2]) -> Result<WholeToken, String> {
        let block = |(number, block): (usize, &'a Block)| {
            let [keys, values] = pages(number);
            Some(TokenBlock {
                norm1: &block.norm1.weight.value,
                qkv: &block.qkv.weight.value,
                qkv_bias: block.qkv.bias()?,
                out: &block.out.weight.value,
                norm2: &block.norm2.weight.value,
                gate_up: &block.gate_up.weight.value,
                down: &block.down.weight.value,
                keys,
                values,
            })
        };
        WholeToken::new(&TokenModel {
            blocks: self
                .blocks
                .iter()
                .enumerate()
                .map(block)
                .collect::<Option<_>>()
                .ok_or("keys without a bias")?,
            norm: &self.norm.weight.value,
            head: &self.head.weight.value,
            frequencies: &self.frequencies,
            axes: &self.axes,
            heads: self.blocks.first().map_or(0, |block| block.heads),
            epsilon: self.norm.epsilon,
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn the_single_kernel_takes_layers_as_they_are() {
        let mut config = config::qwen2_5_vl_7b();
        config.text = TextConfig {
            layers: 2,
            hidden: 256,
            intermediate: 512,
            heads: 2,
            key_value_heads: 1,
            vocabulary: 64,
            ..config.text
        };
        config.vision.blocks = 1;
        config.vision.output = 256;
        let weights = Weights::random(&config, Kind::BFloat16, Device::Cpu);
        let text = TextModel::new(&config.text, &weights);
        let pages = |tokens: i64| Tensor::zeros([3, 1, tokens, 128], (Kind::BFloat16, Device::Cpu));
        let (alike, other) = (pages(16), pages(32));
        let why = |values: &Tensor| text.whole_token(|_| [&alike, values]).err().unwrap_or_default();
        // all but the device is right
        assert_eq!(why(&alike), "the model is on Cpu, not on the first GPU");
        assert!(
            why(&other).starts_with("layers that are not as Sizes { layers: 2, hidden: 256"),
            "{}",
            why(&other)
        );
    }
}
