//! CUDA kernels of our own, compiled at run time with NVRTC and launched on libtorch's stream.
//!
//! They fuse what libtorch does in many passes over memory: [`Fused`] is for training and prefill, [`paged`], [`row`]
//! and [`sample`] are for decoding. Where they are unavailable (no GPU, no NVRTC, another type than bf16) callers use
//! their plain versions, which are also the reference in tests.

mod compiler;
pub mod paged;
pub mod row;
pub mod sample;

use compiler::{Argument, Module};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tch::{Device, Kind, Tensor};

const SOURCE: &str = include_str!("fused.cu");

/// Enough blocks to fill every multiprocessor of today's GPUs several times.
const MANY_BLOCKS: u32 = 132 * 16;

const THREADS: u32 = 256;

/// Blocks that share the rows of a norm's backward pass; each writes a partial sum for every row slot it has.
const NORM_BLOCKS: u32 = 132 * 4;

/// Values of a norm's row in a warp: two groups of eight per thread, as in the source.
const WARP_VALUES: u32 = 2 * 8 * 32;

/// Warps of a norm's block of one or several rows, and the limit for a block of one row.
const NORM_WARPS: u32 = THREADS / 32;
const MAX_WARPS: u32 = 32;

static FUSED: OnceLock<Result<Fused, String>> = OnceLock::new();
static PLAIN: AtomicBool = AtomicBool::new(false);

/// Forces the plain versions, for comparison.
pub fn use_plain_versions(plain: bool) {
    PLAIN.store(plain, Ordering::Relaxed);
}

fn plain_is_forced() -> bool {
    PLAIN.load(Ordering::Relaxed)
}

/// Why the fused kernels are unavailable, on a machine with a GPU.
pub fn problem() -> Option<&'static str> {
    FUSED.get_or_init(Fused::compile).as_ref().err().map(String::as_str)
}

/// One line that says which kernels cannot be compiled or launched on this machine's GPU, and why; `None` if all are
/// available. Compiles them if that has not happened yet.
pub fn missing_kernels() -> Option<String> {
    let kernels = [
        ("training and prefill", problem()),
        ("paged attention", paged::problem()),
        ("decoding layers", row::problem()),
        ("sampling", sample::problem()),
    ];
    let missing: Vec<(&str, &str)> =
        kernels.into_iter().filter_map(|(kernel, problem)| Some((kernel, problem?))).collect();
    let (_, why) = missing.first()?;
    let kernels: Vec<&str> = missing.iter().map(|(kernel, _)| *kernel).collect();
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(format!("slower than necessary: no CUDA kernels for {}: {why}", kernels.join(", ")))
}

/// The kernels, if they support this tensor.
pub fn fused_for(tensor: &Tensor) -> Option<&'static Fused> {
    let whole_groups = tensor.size().last().is_some_and(|width| width % 16 == 0);
    let fits = matches!(tensor.device(), Device::Cuda(_)) && tensor.kind() == Kind::BFloat16 && whole_groups;
    if !fits || plain_is_forced() {
        return None;
    }
    FUSED.get_or_init(Fused::compile).as_ref().ok()
}

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

/// The compiled kernels. All tensors are contiguous bf16 on one device.
#[derive(Debug)]
pub struct Fused {
    module: Module,
}

impl Fused {
    fn compile() -> Result<Self, String> {
        Module::compile(&[SOURCE], "fused.cu").map(|module| Self { module })
    }

    /// x / rms(x) * w by rows; `None` if rows are too wide.
    pub fn rms_norm(&self, x: &Tensor, weight: &Tensor, epsilon: f64) -> Option<Tensor> {
        let x = x.contiguous();
        let (rows, width) = rows_and_width(&x);
        let block = NormBlock::new(width)?;
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
        self.module.launch("rms_norm", (rows as u32).div_ceil(block.rows), block.threads(), &arguments);
        Some(y)
    }

