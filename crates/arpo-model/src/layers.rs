//! The few operations both towers are made of.

use tch::{Kind, Tensor};

/// y = x Wᵀ + b.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) weight: Tensor,
    pub(crate) bias: Option<Tensor>,
}

impl Linear {
    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, self.bias.as_ref())
    }
}

/// x / rms(x) * w, computed in f32 as the reference does.
pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Tensor {
    let wide = x.to_kind(Kind::Float);
    let scale = (wide.square().mean_dim(-1, true, Kind::Float) + epsilon).rsqrt();
    (wide * scale).to_kind(x.kind()) * weight
}

/// SwiGLU on the product with gate and up side by side.
pub(crate) fn swiglu(gate_up: &Tensor) -> Tensor {
    let parts = gate_up.chunk(2, -1);
    parts[0].silu() * &parts[1]
}

/// Angles of rotary positions: cosines and sines of every token's frequencies, in f32.
#[derive(Debug)]
pub struct Rotary {
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
        let halves = x.to_kind(Kind::Float).chunk(2, -1);
        let (real, imaginary) = (&halves[0], &halves[1]);
        let turned_real = real * &self.cosine - imaginary * &self.sine;
        let turned_imaginary = imaginary * &self.cosine + real * &self.sine;
        Tensor::cat(&[turned_real, turned_imaginary], -1).to_kind(x.kind())
    }
}

/// Frequencies of rotary positions: theta^(-2i/width) for i below width / 2.
pub(crate) fn rotary_frequencies(theta: f64, width: i64) -> Vec<f32> {
    // f32 throughout, as the reference computes them
    (0..width / 2).map(|i| 1.0 / (theta as f32).powf((2 * i) as f32 / width as f32)).collect()
}

/// Attention of q, k, v `[tokens, heads, width]` within each run of `lengths`; keys and values may have fewer heads.
/// Equal runs that follow each other are one batch.
pub(crate) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, lengths: &[i64], causal: bool) -> Tensor {
    let grouped = q.size()[1] != k.size()[1];
    let mut results = Vec::new();
    let mut start = 0;
    for run in lengths.chunk_by(|a, b| a == b) {
        let (count, length) = (run.len() as i64, run[0]);
        // [runs, heads, length, width]
        let batch = |x: &Tensor| {
            let sizes = x.size();
            x.narrow(0, start, count * length).view([count, length, sizes[1], sizes[2]]).transpose(1, 2)
        };
        let attended = Tensor::scaled_dot_product_attention(
            &batch(q),
            &batch(k),
            &batch(v),
            None::<&Tensor>,
            0.0,
            causal,
            None,
            grouped,
        );
        results.push(attended.transpose(1, 2).reshape([count * length, -1]));
        start += count * length;
    }
    match results.len() {
        1 => results.remove(0),
        _ => Tensor::cat(&results, 0),
    }
}
