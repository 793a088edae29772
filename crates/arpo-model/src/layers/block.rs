//! The transformer block of both towers: attention and an MLP, each with a pre-norm and a residual connection.

use super::attention::{PackedSequences, SavedAttention, attention};
use super::linear::Linear;
use super::mlp::Mlp;
use super::norm::Norm;
use super::qk_norm::QkNorm;
use super::rotary::Rotary;
use crate::config::BlockWidths;
use arpo_torch::kernels::paged::PageSlots;
use tch::Tensor;

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) norm1: Norm,
    /// The fused projection of queries, keys and values.
    pub(crate) qkv: Linear,
    pub(crate) qk_norm: Option<QkNorm>,
    pub(crate) out: Linear,
    pub(crate) norm2: Norm,
    pub(crate) mlp: Mlp,
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
    /// Attention and its residual too: norms and the MLP's inner projection are recomputed.
    Attention,
    /// The inner projection too: only norms are recomputed.
    Everything,
}

impl Keep {
    /// Values kept for each token of a block.
    pub(crate) fn values_per_token(self, widths: BlockWidths) -> i64 {
        let BlockWidths { hidden, queries, keys, inner, qk_norm } = widths;
        match self {
            Self::Input => hidden,
            // input and middle; queries, keys, values and attention's output; queries and keys before their norm
            Self::Attention => 2 * hidden + 2 * (queries + keys) + if qk_norm { queries + keys } else { 0 },
            Self::Everything => Self::Attention.values_per_token(widths) + inner,
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
    /// Queries and keys before their norm, if they have one.
    unnormed: Option<Tensor>,
    /// The input plus the output of attention.
    middle: Tensor,
    inner: Option<Tensor>,
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
        self.mlp.forward_onto(&middle, &self.norm2.forward(&middle))
    }

    /// The same, keeping what the backward pass will need.
    pub(crate) fn forward_saving(&self, x: &Tensor, context: BlockContext, keep: Keep) -> (Tensor, Saved) {
        if keep == Keep::Input {
            let saved = Saved { input: x.shallow_clone(), attended: None };
            return (self.forward(x, context), saved);
        }
        let mut attended = self.attend(x, context);
        let inner = self.mlp.inner(&self.norm2.forward(&attended.middle));
        let y = self.mlp.finish_onto(&attended.middle, &inner);
        if keep == Keep::Everything {
            attended.inner = Some(inner);
        }
        (y, Saved { input: x.shallow_clone(), attended: Some(attended) })
    }

    /// dL/dx from dL/dy; accumulates the parameters' gradients.
    pub(crate) fn backward(&self, saved: Saved, dy: &Tensor, context: BlockContext) -> Tensor {
        let Saved { input, attended } = saved;
        let Attended { attention, unnormed, middle, inner } =
            attended.unwrap_or_else(|| self.attend(&input, context));

        let normed = self.norm2.forward(&middle);
        let inner = inner.unwrap_or_else(|| self.mlp.inner(&normed));
        let d_normed = self.mlp.backward(&normed, inner, dy);
        drop(normed);
        let d_middle = self.norm2.backward(&middle, &d_normed, Some(dy));
        drop((middle, d_normed));

        let d_attended = self.out.backward(&attention.output(context.sequences), &d_middle);
        let norm = self.qk_norm.as_ref().zip(unnormed.as_ref());
        let d_qkv = context.rotary.join(&attention.backward(&d_attended, context.sequences), norm);
        drop((d_attended, unnormed));
        let d_normed = self.qkv.backward(&self.norm1.forward(&input), &d_qkv);
        self.norm1.backward(&input, &d_normed, Some(&d_middle))
    }

    fn attend(&self, x: &Tensor, context: BlockContext) -> Attended {
        let qkv = self.qkv.forward(&self.norm1.forward(x));
        let unnormed = self.qk_norm.as_ref().map(|norm| norm.saved(&qkv));
        let [q, k, v] = self.projected(qkv, context.rotary).split();
        let attention = SavedAttention::new(&q, &k, &v, context.sequences);
        let middle = self.out.forward_onto(x, &attention.output(context.sequences));
        Attended { attention, unnormed, middle, inner: None }
    }

    fn project<'a>(&'a self, x: &Tensor, rotary: &'a Rotary) -> Projected<'a> {
        self.projected(self.qkv.forward(&self.norm1.forward(x)), rotary)
    }

    fn projected<'a>(&'a self, qkv: Tensor, rotary: &'a Rotary) -> Projected<'a> {
        Projected { qkv, norm: self.qk_norm.as_ref(), rotary, heads: self.heads, kv_heads: self.kv_heads }
    }
}

/// The qkv projection of tokens, before the norms of its heads and RoPE.
#[derive(Debug)]
pub struct Projected<'a> {
    qkv: Tensor,
    norm: Option<&'a QkNorm>,
    rotary: &'a Rotary,
    heads: i64,
    kv_heads: i64,
}

impl Projected<'_> {
    /// Queries, keys and values, RoPE applied to the first two: `[tokens, heads, width]` each.
    pub fn split(&self) -> [Tensor; 3] {
        self.rotary.split(&self.qkv, self.heads, self.kv_heads, self.norm)
    }

    /// Queries alone, with keys and values written into pages; `None`, and nothing written, without the fused kernel.
    pub fn split_into(&self, slots: PageSlots) -> Option<Tensor> {
        self.rotary.split_into(&self.qkv, self.heads, self.norm, slots)
    }
}
