//! The paged kv cache: written as keys and values are projected, gathered for prefill, and read in place for decoding.
//! See `paged.cu`.

use super::module::{Argument, Module, expect};
use super::{Family, HeadNorms};
use crate::shim::SplitAttention;
use tch::{Kind, Tensor};

pub(super) const FAMILY: Family = Family {
    file: "paged.cu",
    purpose: "paged attention",
    sources: &[include_str!("tile.cu"), include_str!("paged.cu")],
    constants: &[
        ("WIDTH", WIDTH as u32),
        ("TILE", TILE as u32),
        ("GROUP", MAX_GROUP as u32),
        ("WARPS", WARPS),
        ("SLICES", SLICES),
    ],
};

/// Width of a head; the kernel's register layout assumes it.
const WIDTH: i64 = 128;
const WIDTH_ROOT: f32 = 11.313_708;

/// Warps of a block of attention.
const WARPS: u32 = 4;

/// Slices of `WIDTH` threads of a block that combines chunks.
const SLICES: u32 = 8;

/// Most warps of a block.
const MOST_WARPS: u32 = 32;

/// Of a block that copies a page.
const GATHER_THREADS: u32 = 256;

/// Values per 16-byte load.
const VECTOR: i64 = 8;

/// Tokens of a tile; pages hold whole tiles.
const TILE: usize = 16;

/// Query heads that can share a kv head.
const MAX_GROUP: i64 = 8;

/// Blocks of a wave, which run concurrently: three on each multiprocessor of today's largest GPUs.
const WAVE_BLOCKS: usize = 132 * 3;

/// Waves wanted, so that sequences of unequal length even out, and the most that are tried.
const WAVES: usize = 3;
const MAX_WAVES: usize = 8;

/// What starting a wave costs, in tokens of a chunk: measured with 8 sequences of 42 200 tokens.
const WAVE_TOKENS: usize = 48;

/// The shortest chunk: below it, the partial result would cost more than its keys.
const MIN_CHUNK: usize = 320;

/// Sequences of one decoding step: their pages and lengths.
#[derive(Debug)]
pub struct PagedSequences {
    table: Tensor,
    lengths: Tensor,
    longest: usize,
}

impl PagedSequences {
    /// From i32 `[sequences, pages]` and `[sequences]`, with the length of the longest.
    pub fn new(table: &Tensor, lengths: &Tensor, longest: usize) -> Self {
        Self { table: table.contiguous(), lengths: lengths.shallow_clone(), longest }
    }
}

/// A layer's pages, `[pages, kv heads, tokens, width]`, and the slots of new tokens in them.
#[derive(Debug, Clone, Copy)]
pub struct PageSlots<'a> {
    /// Keys.
    pub keys: &'a Tensor,
    /// Values.
    pub values: &'a Tensor,
    /// The page of each token, i64.
    pub pages: &'a Tensor,
    /// The offset of each token in its page, i64.
    pub offsets: &'a Tensor,
}

/// The kernels. Tensors are bf16 on one device.
#[derive(Debug, Clone, Copy)]
pub struct Paged<'a> {
    pub(super) module: &'a Module,
}

