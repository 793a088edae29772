//! silu(gate) * up, on the product that has both side by side.

use arpo_torch::kernels::fused_for;
use tch::Tensor;

pub(crate) fn forward(gate_up: &Tensor) -> Tensor {
    if let Some(fused) = fused_for(gate_up) {
        return fused.swiglu(gate_up);
    }
    let parts = gate_up.chunk(2, -1);
    parts[0].silu() * &parts[1]
}

/// The result again, and dL/d(gate, up), from dL/d(result).
pub(crate) fn backward(gate_up: &Tensor, dh: &Tensor) -> (Tensor, Tensor) {
    if let Some(fused) = fused_for(gate_up) {
        return fused.swiglu_backward(gate_up, dh);
    }
    let parts = gate_up.chunk(2, -1);
    let (gate, up) = (&parts[0], &parts[1]);
    let activated = gate.silu();
    let dgate = gate.silu_backward(&(dh * up));
    let dup = dh * &activated;
    (activated * up, Tensor::cat(&[dgate, dup], -1))
}
