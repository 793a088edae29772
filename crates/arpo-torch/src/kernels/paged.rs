//! Keys and values in pages: written as they are projected, gathered for several new tokens, and read in place by one new
//! token per sequence. See `paged.cu`.

use super::compiler::{Argument, Module};
use super::plain_is_wanted;
use crate::shim::Apart;
use std::sync::OnceLock;
use tch::{Device, Kind, Tensor};

/// In this order.
const SOURCES: [&str; 2] = [TILE_SOURCE, include_str!("paged.cu")];

/// Attention over tiles, for all that attend to pages.
pub(super) const TILE_SOURCE: &str = include_str!("tile.cu");

const WIDTH: i64 = 128;
pub(super) const WIDTH_ROOT: f32 = 11.313_708;
const THREADS: u32 = 128;

/// Of a block that puts chunks together: slices of `WIDTH`, as in the source.
const COMBINE_THREADS: u32 = 8 * WIDTH as u32;

/// Of a block that turns one token: each thread has a few pairs, because a single token has nothing else to wait with.
const TURN_THREADS: u32 = 768;

/// Of a block that copies a page.
const GATHER_THREADS: u32 = 256;

/// Numbers read at a time.
const EIGHT: i64 = 8;

/// Tokens of a tile; pages hold whole tiles.
const TILE: usize = 16;

/// Query heads that can share a key head.
const MOST_IN_GROUP: i64 = 8;

/// Blocks that run at once: three on each multiprocessor of today's largest chips.
const ROUND: usize = 132 * 3;

/// Rounds wanted, so that sequences of unequal length even out, and the most that are tried.
const ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 8;

/// What it costs to begin a round, as tokens of a chunk: measured with 8 sequences of 42 200 tokens.
const ROUND_TOKENS: usize = 48;

/// No chunk is shorter: its result would cost more than its keys.
const SHORTEST_CHUNK: usize = 320;

static MODULE: OnceLock<Result<Module, String>> = OnceLock::new();

/// Sequences of one step: their pages and lengths.
#[derive(Debug)]
pub struct PagedSequences {
    table: Tensor,
    lengths: Tensor,
    longest: usize,
}

impl PagedSequences {
    /// From i32 `[sequences, pages]` and `[sequences]`, with the length of the longest. `None` where there can be no
    /// kernel anyway.
    pub fn new(table: &Tensor, lengths: &Tensor, longest: usize) -> Option<Self> {
        let on_gpu = matches!(table.device(), Device::Cuda(_));
        on_gpu.then(|| Self { table: table.contiguous(), lengths: lengths.shallow_clone(), longest })
    }
}

/// A layer's pages, `[pages, shared heads, tokens, width]`, and where in them new tokens go.
#[derive(Debug, Clone, Copy)]
pub struct PageSlots<'a> {
    /// Keys.
    pub keys: &'a Tensor,
    /// Values.
    pub values: &'a Tensor,
    /// For each token its page, i64.
    pub pages: &'a Tensor,
    /// For each token its place in the page, i64.
    pub places: &'a Tensor,
}

/// Takes the product of queries, keys and values apart, turned to their places: queries `[tokens, heads, width]` are
/// returned, keys and values written into their pages. Angles are `[tokens, width / 2]` in f32. `None`, and nothing
/// written, where the kernel cannot be used.
pub fn rotary_into_pages(
    qkv: &Tensor,
    cosine: &Tensor,
    sine: &Tensor,
    heads: i64,
    slots: PageSlots,
) -> Option<Tensor> {
    let module = module_for(qkv)?;
    let (tokens, shared, width) = (qkv.size()[0], slots.keys.size()[1], slots.keys.size()[3]);
    let q = Tensor::empty([tokens, heads, width], (qkv.kind(), qkv.device()));
    let arguments = [
        Argument::tensor(qkv),
        Argument::tensor(cosine),
        Argument::tensor(sine),
        Argument::tensor(&q),
        Argument::tensor(slots.keys),
        Argument::tensor(slots.values),
        Argument::tensor(slots.pages),
        Argument::tensor(slots.places),
        Argument::I32(heads as i32),
        Argument::I32(shared as i32),
        Argument::I32((width / 2) as i32),
        Argument::I32(slots.keys.size()[2] as i32),
    ];
    module.launch("rotary_into_pages", tokens as u32, TURN_THREADS, &arguments);
    Some(q)
}

