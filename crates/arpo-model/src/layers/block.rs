//! The transformer block of both towers: attention and a gated MLP, each with a pre-norm and a residual connection.

use super::attention::{PackedSequences, SavedAttention, attention};
use super::linear::Linear;
use super::norm::RmsNorm;
use super::rotary::Rotary;
use super::swiglu;
use arpo_torch::kernels::paged::PageSlots;
use tch::Tensor;

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) norm1: RmsNorm,
    /// The fused projection of queries, keys and values.
    pub(crate) qkv: Linear,
    pub(crate) out: Linear,
    pub(crate) norm2: RmsNorm,
    /// The fused projection of gate and up.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
    pub(crate) heads: i64,
    pub(crate) kv_heads: i64,
}

/// Token positions and what attends to what: the same for all blocks, or for some.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockContext<'a> {
    pub(crate) rotary: &'a Rotary,
    pub(crate) sequences: &'a PackedSequences,
}

/// Activations kept from the forward pass for the backward pass; the rest is recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// The block's input only: the whole block is recomputed.
    Input,
    /// Attention and its residual too: norms and the gate and up projection are recomputed.
    Attention,
    /// The gate and up projection too: only norms are recomputed.
    Everything,
}

impl Keep {
    /// Values kept for each token of a block, from the widths of the hidden state, of the queries, and of the qkv and
    /// the gate and up projections.
    pub(crate) fn values_per_token(self, hidden: i64, queries: i64, qkv: i64, gate_up: i64) -> i64 {
        match self {
            Self::Input => hidden,
            // input and middle; queries, keys, values and attention's output
            Self::Attention => 2 * hidden + qkv + queries,
            Self::Everything => Self::Attention.values_per_token(hidden, queries, qkv, gate_up) + gate_up,
        }
    }
}

/// The kept activations of one block.
#[derive(Debug)]
pub(crate) struct Saved {
    input: Tensor,
    attended: Option<Attended>,
}

#[derive(Debug)]
struct Attended {
    attention: SavedAttention,
    /// The input plus the output of attention.
    middle: Tensor,
    gate_up: Option<Tensor>,
}

impl Block {
    /// `[tokens, hidden]` to the same.
    pub(crate) fn forward(&self, x: &Tensor, context: BlockContext) -> Tensor {
        self.forward_with_attention(x, context.rotary, |projected| {
            let [q, k, v] = projected.split();
            attention(&q, &k, &v, context.sequences)
        })
    }

    /// The same with a given attention, which returns `[tokens, heads * width]`.
    pub(crate) fn forward_with_attention(
        &self,
        x: &Tensor,
        rotary: &Rotary,
        attend: impl FnOnce(&Projected) -> Tensor,
    ) -> Tensor {
        let middle = self.out.forward_onto(x, &attend(&self.project(x, rotary)));
        self.down.forward_onto(&middle, &swiglu::project(&self.gate_up, &self.norm2.forward(&middle)))
    }

    /// The same, keeping what the backward pass will need.
    pub(crate) fn forward_saving(&self, x: &Tensor, context: BlockContext, keep: Keep) -> (Tensor, Saved) {
        if keep == Keep::Input {
            let saved = Saved { input: x.shallow_clone(), attended: None };
            return (self.forward(x, context), saved);
        }
        let mut attended = self.attend(x, context);
        let gate_up = self.gate_up.matmul(&self.norm2.forward(&attended.middle));
        let y = self.down.forward_onto(&attended.middle, &swiglu::forward(&gate_up, self.gate_up.bias()));
        if keep == Keep::Everything {
            attended.gate_up = Some(gate_up);
        }
        (y, Saved { input: x.shallow_clone(), attended: Some(attended) })
    }

    /// dL/dx from dL/dy; accumulates the parameters' gradients.
    pub(crate) fn backward(&self, saved: Saved, dy: &Tensor, context: BlockContext) -> Tensor {
        let Saved { input, attended } = saved;
        let Attended { attention, middle, gate_up } =
            attended.unwrap_or_else(|| self.attend(&input, context));

        let normed = self.norm2.forward(&middle);
        let gate_up = gate_up.unwrap_or_else(|| self.gate_up.matmul(&normed));
        let (h, d_gate_up) = swiglu::backward(&gate_up, self.gate_up.bias(), &self.down.input_gradient(dy));
        drop(gate_up);
        self.down.accumulate(&h, dy);
        drop(h);
        let d_normed = self.gate_up.backward(&normed, &d_gate_up);
        drop((normed, d_gate_up));
        let d_middle = self.norm2.backward(&middle, &d_normed, Some(dy));
        drop((middle, d_normed));

        let d_attended = self.out.backward(&attention.output(context.sequences), &d_middle);
        let d_qkv = context.rotary.join(&attention.backward(&d_attended, context.sequences));
        drop(d_attended);
        let d_normed = self.qkv.backward(&self.norm1.forward(&input), &d_qkv);
        self.norm1.backward(&input, &d_normed, Some(&d_middle))
    }

    fn attend(&self, x: &Tensor, context: BlockContext) -> Attended {
        let [q, k, v] = self.project(x, context.rotary).split();
        let attention = SavedAttention::new(&q, &k, &v, context.sequences);
        let middle = self.out.forward_onto(x, &attention.output(context.sequences));
        Attended { attention, middle, gate_up: None }
    }

    fn project<'a>(&self, x: &Tensor, rotary: &'a Rotary) -> Projected<'a> {
        let qkv = self.qkv.forward(&self.norm1.forward(x));
        Projected { qkv, rotary, heads: self.heads, kv_heads: self.kv_heads }
    }
}

/// The qkv projection of tokens, before RoPE.
#[derive(Debug)]
pub struct Projected<'a> {
    qkv: Tensor,
    rotary: &'a Rotary,
    heads: i64,
    kv_heads: i64,
}

impl Projected<'_> {
    /// Queries, keys and values, RoPE applied to the first two: `[tokens, heads, width]` each.
    pub fn split(&self) -> [Tensor; 3] {
        self.rotary.split(&self.qkv, self.heads, self.kv_heads)
    }

    /// Queries alone, with keys and values written into pages; `None`, and nothing written, without the fused kernel.
    pub fn split_into(&self, slots: PageSlots) -> Option<Tensor> {
        self.rotary.split_into(&self.qkv, self.heads, slots)
    }
}
