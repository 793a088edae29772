//! Fused element-wise kernels of training and prefill. Here those of activations and of the optimiser, see `fused.cu`; norms
//! are in `norm.rs`, RoPE is in `rotary.rs`.

use super::Family;
use super::module::{Argument, Module, expect};
use std::ptr;
use tch::{Kind, Tensor};

pub(super) const FAMILY: Family = Family {
    file: "fused.cu",
    purpose: "training and prefill",
    sources: &[include_str!("norm.cu"), include_str!("rotary.cu"), include_str!("fused.cu")],
    constants: &[("GROUPS_PER_THREAD", GROUPS_PER_THREAD), ("LAYER_NORM_THREADS", LAYER_NORM_THREADS)],
};

/// Enough blocks to fill every multiprocessor of today's GPUs several times.
const MANY_BLOCKS: u32 = 132 * 16;

pub(super) const THREADS: u32 = 256;

/// Groups of eight values of a norm's row in a thread's registers.
pub(super) const GROUPS_PER_THREAD: u32 = 2;

/// The most threads of a block of a layer norm's backward pass: more would leave too few registers for its sums.
pub(super) const LAYER_NORM_THREADS: u32 = 384;

/// The scalars of an AdamW update, the same for all parameters.
#[derive(Debug, Clone, Copy)]
pub struct AdamwScalars {
    /// Gradients are multiplied by it.
    pub clip: f64,
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the root of the mean square.
    pub epsilon: f64,
    /// Learning rate over the first moment's bias correction.
    pub step_size: f64,
    /// Square root of the second moment's bias correction.
    pub bias_correction2_sqrt: f64,
    /// Weights are multiplied by it.
    pub decay: f64,
}

/// The scalars as the kernel has them, in f32.
#[repr(C)]
struct AdamwArgument {
    clip: f32,
    mean_decay: f32,
    mean_share: f32,
    square_decay: f32,
    square_share: f32,
    /// libtorch divides a tensor by a number on a GPU by multiplying with its inverse, which it computes in f64.
    inverse_correction: f32,
    epsilon: f32,
    step_size: f32,
    decay: f32,
}

impl AdamwArgument {
    fn new(scalars: &AdamwScalars) -> Self {
        Self {
            clip: scalars.clip as f32,
            mean_decay: scalars.beta1 as f32,
            mean_share: (1.0 - scalars.beta1) as f32,
            square_decay: scalars.beta2 as f32,
            square_share: (1.0 - scalars.beta2) as f32,
            inverse_correction: (1.0 / scalars.bias_correction2_sqrt) as f32,
            epsilon: scalars.epsilon as f32,
            step_size: scalars.step_size as f32,
            decay: scalars.decay as f32,
        }
    }
}

/// The kernels. All tensors are contiguous bf16 on one device.
#[derive(Debug, Clone, Copy)]
pub struct Fused<'a> {
    pub(super) module: &'a Module,
}

