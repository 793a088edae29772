//! Matrix-vector products, as decoding a single new token needs them. See `row.cu`.
//!
//! BLAS libraries are tuned for many rows; for one row they reach 20 to 90 % of the memory bandwidth, these kernels 70
//! % and more.

use super::Family;
use super::module::{Argument, Module, expect};
use tch::{Kind, Tensor};

pub(super) const FAMILY: Family = Family {
    file: "row.cu",
    purpose: "decoding layers",
    sources: &[include_str!("row.cu")],
    constants: &[("ROWS", ROWS)],
};

/// Rows of W per block, one warp each.
const ROWS: u32 = 4;
const THREADS: u32 = 32 * ROWS;

/// Values per 16-byte load.
const VECTOR: i64 = 8;

/// The kernels. Tensors are bf16 on one device.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub(super) module: &'a Module,
}

impl Row<'_> {
    /// x Wᵀ, plus `addend` (a bias or a residual) if given, for x `[1, width]` and W `[rows, width]`. `None` where x has
    /// several rows, or the kernel cannot be used.
    pub fn matmul(self, x: &Tensor, weight: &Tensor, addend: Option<&Tensor>) -> Option<Tensor> {
        let (rows, vectors) = rows_and_vectors(x, weight)?;
        if addend.is_some_and(|addend| addend.numel() as i64 != rows || addend.kind() != x.kind()) {
            return None;
        }
        let addend = addend.map(Tensor::contiguous);
        if let Some(addend) = &addend {
            expect("an addend", addend, Kind::BFloat16, rows);
        }
        let y = Tensor::empty([1, rows], (x.kind(), x.device()));
        let arguments = [
            Argument::tensor(weight),
            Argument::tensor(x),
            addend.as_ref().map_or(Argument::Null, Argument::tensor),
            Argument::tensor(&y),
            Argument::I32(rows as i32),
            Argument::I32(vectors as i32),
        ];
        // SAFETY: row_matmul(w, x, addend or null, y, rows, vectors of a row), a warp per row; sizes checked.
        unsafe { self.module.launch("row_matmul", (rows as u32).div_ceil(ROWS), THREADS, &arguments) };
        Some(y)
    }

    /// silu(gate) * up, for x `[1, width]` and W `[2 * rows, width]`, gate in the upper half. `None` as for
    /// [`Row::matmul`].
    pub fn swiglu(self, x: &Tensor, weight: &Tensor) -> Option<Tensor> {
        let (double, vectors) = rows_and_vectors(x, weight)?;
        let rows = double / 2;
        let y = Tensor::empty([1, rows], (x.kind(), x.device()));
        let arguments = [
            Argument::tensor(weight),
            Argument::tensor(x),
            Argument::tensor(&y),
            Argument::I32(rows as i32),
            Argument::I32(vectors as i32),
        ];
        // SAFETY: row_swiglu(w, x, y, rows, vectors of a row), a warp per row of the result; sizes checked.
        unsafe { self.module.launch("row_swiglu", (rows as u32).div_ceil(ROWS), THREADS, &arguments) };
        Some(y)
    }
}

/// W's rows and a row's vectors, if the kernels support these tensors.
fn rows_and_vectors(x: &Tensor, weight: &Tensor) -> Option<(i64, i64)> {
    let &[1, width] = x.size().as_slice() else { return None };
    let &[rows, columns] = weight.size().as_slice() else { return None };
    let compatible = weight.kind() == x.kind() && weight.device() == x.device() && columns == width;
    let aligned = width % VECTOR == 0 && x.is_contiguous() && weight.is_contiguous();
    (compatible && aligned).then_some((rows, width / VECTOR))
}
