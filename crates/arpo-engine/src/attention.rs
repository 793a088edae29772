//! Attention of new tokens over the kv cache.
//!
//! New tokens of a pass are packed, sequence by sequence. Sequences with one new token (decoding) are one batch of
//! paged attention. Sequences with several (prefill) are computed one by one where flash attention is available, and
//! otherwise as one batch, padded to the longest.

use crate::cache::{KvCache, Slots};
use crate::pages::PageId;
use arpo_model::Projected;
use arpo_torch::kernels::paged::PagedSequences;
use arpo_torch::shim::{causal_bottom_right, supports_bottom_right};
use std::cell::OnceCell;
use tch::{Device, Kind, Tensor};

/// The prefix that all new tokens see is a multiple of this many tokens: every distinct length, with every rounded
/// number of new tokens, costs cuDNN one plan search per thread.
const PREFIX_STEP: usize = 2048;

/// The new tokens of one sequence in a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) pages: &'a [PageId],
    /// Tokens in the cache before this pass.
    pub(crate) past: usize,
    /// Tokens added in this pass.
    pub(crate) new: usize,
}

/// Where the tokens of a pass are written and what they attend to: the same for all layers.
#[derive(Debug)]
pub(crate) struct AttentionPlan {
    slots: Slots,
    /// In the order of the packed tokens.
    groups: Vec<SequenceGroup>,
}

#[derive(Debug)]
struct SequenceGroup {
    rows: i64,
    kind: GroupKind,
}

#[derive(Debug)]
enum GroupKind {
    /// Sequences with one new token each.
    Decode(DecodeBatch),
    /// One sequence with several new tokens.
    Prefill(Prefill),
    /// Sequences with several new tokens each.
    PaddedPrefill(PaddedPrefill),
}

#[derive(Debug)]
struct Prefill {
    /// Pages that all of its new tokens see, if attention over them is computed separately.
    prefix: Option<Tensor>, // [1, pages], i64
    /// The remaining pages, the new tokens at the end, and how many tokens they hold.
    suffix: Tensor, // [1, pages], i64
    tokens: i64,
    mask: Option<Tensor>,
}

#[derive(Debug)]
struct PaddedPrefill {
    pages: Tensor,      // [sequences, pages], i64
    pad_rows: Tensor,   // [sequences * longest]: the packed row of each padded row
    unpad_rows: Tensor, // [rows]: the padded row of each packed row
    mask: Tensor,       // [sequences, 1, longest, tokens]: 0 for visible tokens
    longest: i64,
}

#[derive(Debug)]
struct DecodeBatch {
    table: Tensor,   // [sequences, pages], i32
    lengths: Tensor, // [sequences], i32
    sequences: PagedSequences,
    /// For attention without the kernel.
    plain: OnceCell<PlainDecode>,
}

#[derive(Debug)]
struct PlainDecode {
    pages: Tensor, // [sequences, pages], i64
    mask: Tensor,  // [sequences, 1, 1, tokens]: 0 for visible tokens
}

impl AttentionPlan {
    /// The plan for sequences in the order of their tokens; those with one new token should be consecutive.
    pub(crate) fn new(spans: &[Span], cache: &KvCache, device: Device) -> Self {
        let page_tokens = cache.page_tokens();
        let tokens =
            spans.iter().flat_map(|span| (span.past..span.past + span.new).map(|at| (span.pages, at)));
        let slots = Slots::new(tokens, page_tokens, device);
        let pads = !supports_bottom_right(cache.kind(), device);
        let same_group = |a: &Span, b: &Span| (a.new == 1) == (b.new == 1) && (a.new == 1 || pads);
        let groups = spans.chunk_by(same_group).map(|group| {
            let kind = match group {
                [span] if span.new > 1 => GroupKind::Prefill(Prefill::new(span, cache, device)),
                [first, ..] if first.new > 1 => {
                    GroupKind::PaddedPrefill(PaddedPrefill::new(group, cache, device))
                }
                group => GroupKind::Decode(DecodeBatch::new(group, cache, device)),
            };
            SequenceGroup { rows: group.iter().map(|span| span.new as i64).sum(), kind }
        });
        Self { slots, groups: groups.collect() }
    }

