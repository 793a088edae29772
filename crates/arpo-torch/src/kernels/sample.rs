//! Sampling kernels: from logits to tokens. See `sample.cu`.

use super::Family;
use super::module::{Argument, Module, expect};
use std::ptr;
use tch::{Kind, Tensor};

pub(super) const FAMILY: Family = Family {
    file: "sample.cu",
    purpose: "sampling",
    sources: &[include_str!("sample.cu")],
    constants: &[("THREADS", THREADS), ("SLICES", SLICES as u32), ("MAX_ROWS", MAX_ROWS as u32)],
};

const THREADS: u32 = 256;

/// Slices of a row's vocabulary, one lane of a warp each.
const SLICES: usize = 32;

/// Rows of a launch: their parameters are passed by value.
const MAX_ROWS: usize = 64;

/// How one row's token is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowSample {
    /// Logits are divided by it.
    pub temperature: f64,
    /// Uniform in `[0, 1)`: the token is the first whose cumulative probability exceeds it.
    pub uniform: f64,
    /// Taken instead of sampling.
    pub forced: Option<u32>,
}

/// As in the source.
#[repr(C)]
struct RowsArgument {
    temperature: [f32; MAX_ROWS],
    forced: [i32; MAX_ROWS],
    uniform: [f64; MAX_ROWS],
}

impl RowsArgument {
    fn new(rows: &[RowSample]) -> Self {
        let mut argument =
            Self { temperature: [1.0; MAX_ROWS], forced: [-1; MAX_ROWS], uniform: [0.0; MAX_ROWS] };
        for (index, row) in rows.iter().enumerate() {
            argument.temperature[index] = row.temperature as f32;
            argument.forced[index] = row.forced.map_or(-1, |token| token as i32);
            argument.uniform[index] = row.uniform;
        }
        argument
    }
}

/// A set of tokens as the kernels' bitmask, u8: a bit for each token, up to the last of the set.
pub fn bitmask(tokens: &[u32]) -> Tensor {
    let groups = tokens.iter().max().map_or(0, |&last| last as usize / 8 + 1);
    let mut bitmask = vec![0_u8; groups];
    for &token in tokens {
        bitmask[token as usize / 8] |= 1 << (token % 8);
    }
    Tensor::from_slice(&bitmask)
}

/// The kernels.
#[derive(Debug, Clone, Copy)]
pub struct Sampling<'a> {
    pub(super) module: &'a Module,
}

impl Sampling<'_> {
    /// A token and its log-probability for each row of logits `[rows, vocabulary]`, f64 `[rows, 2]`. Tokens of
    /// `forbidden`, a [`bitmask`] on the same device, are never sampled. `None` where the kernels cannot be used.
    pub fn sample(self, logits: &Tensor, forbidden: &Tensor, rows: &[RowSample]) -> Option<Tensor> {
        let vocabulary = logits.size()[1];
        if logits.kind() != Kind::BFloat16 || vocabulary % 8 != 0 {
            return None;
        }
        let outside = rows.iter().filter_map(|row| row.forced).find(|&token| i64::from(token) >= vocabulary);
        assert_eq!(outside, None, "a forced token outside the vocabulary");
        let logits = logits.contiguous();
        expect("logits", &logits, Kind::BFloat16, rows.len() as i64 * vocabulary);
        expect("forbidden tokens", forbidden, Kind::Uint8, forbidden.size()[0]);
        let empty = |size: [i64; 2]| Tensor::empty(size, (Kind::Double, logits.device()));
        let (slices, sampled) =
            (empty([(rows.len().min(MAX_ROWS) * SLICES) as i64, 2]), empty([rows.len() as i64, 2]));
        for (index, chunk) in rows.chunks(MAX_ROWS).enumerate() {
            let first = (index * MAX_ROWS) as i64;
            let of_rows = |tensor: &Tensor| Argument::tensor(&tensor.narrow(0, first, chunk.len() as i64));
            let argument = RowsArgument::new(chunk);
            let inputs = [of_rows(&logits), Argument::tensor(forbidden)];
            let (slice_sums, tokens) = (Argument::tensor(&slices), of_rows(&sampled));
            let parameters = [
                Argument::I32(forbidden.size()[0] as i32),
                Argument::I32((vocabulary / 8) as i32),
                Argument::Structure(ptr::from_ref(&argument).cast()),
            ];
            let arguments = |outputs: &[Argument]| [&inputs, outputs, &parameters].concat();
            let blocks = chunk.len() as u32;
            // SAFETY: sum_slices(logits, forbidden, slice sums, bytes of forbidden, groups, rows by value), a block per
            // row and slice, and sample_tokens, a block per row, which has the tokens as another output; sizes checked.
            unsafe {
                let sums = arguments(&[slice_sums]);
                self.module.launch("sum_slices", blocks * SLICES as u32, THREADS, &sums);
                self.module.launch("sample_tokens", blocks, THREADS, &arguments(&[slice_sums, tokens]));
            }
        }
        Some(sampled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(tokens: &[u32]) -> Vec<u8> {
        Vec::try_from(bitmask(tokens)).unwrap()
    }

    #[test]
    fn one_bit_per_token_up_to_the_last() {
        assert!(bytes(&[]).is_empty());
        assert_eq!(bytes(&[0]), [1]);
        assert_eq!(bytes(&[23, 1, 9, 1]), [0b10, 0b10, 0b1000_0000]);
        assert_eq!(bytes(&[16]), [0, 0, 1]);
    }
}
