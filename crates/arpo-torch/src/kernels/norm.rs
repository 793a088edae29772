//! Norms by rows. See `norm.cu`.

use super::fused::{Fused, GROUPS_PER_THREAD, LAYER_NORM_THREADS, THREADS, rows_and_width};
use super::module::{Argument, expect};
use tch::{Kind, Tensor};

/// Blocks that share the rows of a norm's backward pass; each writes a partial sum for every row slot it has.
const NORM_BLOCKS: u32 = 132 * 4;

/// Values of a norm's row in a warp.
const WARP_VALUES: u32 = GROUPS_PER_THREAD * 8 * 32;

/// Warps of a norm's block of one or several rows, and the limits for a block of one row.
const NORM_WARPS: u32 = THREADS / 32;
const MAX_WARPS: u32 = 32;
const MAX_LAYER_NORM_WARPS: u32 = LAYER_NORM_THREADS / 32;

impl Fused<'_> {
    /// x / rms(x) * w by rows; `None` if rows are too wide.
    pub fn rms_norm(self, x: &Tensor, weight: &Tensor, epsilon: f64) -> Option<Tensor> {
        let x = x.contiguous();
        let (rows, width) = rows_and_width(&x);
        let block = NormBlock::new(width, MAX_WARPS)?;
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
        let block = NormBlock::new(width, MAX_WARPS)?;
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

    /// residual + dL/dx of a layer norm, and dL/dw and dL/db in f32, from dL/dy; `None` if rows are too wide.
    pub fn layer_norm_backward(
        self,
        x: &Tensor,
        weight: &Tensor,
        dy: &Tensor,
        residual: Option<&Tensor>,
        epsilon: f64,
    ) -> Option<(Tensor, [Tensor; 2])> {
        let (x, dy, residual) = (x.contiguous(), dy.contiguous(), residual.map(Tensor::contiguous));
        let (rows, width) = rows_and_width(&x);
        let block = NormBlock::new(width, MAX_LAYER_NORM_WARPS)?;
        expect("the norm's weight", weight, Kind::BFloat16, width);
        for gradient in [Some(&dy), residual.as_ref()].into_iter().flatten() {
            expect("a norm's gradient", gradient, Kind::BFloat16, rows * width);
        }
        let dx = x.empty_like();
        let partial =
            || Tensor::empty([i64::from(NORM_BLOCKS * block.rows), width], (Kind::Float, x.device()));
        let partials = [partial(), partial()];
        let arguments = [
            Argument::tensor(&x),
            Argument::tensor(weight),
            Argument::tensor(&dy),
            residual.as_ref().map_or(Argument::Null, Argument::tensor),
            Argument::tensor(&dx),
            Argument::tensor(&partials[0]),
            Argument::tensor(&partials[1]),
            Argument::I64(rows),
            Argument::I32((width / 8) as i32),
            Argument::I32(block.warps as i32),
            Argument::F32(epsilon as f32),
        ];
        // SAFETY: layer_norm_backward(x, w, dy, residual or null, dx, dw, db, rows, groups, warps, epsilon); the sizes are
        // checked, and dw and db have a row for each of the blocks' row slots.
        unsafe { self.module.launch("layer_norm_backward", NORM_BLOCKS, block.threads(), &arguments) };
        Some((dx, partials.map(|partial| partial.sum_dim_intlist([0i64].as_slice(), false, None::<Kind>))))
    }
}

/// How a norm's rows are distributed: rows per block, warps per row.
struct NormBlock {
    warps: u32,
    rows: u32,
}

impl NormBlock {
    /// `None` if rows are too wide.
    fn new(width: i64, max_warps: u32) -> Option<Self> {
        let warps = (width as u32).div_ceil(WARP_VALUES);
        (warps <= max_warps).then(|| Self { warps, rows: (NORM_WARPS / warps).max(1) })
    }

    fn threads(&self) -> u32 {
        32 * self.warps * self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_norms_block_fits_its_rows() {
        for (max_warps, widest) in [(MAX_WARPS, 16_384), (MAX_LAYER_NORM_WARPS, 6144)] {
            for width in (16..=widest).step_by(16) {
                let block = NormBlock::new(width, max_warps).expect("not too wide");
                assert!(i64::from(block.warps * WARP_VALUES) >= width && block.rows >= 1);
                assert!(block.threads() <= 32 * max_warps, "{width}");
            }
            assert!(NormBlock::new(widest + 16, max_warps).is_none());
        }
    }
}
