//! x / rms(x) * w, computed in f32 whatever the parameters are, as the reference does.

use super::linear::Parameter;
use tch::{Kind, Tensor};

#[derive(Debug)]
pub(crate) struct RmsNorm {
    pub(crate) weight: Parameter,
    pub(crate) epsilon: f64,
}

impl RmsNorm {
    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        let wide = x.to_kind(Kind::Float);
        let scale = self.scale(&wide);
        (wide * scale).to_kind(x.kind()) * &self.weight.value
    }

    /// dL/dx from dL/dy; the weight's gradient is added to.
    pub(crate) fn backward(&self, x: &Tensor, dy: &Tensor) -> Tensor {
        let wide = x.to_kind(Kind::Float);
        let scale = self.scale(&wide); // [tokens, 1]
        let normed = wide * &scale;
        let dy = dy.to_kind(Kind::Float);
        if self.weight.gradient.is_some() {
            self.weight.accumulate(&(&dy * &normed).sum_dim_intlist([0i64].as_slice(), false, None::<Kind>));
        }
        let dnormed = dy * self.weight.value.to_kind(Kind::Float);
        let along = (&dnormed * &normed).mean_dim(-1, true, Kind::Float);
        ((dnormed - normed * along) * scale).to_kind(x.kind())
    }

    fn scale(&self, wide: &Tensor) -> Tensor {
        (wide.square().mean_dim(-1, true, Kind::Float) + self.epsilon).rsqrt()
    }
}