impl Paged<'_> {
    /// Splits a fused qkv projection, norms the heads of queries and keys if it is told how, and applies RoPE: queries
    /// `[tokens, heads, width]` are returned, keys and values are written into their pages. Cosines and sines are
    /// `[tokens, width / 2]` in f32. `None`, and nothing written, where the kernel cannot be used.
    pub fn rotary_into_pages(
        self,
        qkv: &Tensor,
        cosine: &Tensor,
        sine: &Tensor,
        heads: i64,
        norms: Option<HeadNorms>,
        slots: PageSlots,
    ) -> Option<Tensor> {
        let (tokens, kv_heads, width) = (qkv.size()[0], slots.keys.size()[1], slots.keys.size()[3]);
        if width % 2 != 0 {
            return None;
        }
        let page_values = slots.keys.numel() as i64;
        expect("the qkv projection", qkv, Kind::BFloat16, tokens * (heads + 2 * kv_heads) * width);
        expect("the cosines", cosine, Kind::Float, tokens * width / 2);
        expect("the sines", sine, Kind::Float, tokens * width / 2);
        expect("pages of keys", slots.keys, Kind::BFloat16, page_values);
        expect("pages of values", slots.values, Kind::BFloat16, page_values);
        expect("the tokens' pages", slots.pages, Kind::Int64, tokens);
        expect("the tokens' offsets", slots.offsets, Kind::Int64, tokens);
        let [q_weight, k_weight] = norms.map_or([Argument::Null; 2], |norms| {
            norms.expect(width);
            [norms.q, norms.k].map(Argument::tensor)
        });
        let q = Tensor::empty([tokens, heads, width], (qkv.kind(), qkv.device()));
        let arguments = [
            Argument::tensor(qkv),
            Argument::tensor(cosine),
            Argument::tensor(sine),
            q_weight,
            k_weight,
            Argument::tensor(&q),
            Argument::tensor(slots.keys),
            Argument::tensor(slots.values),
            Argument::tensor(slots.pages),
            Argument::tensor(slots.offsets),
            Argument::I32(heads as i32),
            Argument::I32(kv_heads as i32),
            Argument::I32((width / 2) as i32),
            Argument::I32(slots.keys.size()[2] as i32),
            Argument::F32(norms.map_or(0.0, |norms| norms.epsilon as f32)),
        ];
        let threads = rotary_threads((heads + 2 * kv_heads) as u32);
        // SAFETY: rotary_into_pages(qkv, cosine, sine, q weight or null, k weight or null, q, keys, values, pages, offsets,
        // heads, kv heads, half a width, tokens of a page, epsilon), a block per token; sizes checked, and the cache's
        // slots are within its pages.
        unsafe { self.module.launch("rotary_into_pages", tokens as u32, threads, &arguments) };
        Some(q)
    }

    /// Whether [`Paged::attention`] supports these numbers of heads, a head's width, and a page's tokens.
    pub fn attends(self, heads: i64, kv_heads: i64, width: i64, page_tokens: usize) -> bool {
        width == WIDTH && heads / kv_heads <= MAX_GROUP && page_tokens.is_multiple_of(TILE)
    }

    /// Attention of q `[sequences, heads, 128]` over a layer's pages `[pages, kv heads, tokens, 128]`:
    /// `[sequences, heads * 128]`. `None` where the kernel cannot be used.
    pub fn attention(
        self,
        q: &Tensor,
        keys: &Tensor,
        values: &Tensor,
        sequences: &PagedSequences,
    ) -> Option<Tensor> {
        let (count, heads, width) = (q.size()[0], q.size()[1], q.size()[2]);
        let (kv_heads, page_tokens) = (keys.size()[1], keys.size()[2]);
        if !self.attends(heads, kv_heads, width, page_tokens as usize) {
            return None;
        }
        let table_pages = sequences.table.size()[1];
        expect("pages of keys", keys, Kind::BFloat16, keys.size()[0] * kv_heads * page_tokens * WIDTH);
        expect("pages of values", values, Kind::BFloat16, keys.numel() as i64);
        expect("the sequences' pages", &sequences.table, Kind::Int, count * table_pages);
        expect("the sequences' lengths", &sequences.lengths, Kind::Int, count);
        assert!(sequences.longest as i64 <= table_pages * page_tokens, "a sequence is longer than its pages");
        let (chunks, chunk_tokens) = chunks(sequences.longest, (count * kv_heads) as usize);
        let q = q.contiguous();
        let partial = Tensor::empty([count, heads, chunks as i64, WIDTH + 2], (Kind::Float, q.device()));
        // the kernel uses base 2 exponentials
        let scale = std::f32::consts::LOG2_E / WIDTH_ROOT;
        let arguments = [
            Argument::tensor(&q),
            Argument::tensor(keys),
            Argument::tensor(values),
            Argument::tensor(&sequences.table),
            Argument::tensor(&sequences.lengths),
            Argument::tensor(&partial),
            Argument::I32(table_pages as i32),
            Argument::I32(page_tokens as i32),
            Argument::I32(kv_heads as i32),
            Argument::I32((heads / kv_heads) as i32),
            Argument::I32(chunks as i32),
            Argument::I32(chunk_tokens as i32),
            Argument::F32(scale),
        ];
        let blocks = (count * kv_heads) as u32 * chunks as u32;
        // SAFETY: paged_attention(q, keys, values, table, lengths, partial, pages of a row, tokens of a page, kv heads,
        // group, chunks, tokens of a chunk, scale), a block per sequence, kv head and chunk; sizes checked.
        unsafe { self.module.launch("paged_attention", blocks, 32 * WARPS, &arguments) };
        let y = Tensor::empty([count, heads * WIDTH], (q.kind(), q.device()));
        let arguments = [
            Argument::tensor(&partial),
            Argument::tensor(&sequences.lengths),
            Argument::tensor(&y),
            Argument::I32(heads as i32),
            Argument::I32(chunks as i32),
            Argument::I32(chunk_tokens as i32),
        ];
        let threads = SLICES * WIDTH as u32;
        // SAFETY: paged_combine(partial, lengths, y, heads, chunks, tokens of a chunk), a block per sequence and head, on
        // the tensors of above.
        unsafe { self.module.launch("paged_combine", (count * heads) as u32, threads, &arguments) };
        Some(y)
    }

    /// The contents of pages i64 `[pages]` of a layer, keys and values each `[1, kv heads, tokens, width]`. `None` where
    /// the kernel cannot be used.
    pub fn gather(self, keys: &Tensor, values: &Tensor, pages: &Tensor) -> Option<[Tensor; 2]> {
        let (count, kv_heads, page_tokens, width) =
            (pages.size()[0], keys.size()[1], keys.size()[2], keys.size()[3]);
        if width % VECTOR != 0 {
            return None;
        }
        expect("pages of keys", keys, Kind::BFloat16, keys.size()[0] * kv_heads * page_tokens * width);
        expect("pages of values", values, Kind::BFloat16, keys.numel() as i64);
        expect("the wanted pages", pages, Kind::Int64, count);
        let size = [1, kv_heads, count * page_tokens, width];
        let [k, v] = [(); 2].map(|()| Tensor::empty(size, (keys.kind(), keys.device())));
        let arguments = [
            Argument::tensor(keys),
            Argument::tensor(values),
            Argument::tensor(pages),
            Argument::tensor(&k),
            Argument::tensor(&v),
            Argument::I32(count as i32),
            Argument::I32(kv_heads as i32),
            Argument::I32((page_tokens * width / VECTOR) as i32),
        ];
        let blocks = (count * kv_heads) as u32;
        // SAFETY: gather_pages(keys, values, pages, k, v, pages, kv heads, vectors of a page), a block per page and kv
        // head; sizes checked, and the cache's page numbers are within it.
        unsafe { self.module.launch("gather_pages", blocks, GATHER_THREADS, &arguments) };
        Some([k, v])
    }

    /// Merges both results, `[1, heads, queries, width]`, a token's heads contiguous in memory. `None` where the kernel
    /// cannot be used.
    pub(crate) fn merge_attention_states(
        self,
        SplitAttention { prefix, suffix, prefix_lse, suffix_lse }: &SplitAttention,
    ) -> Option<Tensor> {
        let size = suffix.size();
        let (heads, tokens, width) = (size[1], size[2], size[3]);
        // strides of heads and of tokens, in vectors
        let strides = |tensor: &Tensor| {
            let strides = tensor.stride();
            let aligned = strides[3] == 1 && strides[1] % VECTOR == 0 && strides[2] % VECTOR == 0;
            (aligned && tensor.kind() == suffix.kind()).then(|| [strides[1] / VECTOR, strides[2] / VECTOR])
        };
        let ([prefix_head, prefix_token], [suffix_head, suffix_token]) = (strides(prefix)?, strides(suffix)?);
        let lse = [prefix_lse, suffix_lse];
        let contiguous = lse.iter().all(|lse| lse.kind() == Kind::Float && lse.stride()[1] == 1);
        if !contiguous || width % VECTOR != 0 {
            return None;
        }
        expect("attention over the prefix", prefix, Kind::BFloat16, heads * tokens * width);
        expect("the prefix's log-sum-exp", prefix_lse, Kind::Float, heads * tokens);
        expect("the suffix's log-sum-exp", suffix_lse, Kind::Float, heads * tokens);
        let y = Tensor::empty([tokens, heads, width], (suffix.kind(), suffix.device()));
        let arguments = [
            Argument::strided(prefix),
            Argument::strided(suffix),
            Argument::strided(prefix_lse),
            Argument::strided(suffix_lse),
            Argument::tensor(&y),
            Argument::I32(heads as i32),
            Argument::I32((width / VECTOR) as i32),
            Argument::I64(prefix_head),
            Argument::I64(prefix_token),
            Argument::I64(suffix_head),
            Argument::I64(suffix_token),
            Argument::I64(prefix_lse.stride()[0]),
            Argument::I64(suffix_lse.stride()[0]),
        ];
        let threads = ((heads * width / VECTOR) as u32).next_multiple_of(32).min(1024);
        // SAFETY: merge_attention_states(prefix, suffix, both log-sum-exps, y, heads, vectors of a head, six strides), a
        // block per token; sizes checked, strides taken from the tensors.
        unsafe { self.module.launch("merge_attention_states", tokens as u32, threads, &arguments) };
        Some(y.transpose(0, 1).unsqueeze(0))
    }
}

