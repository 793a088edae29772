//! GELU in its tanh form, on a projection before its bias is added: adding it here saves a pass over the widest tensor of the
//! vision tower.

use arpo_torch::kernels::Kernels;
use tch::Tensor;

pub(crate) fn forward(kernels: &Kernels, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
    match kernels.fused(x) {
        Some(fused) => fused.gelu(x, bias),
        None => biased(x, bias).gelu("tanh"),
    }
}

/// Recomputes the result, and returns dL/dx too, from dL/d(result).
pub(crate) fn backward(
    kernels: &Kernels,
    x: &Tensor,
    bias: Option<&Tensor>,
    dh: &Tensor,
) -> (Tensor, Tensor) {
    if let Some(fused) = kernels.fused(x) {
        return fused.gelu_backward(x, bias, dh);
    }
    let biased = biased(x, bias);
    (biased.gelu("tanh"), biased.gelu_backward(dh, "tanh"))
}

fn biased(x: &Tensor, bias: Option<&Tensor>) -> Tensor {
    bias.map_or_else(|| x.shallow_clone(), |bias| x + bias)
}
