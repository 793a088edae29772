//! Rotary positions: every head of a token is turned by its place.

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
        let angles = angles.unsqueeze(1);
        Self { cosine: angles.cos(), sine: angles.sin() }
    }

    /// Turns every head of x `[tokens, heads, head_width]`: its first half is the real part, its second the imaginary.
    pub(crate) fn turn(&self, x: &Tensor) -> Tensor {
        turn(x, &self.cosine, &self.sine)
    }

    /// Turns back, which is also how a gradient passes.
    pub(crate) fn turn_back(&self, x: &Tensor) -> Tensor {
        turn(x, &self.cosine, &-&self.sine)
    }
}

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
