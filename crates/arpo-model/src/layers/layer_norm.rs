//! `LayerNorm`: (x - mean) / deviation * w + b, computed in f32 whatever the parameters' type.

use super::linear::Parameter;
use tch::{Kind, Tensor};

#[derive(Debug)]
pub(crate) struct LayerNorm {
    pub(crate) weight: Parameter,
    pub(crate) bias: Parameter,
    pub(crate) epsilon: f64,
}

impl LayerNorm {
    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        let (weight, bias) = (Some(&self.weight.value), Some(&self.bias.value));
        x.layer_norm(self.weight.value.size(), weight, bias, self.epsilon, false)
    }

    /// residual + dL/dx from dL/dy, matrices with a row for each token; accumulates the parameters' gradients.
    pub(crate) fn backward(&self, x: &Tensor, dy: &Tensor, residual: Option<&Tensor>) -> Tensor {
        let fused = self.weight.kernels.fused(x);
        let weight = &self.weight.value;
        let fused_result =
            fused.and_then(|fused| fused.layer_norm_backward(x, weight, dy, residual, self.epsilon));
        if let Some((dx, [dw, db])) = fused_result {
            self.weight.accumulate(&dw);
            self.bias.accumulate(&db);
            return dx;
        }
        let mean = |x: &Tensor| x.mean_dim(-1, true, Kind::Float);
        let x_f32 = x.to_kind(Kind::Float);
        let centred = &x_f32 - mean(&x_f32);
        let scale = (mean(&centred.square()) + self.epsilon).rsqrt(); // [tokens, 1]
        let normed = centred * &scale;
        let dy = dy.to_kind(Kind::Float);
        let sum = |x: &Tensor| x.sum_dim_intlist([0i64].as_slice(), false, None::<Kind>);
        if self.weight.gradient.is_some() {
            self.weight.accumulate(&sum(&(&dy * &normed)));
        }
        if self.bias.gradient.is_some() {
            self.bias.accumulate(&sum(&dy));
        }
        let d_normed = dy * self.weight.value.to_kind(Kind::Float);
        let projection = &normed * mean(&(&d_normed * &normed));
        let dx = ((&d_normed - mean(&d_normed) - projection) * scale).to_kind(x.kind());
        match residual {
            Some(residual) => residual + dx,
            None => dx,
        }
    }
}