/// Threads of a block that applies RoPE to the heads of one token: as many heads at the same time as there are warps, because
/// nothing else hides the latency of a single token, and as many in the last round as in the others.
fn rotary_threads(heads: u32) -> u32 {
    let rounds = heads.div_ceil(MOST_WARPS);
    32 * heads.div_ceil(rounds)
}

/// How many chunks the longest sequence is split into, and how many tokens each has: whole tiles. Blocks fill waves as
/// well as possible, because a few more blocks would need another wave.
fn chunks(longest: usize, kv_sequences: usize) -> (usize, usize) {
    let kv_sequences = kv_sequences.max(1);
    let split = |waves: usize| {
        let wanted = (waves * WAVE_BLOCKS / kv_sequences).max(1);
        let tokens = longest.div_ceil(wanted).max(MIN_CHUNK).next_multiple_of(TILE);
        (longest.div_ceil(tokens).max(1), tokens)
    };
    let cost = |(count, tokens): &(usize, usize)| {
        (count * kv_sequences).div_ceil(WAVE_BLOCKS) * (tokens + WAVE_TOKENS)
    };
    let max_waves = longest / MIN_CHUNK * kv_sequences / WAVE_BLOCKS;
    let min_waves = max_waves.clamp(1, WAVES);
    (min_waves..=max_waves.clamp(min_waves, MAX_WAVES))
        .map(split)
        .min_by_key(cost)
        .expect("there is at least one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_computed_in_few_and_equal_rounds() {
        let cases = [(20, 20), (32, 32), (36, 18), (48, 24), (80, 27)];
        for (heads, warps) in cases {
            assert_eq!(rotary_threads(heads), 32 * warps, "{heads} heads");
        }
    }

    #[test]
    fn chunks_cover_the_longest() {
        for (longest, kv_sequences) in
            [(1, 4), (16, 128), (300, 4), (42_270, 4), (42_270, 128), (42_270, 100_000)]
        {
            let (count, tokens) = chunks(longest, kv_sequences);
            assert!(count * tokens >= longest && (count - 1) * tokens < longest && tokens % TILE == 0);
        }
    }

    #[test]
    fn chunks_fill_waves() {
        for (kv_sequences, least) in
            [(4, 97), (8, 97), (32, 97), (128, 95), (200, 90), (256, 90), (400, 83), (800, 83)]
        {
            let (count, tokens) = chunks(42_270, kv_sequences);
            let launched = (count * kv_sequences).div_ceil(WAVE_BLOCKS) * tokens * WAVE_BLOCKS;
            let used = 100 * 42_270 * kv_sequences / launched;
            assert!(
                used >= least,
                "{kv_sequences}: {count} chunks of {tokens} tokens use {used} % of their waves"
            );
        }
    }
}
