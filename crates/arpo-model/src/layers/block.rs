//! The transformer block of both towers: attention and a gated MLP, each behind a norm and beside a residual.

use super::attention::{Runs, SavedAttention, attention};
use super::linear::Linear;
use super::norm::RmsNorm;
use super::rotary::Rotary;
use super::swiglu;
use arpo_torch::kernels::paged::PageSlots;
use tch::Tensor;

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) norm1: RmsNorm,
    /// Queries, keys and values in one product.
    pub(crate) qkv: Linear,
    pub(crate) out: Linear,
    pub(crate) norm2: RmsNorm,
    /// Gate and up in one product.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
    pub(crate) heads: i64,
    pub(crate) key_value_heads: i64,
}

/// Where tokens stand and what they see: the same for all blocks, or for some.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) rotary: &'a Rotary,
    pub(crate) runs: &'a Runs,
}

/// What is kept from the forward pass for the backward pass; the rest is computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// The block's input only: the whole block is computed again.
    Input,
    /// Attention and what follows it; norms and the product with gate and up are computed again.
    Attention,
    /// Also the product with gate and up: only norms are computed again.
    Everything,
}

impl Keep {
    /// Numbers kept for each token of a block: `hidden` wide, with `qkv` numbers of queries, keys and values, of which
    /// `queries` are queries, and `gate_up` inside.
    pub(crate) fn numbers_per_token(self, hidden: i64, queries: i64, qkv: i64, gate_up: i64) -> i64 {
        match self {
            Self::Input => hidden,
            // input and middle; queries, keys, values and what attention made of them
            Self::Attention => 2 * hidden + qkv + queries,
            Self::Everything => Self::Attention.numbers_per_token(hidden, queries, qkv, gate_up) + gate_up,
        }
    }
}

/// What was kept of one block.
#[derive(Debug)]
pub(crate) struct Saved {
    input: Tensor,
    attended: Option<Attended>,
}

#[derive(Debug)]
struct Attended {
    attention: SavedAttention,
    /// The input plus what attention added.
    middle: Tensor,
    gate_up: Option<Tensor>,
}

impl Block {
    /// `[tokens, hidden]` to the same.
    pub(crate) fn forward(&self, x: &Tensor, surroundings: Surroundings) -> Tensor {
        self.forward_attending(x, surroundings.rotary, |projected| {
            let [q, k, v] = projected.split();
            attention(&q, &k, &v, surroundings.runs)
        })
    }

    /// The same with another attention, which makes `[tokens, heads * width]`.
    pub(crate) fn forward_attending(
        &self,
        x: &Tensor,
        rotary: &Rotary,
        attend: impl FnOnce(&Projected) -> Tensor,
    ) -> Tensor {
        let middle = self.out.forward_onto(x, &attend(&self.project(x, rotary)));
        self.down.forward_onto(&middle, &swiglu::product(&self.gate_up, &self.norm2.forward(&middle)))
    }

    /// The same, keeping what the backward pass will need.
    pub(crate) fn forward_saving(
        &self,
        x: &Tensor,
        surroundings: Surroundings,
        keep: Keep,
    ) -> (Tensor, Saved) {
        if keep == Keep::Input {
            let saved = Saved { input: x.shallow_clone(), attended: None };
            return (self.forward(x, surroundings), saved);
        }
        let mut attended = self.attend(x, surroundings);
        let gate_up = self.gate_up.product(&self.norm2.forward(&attended.middle));
        let y = self.down.forward_onto(&attended.middle, &swiglu::forward(&gate_up, self.gate_up.bias()));
        if keep == Keep::Everything {
            attended.gate_up = Some(gate_up);
        }
        (y, Saved { input: x.shallow_clone(), attended: Some(attended) })
    }

    /// dL/dx from dL/dy; the parameters' gradients are added to.
    pub(crate) fn backward(&self, saved: Saved, dy: &Tensor, surroundings: Surroundings) -> Tensor {
        let Saved { input, attended } = saved;
        let Attended { attention, middle, gate_up } =
            attended.unwrap_or_else(|| self.attend(&input, surroundings));

        let normed = self.norm2.forward(&middle);
        let gate_up = gate_up.unwrap_or_else(|| self.gate_up.product(&normed));
        let (h, d_gate_up) = swiglu::backward(&gate_up, self.gate_up.bias(), &self.down.input_gradient(dy));
        drop(gate_up);
        self.down.accumulate(&h, dy);
        drop(h);
        let d_normed = self.gate_up.backward(&normed, &d_gate_up);
        drop((normed, d_gate_up));
        let d_middle = self.norm2.backward(&middle, &d_normed, Some(dy));
        drop((middle, d_normed));

        let d_attended = self.out.backward(&attention.output(surroundings.runs), &d_middle);
        let d_qkv = surroundings.rotary.join(&attention.backward(&d_attended, surroundings.runs));
        drop(d_attended);
        let d_normed = self.qkv.backward(&self.norm1.forward(&input), &d_qkv);
        self.norm1.backward(&input, &d_normed, Some(&d_middle))
    }

    fn attend(&self, x: &Tensor, surroundings: Surroundings) -> Attended {
        let [q, k, v] = self.project(x, surroundings.rotary).split();
        let attention = SavedAttention::new(&q, &k, &v, surroundings.runs);
        let middle = self.out.forward_onto(x, &attention.output(surroundings.runs));
        Attended { attention, middle, gate_up: None }
    }

    fn project<'a>(&self, x: &Tensor, rotary: &'a Rotary) -> Projected<'a> {
        let product = self.qkv.forward(&self.norm1.forward(x));
        Projected { product, rotary, heads: self.heads, shared: self.key_value_heads }
    }
}

/// Queries, keys and values of tokens, not yet turned to their places.
#[derive(Debug)]
pub struct Projected<'a> {
    product: Tensor,
    rotary: &'a Rotary,
    heads: i64,
    shared: i64,
}

impl Projected<'_> {
    /// Queries, keys and values, the first two turned to their places: `[tokens, heads, width]` each.
    pub fn split(&self) -> [Tensor; 3] {
        self.rotary.split(&self.product, self.heads, self.shared)
    }

    /// Queries alone, with keys and values written into pages; `None`, and nothing written, where that is two steps.
    pub fn split_into(&self, slots: PageSlots) -> Option<Tensor> {
        self.rotary.split_into(&self.product, self.heads, slots)
    }
}
