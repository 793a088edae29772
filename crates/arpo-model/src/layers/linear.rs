//! Parameters, and linear layers, which hold most of them.

use arpo_torch::kernels::Kernels;
use tch::{Kind, Tensor};

/// A parameter and, while it is trained, its gradient buffer; with the kernels of its device.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) value: Tensor,
    pub(crate) gradient: Option<Tensor>,
    pub(crate) kernels: Kernels,
}

impl Parameter {
    /// Adds to the gradient, if there is one.
    pub(crate) fn accumulate(&self, gradient: &Tensor) {
        if let Some(buffer) = &self.gradient {
            let _ = buffer.shallow_clone().g_add_(gradient);
        }
    }
}

/// y = x Wᵀ + b.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) weight: Parameter,
    pub(crate) bias: Option<Parameter>,
}

impl Linear {
    pub(crate) fn forward(&self, x: &Tensor) -> Tensor {
        self.apply(x, self.bias())
    }

    /// y without the bias, which the next operation adds.
    pub(crate) fn matmul(&self, x: &Tensor) -> Tensor {
        self.apply(x, None)
    }

    fn apply(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        self.row_matmul(x, bias).unwrap_or_else(|| x.linear(&self.weight.value, bias))
    }

    pub(crate) fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref().map(|bias| &bias.value)
    }

    /// residual + y, fused into the matmul where there is no bias.
    pub(crate) fn forward_onto(&self, residual: &Tensor, x: &Tensor) -> Tensor {
        match self.bias {
            None => self
                .row_matmul(x, Some(residual))
                .unwrap_or_else(|| residual.addmm(x, &self.weight.value.tr())),
            Some(_) => residual + self.forward(x),
        }
    }

    /// x Wᵀ plus `addend`, for a single row on a GPU.
    fn row_matmul(&self, x: &Tensor, addend: Option<&Tensor>) -> Option<Tensor> {
        self.weight.kernels.row(x)?.matmul(x, &self.weight.value, addend)
    }

    /// dL/dx from dL/dy; accumulates the parameters' gradients. Both are matrices with a row for each token.
    pub(crate) fn backward(&self, x: &Tensor, dy: &Tensor) -> Tensor {
        self.accumulate(x, dy);
        self.input_gradient(dy)
    }

    /// Adds to the parameters' gradients.
    pub(crate) fn accumulate(&self, x: &Tensor, dy: &Tensor) {
        if let Some(buffer) = &self.weight.gradient {
            if buffer.kind() == x.kind() {
                let _ = buffer.shallow_clone().addmm_(&dy.tr(), x);
            } else {
                self.weight.accumulate(&dy.tr().matmul(x));
            }
        }
        if let Some(bias) = &self.bias {
            bias.accumulate(&dy.sum_dim_intlist([0i64].as_slice(), false, Kind::Float));
        }
    }

    /// dL/dx from dL/dy.
    pub(crate) fn input_gradient(&self, dy: &Tensor) -> Tensor {
        dy.matmul(&self.weight.value)
    }
}
