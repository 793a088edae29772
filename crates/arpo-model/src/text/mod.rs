//! The language model: a decoder with grouped keys and values, M-RoPE and gated MLPs.

use crate::checkpoint::Weights;
use crate::config::TextConfig;
use crate::layers::{Linear, Rotary, attention, rms_norm, rotary_frequencies, swiglu};
use crate::positions::Positions;
use tch::{Device, Tensor};

/// The decoder.
#[derive(Debug)]
pub struct TextModel {
    config: TextConfig,
    embedding: Tensor, // [vocabulary, hidden]
    layers: Vec<Layer>,
    norm: Tensor,
    head: Tensor, // [vocabulary, hidden]
}

#[derive(Debug)]
struct Layer {
    norm1: Tensor,
    qkv: Linear,
    out: Linear,
    norm2: Tensor,
    gate_up: Linear,
    down: Linear,
}

impl TextModel {
    pub(crate) fn new(config: &TextConfig, weights: &Weights) -> Self {
        let without_bias = |name: String| Linear { weight: weights.handle(&name), bias: None };
        let layer = |number: usize| {
            let name = format!("text.{number}");
            Layer {
                norm1: weights.handle(&format!("{name}.norm1")),
                qkv: Linear {
                    weight: weights.handle(&format!("{name}.qkv.weight")),
                    bias: Some(weights.handle(&format!("{name}.qkv.bias"))),
                },
                out: without_bias(format!("{name}.out.weight")),
                norm2: weights.handle(&format!("{name}.norm2")),
                gate_up: without_bias(format!("{name}.gate_up.weight")),
                down: without_bias(format!("{name}.down.weight")),
            }
        };
        Self {
            embedding: weights.handle("text.embed"),
            layers: (0..config.layers).map(layer).collect(),
            norm: weights.handle("text.norm"),
            head: weights.handle(if config.tied_head { "text.embed" } else { "text.head" }),
            config: config.clone(),
        }
    }

    /// Embeddings of tokens `[tokens]`: `[tokens, hidden]`.
    pub fn embed(&self, tokens: &Tensor) -> Tensor {
        Tensor::embedding(&self.embedding, tokens, -1, false, false)
    }

    /// Rotary angles of a sequence, each frequency following its axis.
    pub fn rotary(&self, positions: &Positions, device: Device) -> Rotary {
        let frequencies = rotary_frequencies(self.config.rope_theta, self.config.head_width());
        let mut start = 0;
        let parts: Vec<Tensor> = (0..3)
            .map(|axis| {
                let count = self.config.mrope_section[axis];
                let places =
                    Tensor::from_slice(&positions.axes[axis]).to_device(device).to_kind(tch::Kind::Float);
                let frequencies = Tensor::from_slice(&frequencies[start..start + count]).to_device(device);
                start += count;
                places.unsqueeze(1) * frequencies.unsqueeze(0)
            })
            .collect();
        Rotary::new(&Tensor::cat(&parts, 1))
    }

    /// Hidden states of sequences one behind the other, of these lengths: before the first layer, after each, the
    /// last one normed.
    pub fn hidden_states(&self, embedded: Tensor, rotary: &Rotary, lengths: &[i64]) -> Vec<Tensor> {
        let mut states = vec![embedded];
        for layer in &self.layers {
            let next = self.layer(layer, &states[states.len() - 1], rotary, lengths);
            states.push(next);
        }
        let last = states.pop().expect("there is at least the embedding");
        states.push(self.normed(&last));
        states
    }

    /// The normed hidden states after the last layer: `[tokens, hidden]`.
    pub fn forward(&self, embedded: Tensor, rotary: &Rotary, lengths: &[i64]) -> Tensor {
        let last = self.layers.iter().fold(embedded, |x, layer| self.layer(layer, &x, rotary, lengths));
        self.normed(&last)
    }

    /// Logits of hidden states: `[..., vocabulary]`.
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        hidden.linear(&self.head, None::<&Tensor>)
    }

    fn normed(&self, x: &Tensor) -> Tensor {
        rms_norm(x, &self.norm, self.config.norm_epsilon)
    }

    fn layer(&self, layer: &Layer, x: &Tensor, rotary: &Rotary, lengths: &[i64]) -> Tensor {
        let TextConfig { heads, key_value_heads, norm_epsilon, .. } = self.config;
        let width = self.config.head_width();
        let qkv = layer.qkv.forward(&rms_norm(x, &layer.norm1, norm_epsilon));
        let qkv = qkv.view([-1, heads + 2 * key_value_heads, width]);
        let q = rotary.turn(&qkv.narrow(1, 0, heads)); // [tokens, heads, width]
        let k = rotary.turn(&qkv.narrow(1, heads, key_value_heads)); // [tokens, key_value_heads, width]
        let v = qkv.narrow(1, heads + key_value_heads, key_value_heads).contiguous();
        let x = x + layer.out.forward(&attention(&q, &k, &v, lengths, true));
        let gate_up = layer.gate_up.forward(&rms_norm(&x, &layer.norm2, norm_epsilon));
        &x + layer.down.forward(&swiglu(&gate_up))
    }
}
