//! silu(gate) * up, on the product that has both side by side.

use tch::Tensor;

pub(crate) fn forward(gate_up: &Tensor) -> Tensor {
    let parts = gate_up.chunk(2, -1);
    parts[0].silu() * &parts[1]
}

/// dL/d(gate, up) from dL/dh.
pub(crate) fn backward(gate_up: &Tensor, dh: &Tensor) -> Tensor {
    let parts = gate_up.chunk(2, -1);
    let (gate, up) = (&parts[0], &parts[1]);
    let dgate = gate.silu_backward(&(dh * up));
    let dup = dh * gate.silu();
    Tensor::cat(&[dgate, dup], -1)
}
