//! Fused element-wise kernels of training and prefill: norms, RoPE, `SwiGLU`, `AdamW`. See `fused.cu`.

use super::Family;
use super::module::{Argument, Module, expect};
use std::ptr;
use tch::{Kind, Tensor};

pub(super) const FAMILY: Family = Family {
    file: "fused.cu",
    purpose: "training and prefill",
    sources: &[include_str!("fused.cu")],
    constants: &[("GROUPS_PER_THREAD", GROUPS_PER_THREAD)],
};

/// Enough blocks to fill every multiprocessor of today's GPUs several times.
const MANY_BLOCKS: u32 = 132 * 16;

const THREADS: u32 = 256;

/// Blocks that share the rows of a norm's backward pass; each writes a partial sum for every row slot it has.
const NORM_BLOCKS: u32 = 132 * 4;

/// Groups of eight values of a norm's row in a thread's registers.
const GROUPS_PER_THREAD: u32 = 2;

/// Values of a norm's row in a warp.
const WARP_VALUES: u32 = GROUPS_PER_THREAD * 8 * 32;

/// Warps of a norm's block of one or several rows, and the limit for a block of one row.
const NORM_WARPS: u32 = THREADS / 32;
const MAX_WARPS: u32 = 32;

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
    /// x / rms(x) * w by rows; `None` if rows are too wide.
    pub fn rms_norm(self, x: &Tensor, weight: &Tensor, epsilon: f64) -> Option<Tensor> {
        let x = x.contiguous();
        let (rows, width) = rows_and_width(&x);
        let block = NormBlock::new(width)?;
        expect("the norm's weight", weight, Kind::BFloat16, width);
        let y = x.empty_like();
        let arguments = [
            Argument::tensor(&x),
            Argument::tensor(weight),
            Argument::tensor(&y),
            Argument::I64(rows),
            Argument::I32((width / 8) as i32),
            Argument::I32(block.warps as i32),
            Argument::F32(epsilon as f32),
        ];
        let blocks = (rows as u32).div_ceil(block.rows);
        // SAFETY: rms_norm(x, w, y, rows, groups, warps, epsilon); x and y have `rows` rows, w is checked.
        unsafe { self.module.launch("rms_norm", blocks, block.threads(), &arguments) };
        Some(y)
    }

    /// residual + dL/dx, and dL/dw in f32, from dL/dy; `None` if rows are too wide.
    pub fn rms_norm_backward(
        self,
        x: &Tensor,
        weight: &Tensor,
        dy: &Tensor,
        residual: Option<&Tensor>,
        epsilon: f64,
    ) -> Option<(Tensor, Tensor)> {
        let (x, dy, residual) = (x.contiguous(), dy.contiguous(), residual.map(Tensor::contiguous));
        let (rows, width) = rows_and_width(&x);
        let block = NormBlock::new(width)?;
        expect("the norm's weight", weight, Kind::BFloat16, width);
        for gradient in [Some(&dy), residual.as_ref()].into_iter().flatten() {
            expect("a norm's gradient", gradient, Kind::BFloat16, rows * width);
        }
        let dx = x.empty_like();
        let partial = Tensor::empty([i64::from(NORM_BLOCKS * block.rows), width], (Kind::Float, x.device()));
        let arguments = [
            Argument::tensor(&x),
            Argument::tensor(weight),
            Argument::tensor(&dy),
            residual.as_ref().map_or(Argument::Null, Argument::tensor),
            Argument::tensor(&dx),
            Argument::tensor(&partial),
            Argument::I64(rows),
            Argument::I32((width / 8) as i32),
            Argument::I32(block.warps as i32),
            Argument::F32(epsilon as f32),
        ];
        // SAFETY: rms_norm_backward(x, w, dy, residual or null, dx, dw, rows, groups, warps, epsilon); the sizes are
        // checked, and dw has a row for each of the blocks' row slots.
        unsafe { self.module.launch("rms_norm_backward", NORM_BLOCKS, block.threads(), &arguments) };
        Some((dx, partial.sum_dim_intlist([0i64].as_slice(), false, None::<Kind>)))
    }

    /// Splits a fused qkv projection into queries, keys and values `[tokens, heads, width]`, RoPE applied to the first
    /// two. Cosines and sines are `[tokens, width / 2]` in f32; a head's width is a multiple of 16.
    pub fn rotary_split(
        self,
        qkv: &Tensor,
        cosine: &Tensor,
        sine: &Tensor,
        heads: i64,
        kv_heads: i64,
    ) -> [Tensor; 3] {
        let tokens = qkv.size()[0];
        let width = qkv.size()[1] / (heads + 2 * kv_heads);
        expect("the qkv projection", qkv, Kind::BFloat16, tokens * (heads + 2 * kv_heads) * width);
        expect_angles(cosine, sine, tokens * width / 2);
        let empty = |heads: i64| Tensor::empty([tokens, heads, width], (qkv.kind(), qkv.device()));
        let outputs = [empty(heads), empty(kv_heads), empty(kv_heads)];
        let (groups, threads) = rotary_launch(width, heads + 2 * kv_heads);
        let arguments = [
            Argument::tensor(qkv),
            Argument::tensor(cosine),
            Argument::tensor(sine),
            Argument::tensor(&outputs[0]),
            Argument::tensor(&outputs[1]),
            Argument::tensor(&outputs[2]),
            Argument::I32(heads as i32),
            Argument::I32(kv_heads as i32),
            groups,
        ];
        // SAFETY: rotary_split(qkv, cosine, sine, q, k, v, heads, kv heads, groups), a block per token; sizes checked.
        unsafe { self.module.launch("rotary_split", tokens as u32, threads, &arguments) };
        outputs
    }

    /// The gradient of the qkv projection from those of queries, keys and values:
    /// `[tokens, (heads + 2 kv_heads) * width]`.
    pub fn rotary_join(self, gradients: &[Tensor; 3], cosine: &Tensor, sine: &Tensor) -> Tensor {
        let [dq, dk, dv] = gradients.each_ref().map(Tensor::contiguous);
        let (tokens, heads, width, kv_heads) = (dq.size()[0], dq.size()[1], dq.size()[2], dk.size()[1]);
        for gradient in [&dk, &dv] {
            expect("a gradient of keys or values", gradient, Kind::BFloat16, tokens * kv_heads * width);
        }
        expect_angles(cosine, sine, tokens * width / 2);
        let joined = Tensor::empty([tokens, (heads + 2 * kv_heads) * width], (dq.kind(), dq.device()));
        let (groups, threads) = rotary_launch(width, heads + 2 * kv_heads);
        let arguments = [
            Argument::tensor(&dq),
            Argument::tensor(&dk),
            Argument::tensor(&dv),
            Argument::tensor(cosine),
            Argument::tensor(sine),
            Argument::tensor(&joined),
            Argument::I32(heads as i32),
            Argument::I32(kv_heads as i32),
            groups,
        ];
        // SAFETY: rotary_join(dq, dk, dv, cosine, sine, dqkv, heads, kv heads, groups), a block per token; sizes checked.
        unsafe { self.module.launch("rotary_join", tokens as u32, threads, &arguments) };
        joined
    }

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

