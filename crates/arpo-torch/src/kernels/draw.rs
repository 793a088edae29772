//! From logits to tokens in one kernel. See `draw.cu`.

use super::compiler::{Argument, Module};
use super::plain_is_wanted;
use std::ptr;
use std::sync::OnceLock;
use tch::{Device, Kind, Tensor};

const SOURCE: &str = include_str!("draw.cu");

/// As in the source.
const THREADS: u32 = 1024;
const MOST_ROWS: usize = 64;
const MOST_GROUPS: i64 = 32_768;

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

/// Whether there is a kernel on such a device, as far as can be said without logits.
pub fn is_there(device: Device) -> bool {
    matches!(device, Device::Cuda(_)) && !plain_is_wanted() && module().is_ok()
}

/// Of each row of logits `[rows, vocabulary]` a token and its log-probability, f64 `[rows, 2]`; those of `forbidden`, i64,
/// do not come. `None` where the kernel cannot be used.
pub fn draw(logits: &Tensor, forbidden: Option<&Tensor>, rows: &[RowDraw]) -> Option<Tensor> {
    let vocabulary = logits.size()[1];
    let fits = logits.kind() == Kind::BFloat16 && vocabulary % 8 == 0 && vocabulary / 8 <= MOST_GROUPS;
    if !fits || !is_there(logits.device()) {
        return None;
    }
    let module = module().as_ref().ok()?;
    let logits = logits.contiguous();
    let drawn = Tensor::empty([rows.len() as i64, 2], (Kind::Double, logits.device()));
    for (number, some) in rows.chunks(MOST_ROWS).enumerate() {
        let first = (number * MOST_ROWS) as i64;
        let of_rows = |tensor: &Tensor| Argument::tensor(&tensor.narrow(0, first, some.len() as i64));
        let argument = RowsArgument::new(some);
        let arguments = [
            of_rows(&logits),
            forbidden.map_or(Argument::Null, Argument::tensor),
            of_rows(&drawn),
            Argument::I32(forbidden.map_or(0, |tokens| tokens.size()[0] as i32)),
            Argument::I32((vocabulary / 8) as i32),
            Argument::Structure(ptr::from_ref(&argument).cast()),
        ];
        module.launch("draw_tokens", some.len() as u32, THREADS, &arguments);
    }
    Some(drawn)
}

fn module() -> &'static Result<Module, String> {
    MODULE.get_or_init(|| Module::compile(&[SOURCE], "draw.cu"))
}

/// Why the kernel is not there, on a machine with a GPU.
pub fn problem() -> Option<&'static str> {
    module().as_ref().err().map(String::as_str)
}