    /// Writes the new keys and values of a layer and attends: `[tokens, heads * width]`.
    pub(crate) fn attend(&self, cache: &KvCache, layer: usize, projected: &Projected) -> Tensor {
        // all writes come before all reads: sequences of one pass may share pages
        let q = cache.write(layer, projected, &self.slots);
        let mut first = 0;
        let mut results: Vec<Tensor> = self
            .groups
            .iter()
            .map(|group| {
                let q = q.narrow(0, first, group.rows);
                first += group.rows;
                match &group.kind {
                    GroupKind::Decode(decode) => decode.attend(cache, layer, &q),
                    GroupKind::Prefill(prefill) => prefill.attend(cache, layer, &q),
                    GroupKind::PaddedPrefill(padded) => padded.attend(cache, layer, &q),
                }
            })
            .collect();
        match results.len() {
            1 => results.remove(0),
            _ => Tensor::cat(&results, 0),
        }
    }
}

/// The pages of each sequence, one row each, padded with page 0, which masks hide; and the length of a row.
fn page_table(group: &[Span], page_tokens: usize) -> (Vec<i32>, usize) {
    let used = |span: &Span| (span.past + span.new).div_ceil(page_tokens);
    let longest = group.iter().map(used).max().unwrap_or(0);
    let row = |span: &Span| {
        let pages = span.pages[..used(span)].iter().map(|&page| page as i32).collect::<Vec<_>>();
        pages.into_iter().chain(std::iter::repeat_n(0, longest - used(span)))
    };
    (group.iter().flat_map(row).collect(), longest)
}

/// 0 up to the last visible token, minus infinity after it.
fn visible_up_to(last: &Tensor, tokens: i64) -> Tensor {
    let indices = Tensor::arange(tokens, (last.kind(), last.device()));
    let hidden = indices.gt_tensor(&last.unsqueeze(-1));
    Tensor::zeros_like(&hidden).to_kind(Kind::Float).masked_fill(&hidden, f64::NEG_INFINITY)
}

impl PaddedPrefill {
    fn new(group: &[Span], cache: &KvCache, device: Device) -> Self {
        let (table, pages) = page_table(group, cache.page_tokens());
        let longest = group.iter().map(|span| span.new).max().unwrap_or(0);
        let (mut pad_rows, mut unpad_rows, mut last) = (vec![], vec![], vec![]);
        for (index, span) in group.iter().enumerate() {
            let first = unpad_rows.len() as i64;
            for at in 0..longest {
                let is_token = at < span.new;
                // padding repeats the first row; its result is not used
                pad_rows.push(if is_token { first + at as i64 } else { first });
                last.push((span.past + if is_token { at } else { 0 }) as i64);
                if is_token {
                    unpad_rows.push((index * longest + at) as i64);
                }
            }
        }
        let tensor = |values: &[i64]| Tensor::from_slice(values).to_device(device);
        let (sequences, longest) = (group.len() as i64, longest as i64);
        let last = tensor(&last).view([sequences, 1, longest]);
        let mask = visible_up_to(&last, (pages * cache.page_tokens()) as i64).to_kind(cache.kind());
        let pages = Tensor::from_slice(&table).view([sequences, -1]).to_kind(Kind::Int64).to_device(device);
        Self { pages, pad_rows: tensor(&pad_rows), unpad_rows: tensor(&unpad_rows), mask, longest }
    }

    fn attend(&self, cache: &KvCache, layer: usize, q: &Tensor) -> Tensor {
        let (sequences, heads, width) = (self.pages.size()[0], q.size()[1], q.size()[2]);
        let q =
            q.index_select(0, &self.pad_rows).view([sequences, self.longest, heads, width]).transpose(1, 2);
        let [k, v] = cache.read(layer, &self.pages).map(|x| {
            let (kv_heads, tokens) = (x.size()[1], x.size()[2]);
            let by_head =
                x.unsqueeze(2).expand([sequences, kv_heads, heads / kv_heads, tokens, width], false);
            by_head.reshape([sequences, heads, tokens, width])
        });
        let attended =
            Tensor::scaled_dot_product_attention(&q, &k, &v, Some(&self.mask), 0.0, false, None, false);
        attended.transpose(1, 2).reshape([sequences * self.longest, -1]).index_select(0, &self.unpad_rows)
    }
}

impl DecodeBatch {
    fn new(group: &[Span], cache: &KvCache, device: Device) -> Self {
        let (table, _) = page_table(group, cache.page_tokens());
        let lengths: Vec<i32> = group.iter().map(|span| (span.past + span.new) as i32).collect();
        let table = Tensor::from_slice(&table).view([group.len() as i64, -1]).to_device(device);
        let lengths = Tensor::from_slice(&lengths).to_device(device);
        let longest = group.iter().map(|span| span.past + span.new).max().unwrap_or(0);
        let sequences = PagedSequences::new(&table, &lengths, longest);
        Self { table, lengths, sequences, plain: OnceCell::new() }
    }

