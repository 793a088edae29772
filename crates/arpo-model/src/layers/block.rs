//! The transformer block of both towers: attention and an MLP, each with a pre-norm and a residual connection.

use super::attention::{PackedSequences, attention};
use super::linear::Linear;
use super::mlp::Mlp;
use super::norm::Norm;
use super::qk_norm::QkNorm;
use super::rotary::Rotary;
use super::saved_attention::{SavedAs, SavedAttention};
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
    /// The result of attention too: its projections, norms and the MLP's inner projection are recomputed. Where attention
    /// cannot be saved by its result, the same as `Input`.
    AttentionResult,
    /// Attention's projections and its residual too: norms and the MLP's inner projection are recomputed.
    Attention,
    /// The inner projection too: only norms are recomputed.
    Everything,
}

/// Bytes of a log-sum-exp, which every token has one of for every head.
const LSE_BYTES: u64 = 4;

impl Keep {
    /// Bytes kept for each token of a block whose attention is saved like this.
    pub(crate) fn bytes_per_token(self, widths: BlockWidths, saved: SavedAs, value_bytes: u64) -> u64 {
        let BlockWidths { hidden, queries, keys, inner, heads, qk_norm } = widths;
        let bytes = |values: i64| values as u64 * value_bytes;
        let projections = queries + 2 * keys;
        let (result, attention) = match saved {
            // the projections as attention has them, or before their norms
            SavedAs::AttentionResult => {
                (bytes(queries) + heads as u64 * LSE_BYTES, bytes(hidden + projections))
            }
            // a graph has its result and the projections as attention has them; their norms need them as they were before. Its
            // kernel may have copies: in the order of windows, with a key and a value for every head of queries, or after a
            // shared prefix, whose own tokens are not counted
            SavedAs::Graph => {
                let (unnormed, copies) = (if qk_norm { projections } else { 0 }, 3 * queries);
                (0, bytes(hidden + queries + projections + unnormed + copies))
            }
        };
        let added =
            [(Self::AttentionResult, result), (Self::Attention, attention), (Self::Everything, bytes(inner))];
        bytes(hidden) + added.iter().filter(|(from, _)| self >= *from).map(|(_, bytes)| bytes).sum::<u64>()
    }
}

/// The kept activations of one block.
#[derive(Debug)]
pub(crate) struct Saved {
    input: Tensor,
    attended: Option<Attended>,
}

/// What is kept of attention and what follows it.
#[derive(Debug)]
struct Attended {
    attention: SavedAttention,
    heads: Option<Heads>,
    /// The input plus the output of attention.
    middle: Option<Tensor>,
    inner: Option<Tensor>,
}

impl Attended {
    /// Without what `keep` does not ask for.
    fn kept(mut self, keep: Keep) -> Option<Self> {
        if keep < Keep::Attention {
            if self.attention.saved_as() == SavedAs::Graph {
                return None;
            }
            (self.heads, self.middle) = (None, None);
        }
        if keep < Keep::Everything {
            self.inner = None;
        }
        Some(self)
    }
}

/// What queries, keys and values are computed from again, or they themselves.
#[derive(Debug)]
enum Heads {
    /// The qkv projection before the norms of queries and keys, whose backward pass needs it. Both forms would be twice the
    /// memory.
    Unnormed(Tensor),
    /// Queries, keys and values as attention has them.
    Split([Tensor; 3]),
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
        let middle = attended.middle.as_ref().expect("attention was computed");
        let inner = self.mlp.inner(&self.norm2.forward(middle));
        let y = self.mlp.finish_onto(middle, &inner);
        attended.inner = Some(inner);
        (y, Saved { input: x.shallow_clone(), attended: attended.kept(keep) })
    }

    /// dL/dx from dL/dy; accumulates the parameters' gradients.
    pub(crate) fn backward(&self, saved: Saved, dy: &Tensor, context: BlockContext) -> Tensor {
        let BlockContext { rotary, sequences } = context;
        let Saved { input, attended } = saved;
        let Attended { attention, heads, middle, inner } =
            attended.unwrap_or_else(|| self.attend(&input, context));

        let result = attention.output(sequences);
        let middle = middle.unwrap_or_else(|| self.out.forward_onto(&input, &result));
        let normed = self.norm2.forward(&middle);
        let inner = inner.unwrap_or_else(|| self.mlp.inner(&normed));
        let d_normed = self.mlp.backward(&normed, inner, dy);
        drop(normed);
        let d_middle = self.norm2.backward(&middle, &d_normed, Some(dy));
        drop((middle, d_normed));

        let d_result = self.out.backward(&result, &d_middle);
        drop(result);
        let normed = self.norm1.forward(&input);
        let heads = heads.unwrap_or_else(|| self.heads_of(self.qkv.forward(&normed), rotary));
        let gradients = attention.backward(|| self.split_heads(&heads, rotary), &d_result, sequences);
        let norm = match (&self.qk_norm, &heads) {
            (Some(norm), Heads::Unnormed(qkv)) => Some((norm, qkv)),
            _ => None,
        };
        let d_qkv = rotary.join(&gradients, norm);
        drop((gradients, d_result, heads));
        let d_normed = self.qkv.backward(&normed, &d_qkv);
        drop((normed, d_qkv));
        self.norm1.backward(&input, &d_normed, Some(&d_middle))
    }

    fn attend(&self, x: &Tensor, context: BlockContext) -> Attended {
        let BlockContext { rotary, sequences } = context;
        let heads = self.heads_of(self.qkv.forward(&self.norm1.forward(x)), rotary);
        let [q, k, v] = self.split_heads(&heads, rotary);
        let attention = SavedAttention::new(&q, &k, &v, sequences);
        let middle = self.out.forward_onto(x, &attention.output(sequences));
        Attended { attention, heads: Some(heads), middle: Some(middle), inner: None }
    }

    /// What is kept of a qkv projection.
    fn heads_of(&self, qkv: Tensor, rotary: &Rotary) -> Heads {
        if self.qk_norm.is_some() {
            Heads::Unnormed(qkv)
        } else {
            Heads::Split(self.projected(qkv, rotary).split())
        }
    }

    /// Queries, keys and values.
    fn split_heads(&self, heads: &Heads, rotary: &Rotary) -> [Tensor; 3] {
        match heads {
            Heads::Unnormed(qkv) => self.projected(qkv.shallow_clone(), rotary).split(),
            Heads::Split(split) => split.each_ref().map(Tensor::shallow_clone),
        }
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