/// The kernels, if they can work on this tensor.
fn module_for(tensor: &Tensor) -> Option<&'static Module> {
    let fits = matches!(tensor.device(), Device::Cuda(_)) && tensor.kind() == Kind::BFloat16;
    if !fits || plain_is_wanted() {
        return None;
    }
    MODULE.get_or_init(|| Module::compile(&SOURCES, "paged.cu")).as_ref().ok()
}

/// Attention of q `[sequences, heads, 128]` over a layer's pages `[pages, shared heads, tokens, 128]`:
/// `[sequences, heads * 128]`. `None` where the kernel cannot be used.
pub fn paged_attention(
    q: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    sequences: &PagedSequences,
) -> Option<Tensor> {
    let (count, heads, width) = (q.size()[0], q.size()[1], q.size()[2]);
    let (shared, page_tokens) = (keys.size()[1], keys.size()[2]);
    let fits = width == WIDTH && heads / shared <= MOST_IN_GROUP;
    if !fits || !(page_tokens as usize).is_multiple_of(TILE) {
        return None;
    }
    let module = module_for(q)?;
    let (chunks, chunk_tokens) = chunks(sequences.longest, (count * shared) as usize);
    let q = q.contiguous();
    let partial = Tensor::empty([count, heads, chunks as i64, WIDTH + 2], (Kind::Float, q.device()));
    // exponents are of 2
    let scale = std::f32::consts::LOG2_E / WIDTH_ROOT;
    let arguments = [
        Argument::tensor(&q),
        Argument::tensor(keys),
        Argument::tensor(values),
        Argument::tensor(&sequences.table),
        Argument::tensor(&sequences.lengths),
        Argument::tensor(&partial),
        Argument::I32(sequences.table.size()[1] as i32),
        Argument::I32(page_tokens as i32),
        Argument::I32(shared as i32),
        Argument::I32((heads / shared) as i32),
        Argument::I32(chunks as i32),
        Argument::I32(chunk_tokens as i32),
        Argument::F32(scale),
    ];
    module.launch("paged_attention", (count * shared) as u32 * chunks as u32, THREADS, &arguments);
    let y = Tensor::empty([count, heads * WIDTH], (q.kind(), q.device()));
    let arguments = [
        Argument::tensor(&partial),
        Argument::tensor(&sequences.lengths),
        Argument::tensor(&y),
        Argument::I32(heads as i32),
        Argument::I32(chunks as i32),
        Argument::I32(chunk_tokens as i32),
    ];
    module.launch("paged_combine", (count * heads) as u32, COMBINE_THREADS, &arguments);
    Some(y)
}

/// What pages i64 `[pages]` of a layer hold, keys and values each `[1, shared heads, tokens, width]`. `None` where the kernel
/// cannot be used.
pub fn gathered(keys: &Tensor, values: &Tensor, pages: &Tensor) -> Option<[Tensor; 2]> {
    let (count, shared, page_tokens, width) =
        (pages.size()[0], keys.size()[1], keys.size()[2], keys.size()[3]);
    let module = module_for(keys).filter(|_| width % EIGHT == 0)?;
    let size = [1, shared, count * page_tokens, width];
    let [k, v] = [(); 2].map(|()| Tensor::empty(size, (keys.kind(), keys.device())));
    let arguments = [
        Argument::tensor(keys),
        Argument::tensor(values),
        Argument::tensor(pages),
        Argument::tensor(&k),
        Argument::tensor(&v),
        Argument::I32(count as i32),
        Argument::I32(shared as i32),
        Argument::I32((page_tokens * width / EIGHT) as i32),
    ];
    module.launch("gather_pages", (count * shared) as u32, GATHER_THREADS, &arguments);
    Some([k, v])
}

