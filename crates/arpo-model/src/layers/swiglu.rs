//! silu(gate) * up, on the fused projection of both before its bias is added: adding it here saves a pass over the
//! widest tensor of the model.

use super::linear::Linear;
use arpo_torch::kernels::Kernels;
use tch::Tensor;

/// The gate and up projection followed by the activation, without keeping the projection.
pub(crate) fn project(gate_up: &Linear, x: &Tensor) -> Tensor {
    let (weight, kernels) = (&gate_up.weight.value, &gate_up.weight.kernels);
    let row = if gate_up.bias().is_none() { kernels.row(x) } else { None };
    row.and_then(|row| row.swiglu(x, weight))
        .unwrap_or_else(|| forward(kernels, &gate_up.matmul(x), gate_up.bias()))
}

pub(crate) fn forward(kernels: &Kernels, gate_up: &Tensor, bias: Option<&Tensor>) -> Tensor {
    if let Some(fused) = kernels.fused(gate_up) {
        return fused.swiglu(gate_up, bias);
    }
    let [gate, up] = split(gate_up, bias);
    gate.silu() * up
}

/// Recomputes the result, and returns dL/d(gate, up) too, from dL/d(result).
pub(crate) fn backward(
    kernels: &Kernels,
    gate_up: &Tensor,
    bias: Option<&Tensor>,
    dh: &Tensor,
) -> (Tensor, Tensor) {
    if let Some(fused) = kernels.fused(gate_up) {
        return fused.swiglu_backward(gate_up, bias, dh);
    }
    let [gate, up] = split(gate_up, bias);
    let activated = gate.silu();
    let dgate = gate.silu_backward(&(dh * &up));
    let dup = dh * &activated;
    (activated * up, Tensor::cat(&[dgate, dup], -1))
}

fn split(gate_up: &Tensor, bias: Option<&Tensor>) -> [Tensor; 2] {
    let biased = bias.map_or_else(|| gate_up.shallow_clone(), |bias| gate_up + bias);
    biased.chunk(2, -1).try_into().expect("two halves")
}