fn expect_angles(cosine: &Tensor, sine: &Tensor, values: i64) {
    expect("the cosines", cosine, Kind::Float, values);
    expect("the sines", sine, Kind::Float, values);
}

fn expect_bias(bias: Option<&Tensor>, values: i64) {
    if let Some(bias) = bias {
        expect("a bias", bias, Kind::BFloat16, values);
    }
}

/// How a norm's rows are distributed: rows per block, warps per row.
struct NormBlock {
    warps: u32,
    rows: u32,
}

impl NormBlock {
    /// `None` if rows are too wide.
    fn new(width: i64) -> Option<Self> {
        let warps = (width as u32).div_ceil(WARP_VALUES);
        (warps <= MAX_WARPS).then(|| Self { warps, rows: (NORM_WARPS / warps).max(1) })
    }

    fn threads(&self) -> u32 {
        32 * self.warps * self.rows
    }
}

/// Half a head's width divided by eight, and threads of a block: one for every eight pairs of a token, up to the limit.
fn rotary_launch(width: i64, heads: i64) -> (Argument, u32) {
    assert_eq!(width % 16, 0, "fused RoPE needs head widths that are multiples of 16");
    let pairs = (width / 16 * heads) as u32;
    (Argument::I32((width / 16) as i32), pairs.next_multiple_of(32).min(1024))
}

fn rows_and_width(x: &Tensor) -> (i64, i64) {
    let width = x.size()[x.dim() - 1];
    assert_eq!(width % 16, 0, "fused kernels need row widths that are multiples of 16");
    (x.numel() as i64 / width, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_norms_block_fits_its_rows() {
        for width in (16..=16_384).step_by(16) {
            let block = NormBlock::new(width).expect("not too wide");
            assert!(i64::from(block.warps * WARP_VALUES) >= width && block.rows >= 1);
            assert!(block.threads() <= 1024, "{width}");
        }
        assert!(NormBlock::new(16_400).is_none());
    }
}
