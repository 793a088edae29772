//! From logits to tokens by kernels. See `draw.cu`.

use super::compiler::{Argument, Module};
use super::plain_is_wanted;
use std::ptr;
use std::sync::OnceLock;
use tch::{Device, Kind, Tensor};

const SOURCE: &str = include_str!("draw.cu");

/// As in the source.
const THREADS: u32 = 256;
const SLICES: usize = 32;
const MOST_ROWS: usize = 64;

static MODULE: OnceLock<Result<Module, String>> = OnceLock::new();

/// How one row's token comes about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowDraw {
    /// Logits are divided by it.
    pub temperature: f64,
    /// From 0 to below 1: the share of the distribution that the token passes.
    pub draw: f64,
    /// Taken in any case.
    pub dictated: Option<u32>,
}

/// As in the source.
#[repr(C)]
struct RowsArgument {
    temperature: [f32; MOST_ROWS],
    dictated: [i32; MOST_ROWS],
    draw: [f64; MOST_ROWS],
}

impl RowsArgument {
    fn new(rows: &[RowDraw]) -> Self {
        let mut argument =
            Self { temperature: [1.0; MOST_ROWS], dictated: [-1; MOST_ROWS], draw: [0.0; MOST_ROWS] };
        for (number, row) in rows.iter().enumerate() {
            argument.temperature[number] = row.temperature as f32;
            argument.dictated[number] = row.dictated.map_or(-1, |token| token as i32);
            argument.draw[number] = row.draw;
        }
        argument
    }
}

/// Whether there are kernels on such a device, as far as can be said without logits.
pub fn is_there(device: Device) -> bool {
    matches!(device, Device::Cuda(_)) && !plain_is_wanted() && module().is_ok()
}

/// A set of tokens as kernels read it, u8: a bit for each, up to the last of them.
pub fn bits(tokens: &[u32]) -> Tensor {
    let groups = tokens.iter().max().map_or(0, |&last| last as usize / 8 + 1);
    let mut bits = vec![0_u8; groups];
    for &token in tokens {
        bits[token as usize / 8] |= 1 << (token % 8);
    }
    Tensor::from_slice(&bits)
}

/// Of each row of logits `[rows, vocabulary]` a token and its log-probability, f64 `[rows, 2]`; those of `forbidden`, as
/// [`bits`] on the same device, do not come. `None` where kernels cannot be used.
pub fn draw(logits: &Tensor, forbidden: &Tensor, rows: &[RowDraw]) -> Option<Tensor> {
    let vocabulary = logits.size()[1];
    if logits.kind() != Kind::BFloat16 || vocabulary % 8 != 0 || !is_there(logits.device()) {
        return None;
    }
    let module = module().as_ref().ok()?;
    let logits = logits.contiguous();
    let empty = |size: [i64; 2]| Tensor::empty(size, (Kind::Double, logits.device()));
    let (slices, drawn) =
        (empty([(rows.len().min(MOST_ROWS) * SLICES) as i64, 2]), empty([rows.len() as i64, 2]));
    for (number, some) in rows.chunks(MOST_ROWS).enumerate() {
        let first = (number * MOST_ROWS) as i64;
        let of_rows = |tensor: &Tensor| Argument::tensor(&tensor.narrow(0, first, some.len() as i64));
        let argument = RowsArgument::new(some);
        let read = [of_rows(&logits), Argument::tensor(forbidden)];
        let (parts, tokens) = (Argument::tensor(&slices), of_rows(&drawn));
        let how = [
            Argument::I32(forbidden.size()[0] as i32),
            Argument::I32((vocabulary / 8) as i32),
            Argument::Structure(ptr::from_ref(&argument).cast()),
        ];
        let arguments = |written: &[Argument]| [&read, written, &how].concat();
        module.launch("sum_slices", (some.len() * SLICES) as u32, THREADS, &arguments(&[parts]));
        module.launch("draw_tokens", some.len() as u32, THREADS, &arguments(&[parts, tokens]));
    }
    Some(drawn)
}

fn module() -> &'static Result<Module, String> {
    MODULE.get_or_init(|| Module::compile(&[SOURCE], "draw.cu"))
}

/// Why they are not there, on a machine with a GPU.
pub fn problem() -> Option<&'static str> {
    module().as_ref().err().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(tokens: &[u32]) -> Vec<u8> {
        Vec::try_from(bits(tokens)).unwrap()
    }

    #[test]
    fn a_bit_for_each_token_up_to_the_last() {
        assert!(bytes(&[]).is_empty());
        assert_eq!(bytes(&[0]), [1]);
        assert_eq!(bytes(&[23, 1, 9, 1]), [0b10, 0b10, 0b1000_0000]);
        assert_eq!(bytes(&[16]), [0, 0, 1]);
    }
}
