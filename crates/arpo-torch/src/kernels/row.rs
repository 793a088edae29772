//! Matrix-vector products, as decoding a single new token needs them. See `row.cu`.
//!
//! BLAS libraries are tuned for many rows; for one row they reach 20 to 90 % of the memory bandwidth, these kernels 70
//! % and more.

use super::compiler::{Argument, Module};
use super::plain_is_forced;
use std::sync::OnceLock;
use tch::{Device, Kind, Tensor};

const SOURCE: &str = include_str!("row.cu");

/// As in the source.
const ROWS: u32 = 4;
const THREADS: u32 = 32 * ROWS;

static MODULE: OnceLock<Result<Module, String>> = OnceLock::new();

/// x Wᵀ, plus `addend` (a bias or a residual) if given, for x `[1, width]` and W `[rows, width]`. `None` where x has
/// several rows, or the kernel cannot be used.
pub fn matmul(x: &Tensor, weight: &Tensor, addend: Option<&Tensor>) -> Option<Tensor> {
    let (module, rows, groups) = module_for(x, weight)?;
    if addend.is_some_and(|addend| addend.numel() as i64 != rows || addend.kind() != x.kind()) {
        return None;
    }
    let addend = addend.map(Tensor::contiguous);
    let y = Tensor::empty([1, rows], (x.kind(), x.device()));
    let arguments = [
        Argument::tensor(weight),
        Argument::tensor(x),
        addend.as_ref().map_or(Argument::Null, Argument::tensor),
        Argument::tensor(&y),
        Argument::I32(rows as i32),
        Argument::I32(groups as i32),
    ];
    module.launch("row_matmul", (rows as u32).div_ceil(ROWS), THREADS, &arguments);
    Some(y)
}

/// silu(gate) * up, for x `[1, width]` and W `[2 * rows, width]`, gate in the upper half. `None` as for [`matmul`].
pub fn swiglu(x: &Tensor, weight: &Tensor) -> Option<Tensor> {
    let (module, double, groups) = module_for(x, weight)?;
    let rows = double / 2;
    let y = Tensor::empty([1, rows], (x.kind(), x.device()));
    let arguments = [
        Argument::tensor(weight),
        Argument::tensor(x),
        Argument::tensor(&y),
        Argument::I32(rows as i32),
        Argument::I32(groups as i32),
    ];
    module.launch("row_swiglu", (rows as u32).div_ceil(ROWS), THREADS, &arguments);
    Some(y)
}

/// The kernels, if they support these tensors, with W's rows and a row's groups of eight values.
fn module_for(x: &Tensor, weight: &Tensor) -> Option<(&'static Module, i64, i64)> {
    let on_gpu = matches!(x.device(), Device::Cuda(_)) && x.kind() == Kind::BFloat16;
    if !on_gpu || plain_is_forced() {
        return None;
    }
    let &[1, width] = x.size().as_slice() else { return None };
    let compatible = weight.kind() == x.kind() && weight.device() == x.device() && weight.size()[1] == width;
    if !compatible || width % 8 != 0 || !x.is_contiguous() || !weight.is_contiguous() {
        return None;
    }
    let module = MODULE.get_or_init(|| Module::compile(&[SOURCE], "row.cu")).as_ref().ok()?;
    Some((module, weight.size()[0], width / 8))
}

/// Why the kernels are unavailable, on a machine with a GPU.
pub fn problem() -> Option<&'static str> {
    MODULE.get_or_init(|| Module::compile(&[SOURCE], "row.cu")).as_ref().err().map(String::as_str)
}
