//! One new token of one sequence in a single kernel, from its embedding to its logits. See `token.cu`.

use super::compiler::{Ability, Argument, Module};
use super::paged::{TILE_SOURCE, WIDTH_ROOT};
use super::plain_is_wanted;
use super::token_sizes::{HEAD_WIDTH, PARTIAL, Sizes, THREADS};
use std::cell::Cell;
use std::ffi::c_void;
use std::io::{self, Write};
use std::ptr;
use std::sync::OnceLock;
use tch::{Device, Kind, Tensor};

/// In this order.
const SOURCES: [&str; 5] = [
    TILE_SOURCE,
    include_str!("pieces.cu"),
    include_str!("steps.cu"),
    include_str!("attend.cu"),
    include_str!("token.cu"),
];

/// As in the source.
const MEETINGS: u32 = 6;

static MODULE: OnceLock<Result<Module, String>> = OnceLock::new();

/// The parameters of one block, and its pages.
#[derive(Debug, Clone, Copy)]
pub struct TokenBlock<'a> {
    /// `[hidden]`.
    pub norm1: &'a Tensor,
    /// `[queries + 2 * keys, hidden]`.
    pub qkv: &'a Tensor,
    /// `[queries + 2 * keys]`.
    pub qkv_bias: &'a Tensor,
    /// `[hidden, queries]`.
    pub out: &'a Tensor,
    /// `[hidden]`.
    pub norm2: &'a Tensor,
    /// `[2 * inner, hidden]`, gate above up.
    pub gate_up: &'a Tensor,
    /// `[hidden, inner]`.
    pub down: &'a Tensor,
    /// `[pages, shared heads, page tokens, width]`.
    pub keys: &'a Tensor,
    /// The same.
    pub values: &'a Tensor,
}

impl<'a> TokenBlock<'a> {
    /// In the order of the source's structure.
    fn all(&self) -> [&'a Tensor; 9] {
        let Self { norm1, qkv, qkv_bias, out, norm2, gate_up, down, keys, values } = *self;
        [norm1, qkv, qkv_bias, out, norm2, gate_up, down, keys, values]
    }
}

/// A language model.
#[derive(Debug)]
pub struct TokenModel<'a> {
    /// From the first to the last.
    pub blocks: Vec<TokenBlock<'a>>,
    /// `[hidden]`.
    pub norm: &'a Tensor,
    /// `[vocabulary, hidden]`.
    pub head: &'a Tensor,
    /// Of the rotary positions, f32 `[width / 2]`.
    pub frequencies: &'a Tensor,
    /// The axis that each follows, i64 `[width / 2]`.
    pub axes: &'a Tensor,
    /// Query heads.
    pub heads: i64,
    /// Of the norms.
    pub epsilon: f64,
}

/// As in the source.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct ModelArgument {
    blocks: *const c_void,
    norm: *const c_void,
    head: *const c_void,
    frequencies: *const c_void,
    axes: *const c_void,
    layers: i32,
    hidden: i32,
    inner: i32,
    heads: i32,
    shared_heads: i32,
    vocabulary: i32,
    page_tokens: i32,
    room: i32,
    epsilon: f32,
    scale: f32,
}

/// As in the source.
#[repr(C)]
struct TokenArgument {
    embedded: *const c_void,
    table: *const c_void,
    past: i32,
    positions: [i32; 3],
}

/// As in the source.
#[repr(C)]
struct BetweenArgument {
    qkv: *const c_void,
    attended: *const c_void,
    stream: *const c_void,
    gated: *const c_void,
    partial: *const c_void,
    logits: *const c_void,
    met: *const c_void,
    already: u32,
}

/// A model whose parameters and pages stay where they are, ready for single tokens.
#[derive(Debug)]
pub struct WholeToken {
    module: &'static Module,
    model: ModelArgument,
    blocks: u32,
    shared_bytes: u32,
    /// Queries, keys and values; what attention made of them; the residual stream; the gated product; chunks of attention.
    between: [Tensor; 5],
    met: Tensor,
    /// How often blocks have met.
    already: Cell<u32>,
    /// The device did not launch it: it is not asked again.
    refused: Cell<bool>,
    /// What the addresses in `model` lead to.
    _held: Vec<Tensor>,
}

// SAFETY: the addresses lead to memory of the device, which belongs to tensors held here; tensors may change threads.
unsafe impl Send for WholeToken {}

