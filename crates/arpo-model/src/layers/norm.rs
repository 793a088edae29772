//! Norms. RMSNorm: x / rms(x) * w, computed in f32 whatever the parameters' type, as in transformers.

use super::layer_norm::LayerNorm;
use super::linear::Parameter;
use tch::{Kind, Tensor};

/// A norm of either kind.
#[derive(Debug)]
pub(crate) enum Norm {
    Rms(RmsNorm),
    Layer(LayerNorm),
}

impl Norm {
    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Self::Rms(norm) => norm.forward(x),
            Self::Layer(norm) => norm.forward(x),
        }
    }

    /// residual + dL/dx from dL/dy; accumulates the parameters' gradients.
    pub(crate) fn backward(&self, x: &Tensor, dy: &Tensor, residual: Option<&Tensor>) -> Tensor {
        match self {
            Self::Rms(norm) => norm.backward(x, dy, residual),
            Self::Layer(norm) => norm.backward(x, dy, residual),
        }
    }
}

#[derive(Debug)]
pub(crate) struct RmsNorm {
    pub(crate) weight: Parameter,
    pub(crate) epsilon: f64,
}

impl RmsNorm {
    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        let fused = self.weight.kernels.fused(x);
        if let Some(normed) = fused.and_then(|fused| fused.rms_norm(x, &self.weight.value, self.epsilon)) {
            return normed;
        }
        let x_f32 = x.to_kind(Kind::Float);
        let scale = self.scale(&x_f32);
        (x_f32 * scale).to_kind(x.kind()) * &self.weight.value
    }

    /// residual + dL/dx from dL/dy; accumulates the weight's gradient.
    pub(crate) fn backward(&self, x: &Tensor, dy: &Tensor, residual: Option<&Tensor>) -> Tensor {
        let fused = self.weight.kernels.fused(x);
        let weight = &self.weight.value;
        let fused_result =
            fused.and_then(|fused| fused.rms_norm_backward(x, weight, dy, residual, self.epsilon));
        if let Some((dx, dw)) = fused_result {
            self.weight.accumulate(&dw);
            return dx;
        }
        let x_f32 = x.to_kind(Kind::Float);
        let scale = self.scale(&x_f32); // [tokens, 1]
        let normed = x_f32 * &scale;
        let dy = dy.to_kind(Kind::Float);
        if self.weight.gradient.is_some() {
            self.weight.accumulate(&(&dy * &normed).sum_dim_intlist([0i64].as_slice(), false, None::<Kind>));
        }
        let dnormed = dy * self.weight.value.to_kind(Kind::Float);
        let projection = (&dnormed * &normed).mean_dim(-1, true, Kind::Float);
        let dx = ((dnormed - normed * projection) * scale).to_kind(x.kind());
        match residual {
            Some(residual) => residual + dx,
            None => dx,
        }
    }

    fn scale(&self, x_f32: &Tensor) -> Tensor {
        (x_f32.square().mean_dim(-1, true, Kind::Float) + self.epsilon).rsqrt()
    }
}
