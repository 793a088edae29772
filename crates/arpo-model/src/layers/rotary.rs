//! Rotary position embeddings (RoPE): every head of a token is rotated by its position.

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

    /// Splits a fused qkv projection into queries, keys and values `[tokens, heads, head_width]`, RoPE applied to the
    /// first two.
    pub(crate) fn split(&self, qkv: &Tensor, heads: i64, kv_heads: i64) -> [Tensor; 3] {
        // the kernel rotates eight pairs at a time
        let in_eights = self.cosine.size()[2] % 8 == 0;
        if let Some(fused) = self.kernels.fused(qkv).filter(|_| in_eights) {
            return fused.rotary_split(qkv, &self.cosine, &self.sine, heads, kv_heads);
        }
        let qkv = qkv.view([qkv.size()[0], heads + 2 * kv_heads, -1]);
        let q = rotate(&qkv.narrow(1, 0, heads), &self.cosine, &self.sine);
        let k = rotate(&qkv.narrow(1, heads, kv_heads), &self.cosine, &self.sine);
        [q, k, qkv.narrow(1, heads + kv_heads, kv_heads).contiguous()]
    }

    /// The same, with keys and values written into pages; `None`, and nothing written, without the fused kernel.
    pub(crate) fn split_into(&self, qkv: &Tensor, heads: i64, slots: PageSlots) -> Option<Tensor> {
        self.kernels.paged(qkv)?.rotary_into_pages(qkv, &self.cosine, &self.sine, heads, slots)
    }

    /// The gradient of the qkv projection from those of queries, keys and values, whose rotation is undone.
    pub(crate) fn join(&self, gradients: &[Tensor; 3]) -> Tensor {
        if let Some(fused) = self.kernels.fused(&gradients[0]) {
            return fused.rotary_join(gradients, &self.cosine, &self.sine);
        }
        let [dq, dk, dv] = gradients;
        let negative_sine = -&self.sine;
        Tensor::cat(
            &[
                rotate(dq, &self.cosine, &negative_sine),
                rotate(dk, &self.cosine, &negative_sine),
                dv.shallow_clone(),
            ],
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