    /// residual + dL/dx, and dL/dw in f32, from dL/dy; `None` if rows are too wide.
    pub fn rms_norm_backward(
        &self,
        x: &Tensor,
        weight: &Tensor,
        dy: &Tensor,
        residual: Option<&Tensor>,
        epsilon: f64,
    ) -> Option<(Tensor, Tensor)> {
        let (x, dy, residual) = (x.contiguous(), dy.contiguous(), residual.map(Tensor::contiguous));
        let (rows, width) = rows_and_width(&x);
        let block = NormBlock::new(width)?;
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
        self.module.launch("rms_norm_backward", NORM_BLOCKS, block.threads(), &arguments);
        Some((dx, partial.sum_dim_intlist([0i64].as_slice(), false, None::<Kind>)))
    }

    /// Splits a fused qkv projection into queries, keys and values `[tokens, heads, width]`, RoPE applied to the first
    /// two. Cosines and sines are `[tokens, width / 2]` in f32; a head's width is a multiple of 16.
    pub fn rotary_split(
        &self,
        qkv: &Tensor,
        cosine: &Tensor,
        sine: &Tensor,
        heads: i64,
        kv_heads: i64,
    ) -> [Tensor; 3] {
        let tokens = qkv.size()[0];
        let width = qkv.size()[1] / (heads + 2 * kv_heads);
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
        self.module.launch("rotary_split", tokens as u32, threads, &arguments);
        outputs
    }

    /// The gradient of the qkv projection from those of queries, keys and values:
    /// `[tokens, (heads + 2 kv_heads) * width]`.
    pub fn rotary_join(&self, gradients: &[Tensor; 3], cosine: &Tensor, sine: &Tensor) -> Tensor {
        let [dq, dk, dv] = gradients.each_ref().map(Tensor::contiguous);
        let (tokens, heads, width, kv_heads) = (dq.size()[0], dq.size()[1], dq.size()[2], dk.size()[1]);
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
        self.module.launch("rotary_join", tokens as u32, threads, &arguments);
        joined
    }

    /// silu(gate) * up, with a bias on both.
    pub fn swiglu(&self, gate_up: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let (rows, double) = rows_and_width(gate_up);
        let h = Tensor::empty([rows, double / 2], (gate_up.kind(), gate_up.device()));
        let groups = double / 16;
        let arguments = [
            Argument::tensor(gate_up),
            bias.map_or(Argument::Null, Argument::tensor),
            Argument::tensor(&h),
            Argument::I64(groups),
            Argument::I64(rows * groups),
        ];
        self.module.launch("swiglu", MANY_BLOCKS, THREADS, &arguments);
        h
    }

    /// Recomputes silu(gate) * up, and returns the gradients of gate and up too.
    pub fn swiglu_backward(&self, gate_up: &Tensor, bias: Option<&Tensor>, dh: &Tensor) -> (Tensor, Tensor) {
        let (rows, double) = rows_and_width(gate_up);
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
        self.module.launch("swiglu_backward", MANY_BLOCKS, THREADS, &arguments);
        (h, d_gate_up)
    }

    /// One AdamW update with stochastic rounding, in place; the gradient is zeroed. The number of values is a multiple
    /// of 8.
    pub fn adamw(
        &self,
        value: &Tensor,
        gradient: &Tensor,
        moments: &[Tensor; 2],
        scalars: &AdamwScalars,
        seed: u64,
    ) {
        assert_eq!(value.numel() % 8, 0, "the fused AdamW needs a multiple of 8 values");
        let arguments = [
            Argument::tensor(value),
            Argument::tensor(gradient),
            Argument::tensor(&moments[0]),
            Argument::tensor(&moments[1]),
            Argument::I64(value.numel() as i64 / 8),
            Argument::F32(scalars.clip as f32),
            Argument::F32(scalars.beta1 as f32),
            Argument::F32(scalars.beta2 as f32),
            Argument::F32(scalars.epsilon as f32),
            Argument::F32(scalars.step_size as f32),
            Argument::F32(scalars.bias_correction2_sqrt as f32),
            Argument::F32(scalars.decay as f32),
            Argument::U64(seed),
        ];
        let kernel = if gradient.kind() == Kind::Float { "adamw_f32_gradient" } else { "adamw" };
        self.module.launch(kernel, MANY_BLOCKS, THREADS, &arguments);
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
