//! The MLP of a transformer block: a projection to its inner width, an activation, a projection back.

use super::linear::Linear;
use super::{gelu, swiglu};
use crate::config::MlpKind;
use tch::Tensor;

#[derive(Debug)]
pub(crate) struct Mlp {
    pub(crate) kind: MlpKind,
    /// The projection to the inner width; gate and up are one.
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

impl Mlp {
    /// residual + MLP(x).
    pub(crate) fn forward_onto(&self, residual: &Tensor, x: &Tensor) -> Tensor {
        let activated = match self.kind {
            MlpKind::SwiGlu => swiglu::project(&self.up, x),
            MlpKind::GeluTanh => self.activate(&self.inner(x)),
        };
        self.down.forward_onto(residual, &activated)
    }

    /// The inner projection before its bias, which the activation adds.
    pub(crate) fn inner(&self, x: &Tensor) -> Tensor {
        self.up.matmul(x)
    }

    /// residual + MLP(x), from the inner projection of x.
    pub(crate) fn finish_onto(&self, residual: &Tensor, inner: &Tensor) -> Tensor {
        self.down.forward_onto(residual, &self.activate(inner))
    }

    /// dL/dx from dL/dy; accumulates the parameters' gradients.
    pub(crate) fn backward(&self, x: &Tensor, inner: Tensor, dy: &Tensor) -> Tensor {
        let d_activated = self.down.input_gradient(dy);
        let backward = match self.kind {
            MlpKind::SwiGlu => swiglu::backward,
            MlpKind::GeluTanh => gelu::backward,
        };
        let (activated, d_inner) = backward(&self.up.weight.kernels, &inner, self.up.bias(), &d_activated);
        drop((inner, d_activated));
        self.down.accumulate(&activated, dy);
        drop(activated);
        self.up.backward(x, &d_inner)
    }

    fn activate(&self, inner: &Tensor) -> Tensor {
        let forward = match self.kind {
            MlpKind::SwiGlu => swiglu::forward,
            MlpKind::GeluTanh => gelu::forward,
        };
        forward(&self.up.weight.kernels, inner, self.up.bias())
    }
}