impl Fused<'_> {
    /// silu(gate) * up, with a bias on both.
    pub fn swiglu(self, gate_up: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let (rows, double) = rows_and_width(gate_up);
        expect_bias(bias, double);
        let h = Tensor::empty([rows, double / 2], (gate_up.kind(), gate_up.device()));
        let groups = double / 16;
        let arguments = [
            Argument::tensor(gate_up),
            bias.map_or(Argument::Null, Argument::tensor),
            Argument::tensor(&h),
            Argument::I64(groups),
            Argument::I64(rows * groups),
        ];
        // SAFETY: swiglu(gate_up, bias or null, h, groups, groups of all rows), any number of blocks; sizes checked.
        unsafe { self.module.launch("swiglu", MANY_BLOCKS, THREADS, &arguments) };
        h
    }

    /// Recomputes silu(gate) * up, and returns the gradients of gate and up too.
    pub fn swiglu_backward(self, gate_up: &Tensor, bias: Option<&Tensor>, dh: &Tensor) -> (Tensor, Tensor) {
        let (rows, double) = rows_and_width(gate_up);
        expect_bias(bias, double);
        expect("the gradient of a SwiGLU", dh, Kind::BFloat16, rows * double / 2);
        let (h, d_gate_up) = (dh.empty_like(), gate_up.empty_like());
        let groups = double / 16;
        let arguments = [
            Argument::tensor(gate_up),
            bias.map_or(Argument::Null, Argument::tensor),
            Argument::tensor(dh),
            Argument::tensor(&h),
            Argument::tensor(&d_gate_up),
            Argument::I64(groups),
            Argument::I64(rows * groups),
        ];
        // SAFETY: swiglu_backward(gate_up, bias or null, dh, h, d_gate_up, groups, groups of all rows), any number of
        // blocks; sizes checked.
        unsafe { self.module.launch("swiglu_backward", MANY_BLOCKS, THREADS, &arguments) };
        (h, d_gate_up)
    }

    /// GELU in its tanh form, with a bias on x.
    pub fn gelu(self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let (rows, width) = rows_and_width(x);
        expect_bias(bias, width);
        let h = x.empty_like();
        let groups = width / 8;
        let arguments = [
            Argument::tensor(x),
            bias.map_or(Argument::Null, Argument::tensor),
            Argument::tensor(&h),
            Argument::I64(groups),
            Argument::I64(rows * groups),
        ];
        // SAFETY: gelu(x, bias or null, h, groups, groups of all rows), any number of blocks; sizes checked.
        unsafe { self.module.launch("gelu", MANY_BLOCKS, THREADS, &arguments) };
        h
    }

    /// Recomputes the GELU, and returns the gradient of x too.
    pub fn gelu_backward(self, x: &Tensor, bias: Option<&Tensor>, dh: &Tensor) -> (Tensor, Tensor) {
        let (rows, width) = rows_and_width(x);
        expect_bias(bias, width);
        expect("the gradient of a GELU", dh, Kind::BFloat16, rows * width);
        let (h, dx) = (x.empty_like(), x.empty_like());
        let groups = width / 8;
        let arguments = [
            Argument::tensor(x),
            bias.map_or(Argument::Null, Argument::tensor),
            Argument::tensor(dh),
            Argument::tensor(&h),
            Argument::tensor(&dx),
            Argument::I64(groups),
            Argument::I64(rows * groups),
        ];
        // SAFETY: gelu_backward(x, bias or null, dh, h, dx, groups, groups of all rows), any number of blocks; sizes
        // checked.
        unsafe { self.module.launch("gelu_backward", MANY_BLOCKS, THREADS, &arguments) };
        (h, dx)
    }

    /// One AdamW update with stochastic rounding, in place; the gradient is zeroed. The number of values is a multiple
    /// of 8; `first` is the place of the first in its parameter, on which the rounding depends.
    pub fn adamw(
        self,
        value: &Tensor,
        gradient: &Tensor,
        moments: &[Tensor; 2],
        scalars: &AdamwScalars,
        seed: u64,
        first: i64,
    ) {
        let values = value.numel() as i64;
        assert_eq!(values % 8, 0, "the fused AdamW needs a multiple of 8 values");
        expect("a parameter", value, Kind::BFloat16, values);
        expect("a first moment", &moments[0], Kind::BFloat16, values);
        expect("a second moment", &moments[1], Kind::BFloat16, values);
        let argument = AdamwArgument::new(scalars);
        let in_f32 = gradient.kind() == Kind::Float;
        expect("a gradient", gradient, if in_f32 { Kind::Float } else { Kind::BFloat16 }, values);
        let arguments = [
            Argument::tensor(value),
            Argument::tensor(gradient),
            Argument::tensor(&moments[0]),
            Argument::tensor(&moments[1]),
            Argument::I64(values / 8),
            Argument::Structure(ptr::from_ref(&argument).cast()),
            Argument::U64(seed),
            Argument::I64(first),
        ];
        let kernel = if in_f32 { "adamw_f32_gradient" } else { "adamw" };
        // SAFETY: adamw(value, gradient, mean, square, groups, scalars, seed, first), any number of blocks; sizes checked.
        unsafe { self.module.launch(kernel, MANY_BLOCKS, THREADS, &arguments) };
    }
}

fn expect_bias(bias: Option<&Tensor>, values: i64) {
    if let Some(bias) = bias {
        expect("a bias", bias, Kind::BFloat16, values);
    }
}

pub(super) fn rows_and_width(x: &Tensor) -> (i64, i64) {
    let width = x.size()[x.dim() - 1];
    assert_eq!(width % 16, 0, "fused kernels need row widths that are multiples of 16");
    (x.numel() as i64 / width, width)
}
