//! Rotary positions: every head of a token is turned by its place.

use arpo_torch::kernels::fused_for;
use arpo_torch::kernels::paged::{PageSlots, rotary_into_pages};
use tch::{Kind, Tensor};

/// Cosines and sines of every token's frequencies, in f32.
#[derive(Debug)]
pub(crate) struct Rotary {
    cosine: Tensor, // [tokens, 1, head_width / 2]
    sine: Tensor,   // [tokens, 1, head_width / 2]
}

impl Rotary {
    /// From angles `[tokens, head_width / 2]`.
    pub(crate) fn new(angles: &Tensor) -> Self {
        let angles = angles.contiguous().unsqueeze(1);
        Self { cosine: angles.cos(), sine: angles.sin() }
    }

    /// Queries, keys and values `[tokens, heads, head_width]` of their product, the first two turned to their places.
    pub(crate) fn split(&self, qkv: &Tensor, heads: i64, shared: i64) -> [Tensor; 3] {
        // it turns eight pairs at a time
        let in_eights = self.cosine.size()[2] % 8 == 0;
        if let Some(fused) = fused_for(qkv).filter(|_| in_eights) {
            return fused.rotary_split(qkv, &self.cosine, &self.sine, heads, shared);
        }
        let qkv = qkv.view([qkv.size()[0], heads + 2 * shared, -1]);
        let q = turn(&qkv.narrow(1, 0, heads), &self.cosine, &self.sine);
        let k = turn(&qkv.narrow(1, heads, shared), &self.cosine, &self.sine);
        [q, k, qkv.narrow(1, heads + shared, shared).contiguous()]
    }

    /// The same, keys and values going into pages; `None`, and nothing written, where that is two steps.
    pub(crate) fn split_into(&self, qkv: &Tensor, heads: i64, slots: PageSlots) -> Option<Tensor> {
        rotary_into_pages(qkv, &self.cosine, &self.sine, heads, slots)
    }

    /// The gradient of their product from those of queries, keys and values, which are turned back.
    pub(crate) fn join(&self, gradients: &[Tensor; 3]) -> Tensor {
        if let Some(fused) = fused_for(&gradients[0]) {
            return fused.rotary_join(gradients, &self.cosine, &self.sine);
        }
        let [dq, dk, dv] = gradients;
        let back = -&self.sine;
        Tensor::cat(&[turn(dq, &self.cosine, &back), turn(dk, &self.cosine, &back), dv.shallow_clone()], 1)
            .flatten(1, 2)
    }
}

/// Turns every head of x `[tokens, heads, head_width]`: its first half is the real part, its second the imaginary.
fn turn(x: &Tensor, cosine: &Tensor, sine: &Tensor) -> Tensor {
    let halves = x.to_kind(Kind::Float).chunk(2, -1);
    let (real, imaginary) = (&halves[0], &halves[1]);
    let turned_real = real * cosine - imaginary * sine;
    let turned_imaginary = imaginary * cosine + real * sine;
    Tensor::cat(&[turned_real, turned_imaginary], -1).to_kind(x.kind())
}

/// Frequencies: theta^(-2i/width) for i below width / 2.
pub(crate) fn frequencies(theta: f64, width: i64) -> Vec<f32> {
    // f32 throughout, as the reference computes them
    (0..width / 2).map(|i| 1.0 / (theta as f32).powf((2 * i) as f32 / width as f32)).collect()
}