    fn attend(&self, cache: &KvCache, layer: usize, q: &Tensor) -> Tensor {
        let [keys, values] = cache.layer(layer);
        let paged = cache.kernels().paged(q);
        let fast = paged.and_then(|paged| paged.attention(q, keys, values, &self.sequences));
        fast.unwrap_or_else(|| {
            let plain = self.plain.get_or_init(|| self.plain(cache));
            let [k, v] = cache.read(layer, &plain.pages);
            let (sequences, width) = (q.size()[0], q.size()[2]);
            // the query heads that share a kv head are rows of one matmul
            let q = q.view([sequences, k.size()[1], -1, width]);
            let attended =
                Tensor::scaled_dot_product_attention(&q, &k, &v, Some(&plain.mask), 0.0, false, None, false);
            attended.reshape([sequences, -1])
        })
    }
}

impl DecodeBatch {
    fn plain(&self, cache: &KvCache) -> PlainDecode {
        let (kind, tokens) = (cache.kind(), self.table.size()[1] * cache.page_tokens() as i64);
        let last = (self.lengths.to_kind(Kind::Int64) - 1).view([-1, 1, 1]);
        let mask = visible_up_to(&last, tokens).to_kind(kind);
        PlainDecode { pages: self.table.to_kind(Kind::Int64), mask }
    }
}

impl Prefill {
    fn new(span: &Span, cache: &KvCache, device: Device) -> Self {
        let (all, page_tokens) = ((span.past + span.new), cache.page_tokens());
        let bottom_right = supports_bottom_right(cache.kind(), device);
        let prefix_tokens = if bottom_right && PREFIX_STEP.is_multiple_of(page_tokens) {
            span.past / PREFIX_STEP * PREFIX_STEP
        } else {
            0
        };
        let pages = |pages: &[PageId]| {
            let pages: Vec<i64> = pages.iter().map(|&page| page as i64).collect();
            Tensor::from_slice(&pages).unsqueeze(0).to_device(device)
        };
        let (prefix, suffix) = span.pages[..all.div_ceil(page_tokens)].split_at(prefix_tokens / page_tokens);
        // a new sequence needs no mask, nor does attention with a bottom-right causal mask
        let mask = (span.past > 0 && !bottom_right).then(|| {
            let last = Tensor::arange_start(span.past as i64, all as i64, (Kind::Int64, device));
            Tensor::arange(all as i64, (Kind::Int64, device)).unsqueeze(0).le_tensor(&last.unsqueeze(1))
        });
        let prefix = (!prefix.is_empty()).then(|| pages(prefix));
        Self { prefix, suffix: pages(suffix), tokens: (all - prefix_tokens) as i64, mask }
    }

    /// Causal attention of queries `[new, heads, width]`: `[new, heads * width]`.
    fn attend(&self, cache: &KvCache, layer: usize, q: &Tensor) -> Tensor {
        let [k, v] = cache.read(layer, &self.suffix).map(|x| x.narrow(2, 0, self.tokens));
        let (new, heads, kv_heads, width) = (q.size()[0], q.size()[1], k.size()[1], q.size()[2]);
        let q = q.transpose(0, 1).unsqueeze(0);
        let attended = match &self.mask {
            None if supports_bottom_right(q.kind(), q.device()) => {
                let prefix = self.prefix.as_ref().map(|pages| cache.read(layer, pages));
                causal_bottom_right(cache.kernels(), &q, prefix.as_ref(), [&k, &v])
            }
            None => {
                let no_mask = None::<&Tensor>;
                Tensor::scaled_dot_product_attention(&q, &k, &v, no_mask, 0.0, true, None, heads != kv_heads)
            }
            Some(mask) => {
                // the query heads that share a kv head are rows of one matmul
                let group = heads / kv_heads;
                let q = q.reshape([1, kv_heads, group * new, width]);
                let mask = mask.repeat([group, 1]);
                Tensor::scaled_dot_product_attention(&q, &k, &v, Some(&mask), 0.0, false, None, false)
            }
        };
        attended.reshape([heads, new, width]).transpose(0, 1).reshape([new, -1])
    }
}