/// The results put together, `[1, heads, queries, width]`, a token's heads one behind the other in memory. `None` where the
/// kernel cannot be used.
pub(crate) fn joined(Apart { older, newer, older_sums, newer_sums }: &Apart) -> Option<Tensor> {
    let size = newer.size();
    let (heads, tokens, width) = (size[1], size[2], size[3]);
    // strides of heads and of tokens, in eights of numbers
    let strides = |tensor: &Tensor| {
        let strides = tensor.stride();
        let whole = strides[3] == 1 && strides[1] % EIGHT == 0 && strides[2] % EIGHT == 0;
        (whole && tensor.kind() == newer.kind()).then(|| [strides[1] / EIGHT, strides[2] / EIGHT])
    };
    let ([older_head, older_token], [newer_head, newer_token]) = (strides(older)?, strides(newer)?);
    let sums = [older_sums, newer_sums];
    let one_behind_the_other = sums.iter().all(|sums| sums.kind() == Kind::Float && sums.stride()[1] == 1);
    if !one_behind_the_other || width % EIGHT != 0 {
        return None;
    }
    let module = module_for(newer)?;
    let y = Tensor::empty([tokens, heads, width], (newer.kind(), newer.device()));
    let arguments = [
        Argument::strided(older),
        Argument::strided(newer),
        Argument::strided(older_sums),
        Argument::strided(newer_sums),
        Argument::tensor(&y),
        Argument::I32(heads as i32),
        Argument::I32((width / EIGHT) as i32),
        Argument::I64(older_head),
        Argument::I64(older_token),
        Argument::I64(newer_head),
        Argument::I64(newer_token),
        Argument::I64(older_sums.stride()[0]),
        Argument::I64(newer_sums.stride()[0]),
    ];
    let threads = ((heads * width / EIGHT) as u32).next_multiple_of(32).min(1024);
    module.launch("attention_join", tokens as u32, threads, &arguments);
    Some(y.transpose(0, 1).unsqueeze(0))
}

/// Why the kernel is not there, on a machine with a GPU.
pub fn problem() -> Option<&'static str> {
    MODULE.get_or_init(|| Module::compile(&SOURCES, "paged.cu")).as_ref().err().map(String::as_str)
}

/// How many chunks the longest sequence is cut into, and how many tokens each has: whole tiles. Blocks fill rounds as well
/// as can be, because a few blocks more would take another.
fn chunks(longest: usize, lanes: usize) -> (usize, usize) {
    let lanes = lanes.max(1);
    let cut = |rounds: usize| {
        let wanted = (rounds * ROUND / lanes).max(1);
        let tokens = longest.div_ceil(wanted).max(SHORTEST_CHUNK).next_multiple_of(TILE);
        (longest.div_ceil(tokens).max(1), tokens)
    };
    let cost = |(count, tokens): &(usize, usize)| (count * lanes).div_ceil(ROUND) * (tokens + ROUND_TOKENS);
    let most = longest / SHORTEST_CHUNK * lanes / ROUND;
    let fewest = most.clamp(1, ROUNDS);
    (fewest..=most.clamp(fewest, MOST_ROUNDS)).map(cut).min_by_key(cost).expect("there is at least one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_longest() {
        for (longest, lanes) in [(1, 4), (16, 128), (300, 4), (42_270, 4), (42_270, 128), (42_270, 100_000)] {
            let (count, tokens) = chunks(longest, lanes);
            assert!(count * tokens >= longest && (count - 1) * tokens < longest && tokens % TILE == 0);
        }
    }

    #[test]
    fn chunks_fill_rounds() {
        for (lanes, least) in
            [(4, 97), (8, 97), (32, 97), (128, 95), (200, 90), (256, 90), (400, 83), (800, 83)]
        {
            let (count, tokens) = chunks(42_270, lanes);
            let taken = (count * lanes).div_ceil(ROUND) * tokens * ROUND;
            let used = 100 * 42_270 * lanes / taken;
            assert!(used >= least, "{lanes}: {count} chunks of {tokens} tokens use {used} % of their rounds");
        }
    }
}
