//! Rotary position embeddings (RoPE): every head of a token is rotated by its position.

use super::qk_norm::QkNorm;
use arpo_torch::kernels::Kernels;
use arpo_torch::kernels::paged::PageSlots;
use tch::{Kind, Tensor};

/// Cosines and sines of every token's frequencies, in f32.
#[derive(Debug)]
pub(crate) struct Rotary {
    cosine: Tensor, // [tokens, 1, head_width / 2]
    sine: Tensor,   // [tokens, 1, head_width / 2]
    kernels: Kernels,
}

impl Rotary {
    /// From angles `[tokens, head_width / 2]`.
    pub(crate) fn new(angles: &Tensor, kernels: &Kernels) -> Self {
        let angles = angles.contiguous().unsqueeze(1);
        Self { cosine: angles.cos(), sine: angles.sin(), kernels: kernels.clone() }
    }

    /// Splits a fused qkv projection into queries, keys and values `[tokens, heads, head_width]`; the first two are normed,
    /// if they have norms, and RoPE is applied to them.
    pub(crate) fn split(
        &self,
        qkv: &Tensor,
        heads: i64,
        kv_heads: i64,
        norm: Option<&QkNorm>,
    ) -> [Tensor; 3] {
        let by_head = qkv.view([qkv.size()[0], heads + 2 * kv_heads, -1]);
        let (fused, cosine, sine) = (self.kernels.fused_rotary(&by_head), &self.cosine, &self.sine);
        if let Some(norm) = norm {
            let fused_result = fused.and_then(|fused| {
                fused.rotary_norm_split(qkv, cosine, sine, heads, kv_heads, norm.weights())
            });
            return fused_result.unwrap_or_else(|| self.split(&norm.forward(qkv), heads, kv_heads, None));
        }
        if let Some(fused) = fused {
            return fused.rotary_split(qkv, cosine, sine, heads, kv_heads);
        }
        let q = rotate(&by_head.narrow(1, 0, heads), cosine, sine);
        let k = rotate(&by_head.narrow(1, heads, kv_heads), cosine, sine);
        [q, k, by_head.narrow(1, heads + kv_heads, kv_heads).contiguous()]
    }

    /// The same, with keys and values written into pages; `None`, and nothing written, without the fused kernel.
    pub(crate) fn split_into(
        &self,
        qkv: &Tensor,
        heads: i64,
        norm: Option<&QkNorm>,
        slots: PageSlots,
    ) -> Option<Tensor> {
        let paged = self.kernels.paged(qkv)?;
        paged.rotary_into_pages(qkv, &self.cosine, &self.sine, heads, norm.map(QkNorm::weights), slots)
    }

    /// The gradient of the qkv projection from those of queries, keys and values: undoes the rotation and, from the
    /// projection before the norms of queries and keys, goes through these, whose weights' gradients it accumulates.
    pub(crate) fn join(&self, gradients: &[Tensor; 3], norm: Option<(&QkNorm, &Tensor)>) -> Tensor {
        let (fused, cosine, sine) = (self.kernels.fused_rotary(&gradients[0]), &self.cosine, &self.sine);
        if let Some((norm, qkv)) = norm {
            let fused_result =
                fused.and_then(|fused| fused.rotary_norm_join(gradients, cosine, sine, qkv, norm.weights()));
            let Some((joined, weights)) = fused_result else {
                return norm.backward(qkv, &self.join(gradients, None));
            };
            norm.accumulate(&weights);
            return joined;
        }
        if let Some(fused) = fused {
            return fused.rotary_join(gradients, cosine, sine);
        }
        let [dq, dk, dv] = gradients;
        let negative_sine = -sine;
        Tensor::cat(
            &[rotate(dq, cosine, &negative_sine), rotate(dk, cosine, &negative_sine), dv.shallow_clone()],
            1,
        )
        .flatten(1, 2)
    }
}

/// Rotates every head of x `[tokens, heads, head_width]`: its first half is the real part, its second the imaginary.
fn rotate(x: &Tensor, cosine: &Tensor, sine: &Tensor) -> Tensor {
    let halves = x.to_kind(Kind::Float).chunk(2, -1);
    let (real, imaginary) = (&halves[0], &halves[1]);
    let rotated_real = real * cosine - imaginary * sine;
    let rotated_imaginary = imaginary * cosine + real * sine;
    Tensor::cat(&[rotated_real, rotated_imaginary], -1).to_kind(x.kind())
}

/// Frequencies: theta^(-2i/width) for i below width / 2.
pub(crate) fn frequencies(theta: f64, width: i64) -> Vec<f32> {
    // f32 throughout, as in transformers
    (0..width / 2).map(|i| 1.0 / (theta as f32).powf((2 * i) as f32 / width as f32)).collect()
}