impl WholeToken {
    /// An error says why the kernel cannot be used: another device or type, sizes it does not have.
    pub fn new(model: &TokenModel) -> Result<Self, String> {
        let first = model.blocks.first().ok_or("a model without layers")?;
        let parameters = model.blocks.iter().flat_map(TokenBlock::all).chain([model.norm, model.head]);
        let fits = |tensor: &Tensor| {
            tensor.kind() == Kind::BFloat16
                && tensor.is_contiguous()
                && (tensor.data_ptr() as usize).is_multiple_of(16)
        };
        let pages = first.keys.size();
        if !parameters.clone().all(fits) || pages[3] != HEAD_WIDTH {
            return Err("a model of other numbers than bf16, or of other heads than 128 wide".into());
        }
        let sizes = Sizes {
            layers: model.blocks.len() as i64,
            hidden: model.norm.size()[0],
            inner: first.down.size()[1],
            heads: model.heads,
            shared_heads: pages[1],
            vocabulary: model.head.size()[0],
            page_tokens: pages[2],
        };
        if model.blocks.iter().any(|block| block.all().map(Tensor::size) != sizes.of_block(pages[0])) {
            return Err(format!("layers that are not as {sizes:?} has them"));
        }
        let device = model.head.device();
        if device != Device::Cuda(0) {
            return Err(format!("the model is on {device:?}, not on the first GPU"));
        }
        let module = module().as_ref().map_err(Clone::clone)?;
        let blocks = i64::from(module.ability(Ability::Multiprocessors)?);
        let most_shared = i64::from(module.ability(Ability::SharedBytes)?);
        // what the source declares itself, and a little more
        let declared = 4096;
        let together = module.ability(Ability::LaunchTogether)? == 1;
        if !together || !sizes.fit(blocks) || sizes.shared_bytes(blocks) + declared > most_shared {
            return Err(format!(
                "no room for {sizes:?} on {blocks} multiprocessors with {most_shared} bytes of shared memory each"
            ));
        }
        let addresses: Vec<i64> =
            model.blocks.iter().flat_map(TokenBlock::all).map(|tensor| tensor.data_ptr() as i64).collect();
        let addresses = Tensor::from_slice(&addresses).to_device(device);
        let empty = |numbers: i64, kind: Kind| Tensor::empty([numbers], (kind, device));
        let chunks = blocks / sizes.shared_heads + 1;
        let model_argument = ModelArgument {
            blocks: addresses.data_ptr(),
            norm: model.norm.data_ptr(),
            head: model.head.data_ptr(),
            frequencies: model.frequencies.data_ptr(),
            axes: model.axes.data_ptr(),
            layers: sizes.layers as i32,
            hidden: sizes.hidden as i32,
            inner: sizes.inner as i32,
            heads: sizes.heads as i32,
            shared_heads: sizes.shared_heads as i32,
            vocabulary: sizes.vocabulary as i32,
            page_tokens: sizes.page_tokens as i32,
            room: sizes.room(blocks) as i32,
            epsilon: model.epsilon as f32,
            // exponents are of 2
            scale: std::f32::consts::LOG2_E / WIDTH_ROOT,
        };
        let held = parameters.chain([model.frequencies, model.axes]).map(Tensor::shallow_clone);
        let held = held.chain([addresses.shallow_clone()]).collect();
        Ok(Self {
            module,
            model: model_argument,
            blocks: blocks as u32,
            shared_bytes: sizes.shared_bytes(blocks) as u32,
            between: [
                empty(sizes.queries() + 2 * sizes.shared_heads * HEAD_WIDTH, Kind::BFloat16),
                empty(sizes.queries(), Kind::BFloat16),
                empty(sizes.hidden, Kind::BFloat16),
                empty(sizes.inner, Kind::BFloat16),
                empty(sizes.heads * chunks * PARTIAL, Kind::Float),
            ],
            met: Tensor::zeros([1], (Kind::Int, device)),
            already: Cell::new(0),
            refused: Cell::new(false),
            _held: held,
        })
    }

    /// The logits `[1, vocabulary]` of what follows a token: from its embedding `[hidden]`, the pages i32 `[pages]` of its
    /// sequence with a place for it, the tokens before it and its position on each axis. Its key and value are written into
    /// their pages. `None`, and nothing written, where the plain versions are wanted or the device refuses.
    pub fn logits(
        &self,
        embedded: &Tensor,
        table: &Tensor,
        past: usize,
        positions: [i64; 3],
    ) -> Option<Tensor> {
        if plain_is_wanted() || self.refused.get() {
            return None;
        }
        assert!(
            embedded.is_contiguous() && table.is_contiguous(),
            "our kernels read numbers one behind the other"
        );
        let logits =
            Tensor::empty([1, i64::from(self.model.vocabulary)], (Kind::BFloat16, embedded.device()));
        let token = TokenArgument {
            embedded: embedded.data_ptr(),
            table: table.data_ptr(),
            past: past as i32,
            positions: positions.map(|position| position as i32),
        };
        let [qkv, attended, stream, gated, partial] =
            self.between.each_ref().map(|tensor| tensor.data_ptr().cast_const());
        let between = BetweenArgument {
            qkv,
            attended,
            stream,
            gated,
            partial,
            logits: logits.data_ptr(),
            met: self.met.data_ptr(),
            already: self.already.get(),
        };
        let arguments = [
            Argument::Structure(ptr::from_ref(&self.model).cast()),
            Argument::Structure(ptr::from_ref(&token).cast()),
            Argument::Structure(ptr::from_ref(&between).cast()),
        ];
        let launched = self.module.launch_together(
            "whole_token",
            self.blocks,
            THREADS as u32,
            self.shared_bytes,
            &arguments,
        );
        if let Err(problem) = launched {
            self.refused.set(true);
            let _ = writeln!(io::stderr(), "single tokens take several kernels from now on: {problem}");
            return None;
        }
        let meetings = MEETINGS * self.model.layers as u32;
        self.already.set(self.already.get().wrapping_add(self.blocks.wrapping_mul(meetings)));
        Some(logits)
    }
}

/// Why the kernel is not there, on a machine with a GPU.
pub fn problem() -> Option<&'static str> {
    module().as_ref().err().map(String::as_str)
}

fn module() -> &'static Result<Module, String> {
    MODULE.get_or_init(|| Module::compile(&SOURCES, "token.cu"))
}
