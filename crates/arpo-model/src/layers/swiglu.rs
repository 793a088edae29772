//! silu(gate) * up, on the product that has both side by side and does not have its bias yet: adding it here saves a
//! pass over the widest tensor there is.

use super::linear::Linear;
use arpo_torch::kernels::{fused_for, row};
use tch::Tensor;

/// With the product before it, nothing of which is kept.
pub(crate) fn product(gate_up: &Linear, x: &Tensor) -> Tensor {
    let at_once = if gate_up.bias().is_none() { row::gated(x, &gate_up.weight.value) } else { None };
    at_once.unwrap_or_else(|| forward(&gate_up.product(x), gate_up.bias()))
}

pub(crate) fn forward(gate_up: &Tensor, bias: Option<&Tensor>) -> Tensor {
    if let Some(fused) = fused_for(gate_up) {
        return fused.swiglu(gate_up, bias);
    }
    let [gate, up] = parts(gate_up, bias);
    gate.silu() * up
}

/// The result again, and dL/d(gate, up), from dL/d(result).
pub(crate) fn backward(gate_up: &Tensor, bias: Option<&Tensor>, dh: &Tensor) -> (Tensor, Tensor) {
    if let Some(fused) = fused_for(gate_up) {
        return fused.swiglu_backward(gate_up, bias, dh);
    }
    let [gate, up] = parts(gate_up, bias);
    let activated = gate.silu();
    let dgate = gate.silu_backward(&(dh * &up));
    let dup = dh * &activated;
    (activated * up, Tensor::cat(&[dgate, dup], -1))
}

fn parts(gate_up: &Tensor, bias: Option<&Tensor>) -> [Tensor; 2] {
    let whole = bias.map_or_else(|| gate_up.shallow_clone(), |bias| gate_up + bias);
    whole.chunk(2, -1).try_into().expect("two halves")
}
