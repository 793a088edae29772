//! Products of a single row, as a single new token needs them. See `row.cu`.
//!
//! Libraries of matrix products are made for many rows; for one they reach two to nine tenths of the memory's speed,
//! these kernels seven tenths and more.

use super::compiler::{Argument, Module};
use super::plain_is_wanted;
use std::sync::OnceLock;
use tch::{Device, Kind, Tensor};

const SOURCE: &str = include_str!("row.cu");

/// As in the source.
const ROWS: u32 = 4;
const THREADS: u32 = 32 * ROWS;

static MODULE: OnceLock<Result<Module, String>> = OnceLock::new();

/// x Wᵀ, plus `more` where there is more, for x `[1, width]` and W `[rows, width]`. `None` where x has other rows, or the
/// kernel cannot be used.
pub fn product(x: &Tensor, weight: &Tensor, more: Option<&Tensor>) -> Option<Tensor> {
    let (module, rows, groups) = fitting(x, weight)?;
    if more.is_some_and(|more| more.numel() as i64 != rows || more.kind() != x.kind()) {
        return None;
    }
    let more = more.map(Tensor::contiguous);
    let y = Tensor::empty([1, rows], (x.kind(), x.device()));
    let arguments = [
        Argument::tensor(weight),
        Argument::tensor(x),
        more.as_ref().map_or(Argument::Null, Argument::tensor),
        Argument::tensor(&y),
        Argument::I32(rows as i32),
        Argument::I32(groups as i32),
    ];
    module.launch("row_product", (rows as u32).div_ceil(ROWS), THREADS, &arguments);
    Some(y)
}

/// silu(gate) * up, for x `[1, width]` and W `[2 * rows, width]` with gate above up. `None` as for [`product`].
pub fn gated(x: &Tensor, weight: &Tensor) -> Option<Tensor> {
    let (module, double, groups) = fitting(x, weight)?;
    let rows = double / 2;
    let y = Tensor::empty([1, rows], (x.kind(), x.device()));
    let arguments = [
        Argument::tensor(weight),
        Argument::tensor(x),
        Argument::tensor(&y),
        Argument::I32(rows as i32),
        Argument::I32(groups as i32),
    ];
    module.launch("row_gated", (rows as u32).div_ceil(ROWS), THREADS, &arguments);
    Some(y)
}

/// The kernels, if they can work on these, with W's rows and a row's groups of eight.
fn fitting(x: &Tensor, weight: &Tensor) -> Option<(&'static Module, i64, i64)> {
    let on_gpu = matches!(x.device(), Device::Cuda(_)) && x.kind() == Kind::BFloat16;
    if !on_gpu || plain_is_wanted() {
        return None;
    }
    let &[1, width] = x.size().as_slice() else { return None };
    let alike = weight.kind() == x.kind() && weight.device() == x.device() && weight.size()[1] == width;
    if !alike || width % 8 != 0 || !x.is_contiguous() || !weight.is_contiguous() {
        return None;
    }
    let module = MODULE.get_or_init(|| Module::compile(&[SOURCE], "row.cu")).as_ref().ok()?;
    Some((module, weight.size()[0], width / 8))
}

/// Why the kernels are not there, on a machine with a GPU.
pub fn problem() -> Option<&'static str> {
    MODULE.get_or_init(|| Module::compile(&[SOURCE], "row.cu")).as_ref().err().map(String::as_str)
}
