//! x / rms(x) * w, computed in f32 whatever the parameters are, as the reference does.

use super::linear::Parameter;
use arpo_torch::kernels::fused_for;
use tch::{Kind, Tensor};

#[derive(Debug)]
pub(crate) struct RmsNorm {
    pub(crate) weight: Parameter,
    pub(crate) epsilon: f64,
}

impl RmsNorm {
    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        let together = fused_for(x).and_then(|fused| fused.rms_norm(x, &self.weight.value, self.epsilon));
        if let Some(normed) = together {
            return normed;
        }
        let wide = x.to_kind(Kind::Float);
        let scale = self.scale(&wide);
        (wide * scale).to_kind(x.kind()) * &self.weight.value
    }

    /// residual + dL/dx from dL/dy; the weight's gradient is added to.
    pub(crate) fn backward(&self, x: &Tensor, dy: &Tensor, residual: Option<&Tensor>) -> Tensor {
        let fused = fused_for(x);
        let weight = &self.weight.value;
        let together = fused.and_then(|fused| fused.rms_norm_backward(x, weight, dy, residual, self.epsilon));
        if let Some((dx, dw)) = together {
            self.weight.accumulate(&dw);
            return dx;
        }
        let wide = x.to_kind(Kind::Float);
        let scale = self.scale(&wide); // [tokens, 1]
        let normed = wide * &scale;
        let dy = dy.to_kind(Kind::Float);
        if self.weight.gradient.is_some() {
            self.weight.accumulate(&(&dy * &normed).sum_dim_intlist([0i64].as_slice(), false, None::<Kind>));
        }
        let dnormed = dy * self.weight.value.to_kind(Kind::Float);
        let along = (&dnormed * &normed).mean_dim(-1, true, Kind::Float);
        let dx = ((dnormed - normed * along) * scale).to_kind(x.kind());
        match residual {
            Some(residual) => residual + dx,
            None => dx,
        }
    }

    fn scale(&self, wide: &Tensor) -> Tensor {
        (wide.square().mean_dim(-1, true, Kind::Float) + self.epsilon).rsqrt()
    }
}
