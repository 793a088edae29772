//! Attention of new tokens over the kv cache.
//!
//! New tokens of a pass are packed, sequence by sequence. Where our kernel is available, sequences with one new token
//! (decoding) are one batch of paged attention; where flash attention is, sequences with several (prefill) are computed
//! one by one. All others are one batch by libtorch, padded to the most new tokens.

use crate::cache::{KvCache, Slots};
use crate::pages::PageId;
use arpo_model::Projected;
use arpo_torch::kernels::paged::PagedSequences;
use arpo_torch::shim::{causal_bottom_right, supports_bottom_right};
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
    /// In the order of the packed tokens, each with its number of rows.
    groups: Vec<(i64, Group)>,
}

/// Sequences that are computed together.
#[derive(Debug)]
enum Group {
    /// One new token each, by our kernel.
    Paged(PagedSequences),
    /// One sequence, by flash attention.
    Flash {
        /// Pages that all new tokens see, if attention over them is computed separately.
        prefix: Option<Tensor>, // [1, pages], i64
        /// The remaining pages, the new tokens at the end, and how many tokens they hold.
        suffix: Tensor, // [1, pages], i64
        tokens: i64,
    },
    /// Sequences with equally many new tokens, by libtorch.
    Plain {
        pages: Tensor, // [sequences, pages], i64
        /// Tokens of each sequence's pages that are read.
        tokens: i64,
        /// 0 for visible tokens, `[sequences, 1, new, tokens]`; a new sequence needs none.
        mask: Option<Tensor>,
    },
    /// Sequences padded to the most new tokens.
    Padded {
        pages: Tensor,      // [sequences, pages], i64
        pad_rows: Tensor,   // [sequences * new]: the packed row of each padded row
        unpad_rows: Tensor, // [rows]: the padded row of each packed row
        mask: Tensor,       // [sequences, 1, new, tokens]: 0 for visible tokens
    },
}

impl AttentionPlan {
    /// The plan for sequences in the order of their tokens; those with one new token should be consecutive.
    pub(crate) fn new(spans: &[Span], cache: &KvCache, device: Device) -> Self {
        let tokens =
            spans.iter().flat_map(|span| (span.past..span.past + span.new).map(|at| (span.pages, at)));
        let slots = Slots::new(tokens, cache.page_tokens(), device);
        let by_flash = supports_bottom_right(cache.kind(), device);
        let same_group = |a: &Span, b: &Span| (a.new == 1) == (b.new == 1) && (a.new == 1 || !by_flash);
        let group = |group: &[Span]| {
            let rows = group.iter().map(|span| span.new as i64).sum();
            let group = match group {
                [first, ..] if first.new == 1 && cache.decodes_in_place() => paged(group, cache, device),
                [span] if span.new > 1 && by_flash => flash(span, cache, device),
                [_] => plain(group, cache, device),
                [first, ..] if first.new == 1 => plain(group, cache, device),
                group => padded(group, cache, device),
            };
            (rows, group)
        };
        Self { slots, groups: spans.chunk_by(same_group).map(group).collect() }
    }

    /// Writes the new keys and values of a layer and attends: `[tokens, heads * width]`.
    pub(crate) fn attend(&self, cache: &KvCache, layer: usize, projected: &Projected) -> Tensor {
        // all writes come before all reads: sequences of one pass may share pages
        let q = cache.write(layer, projected, &self.slots);
        let mut first = 0;
        let mut results: Vec<Tensor> = self
            .groups
            .iter()
            .map(|(rows, group)| {
                let q = q.narrow(0, first, *rows);
                first += rows;
                group.attend(cache, layer, &q)
            })
            .collect();
        match results.len() {
            1 => results.remove(0),
            _ => Tensor::cat(&results, 0),
        }
    }
}

/// The pages of each sequence, one row each, padded with page 0, which masks hide: `[sequences, pages]`.
fn page_table(group: &[Span], page_tokens: usize) -> Tensor {
    let used = |span: &Span| (span.past + span.new).div_ceil(page_tokens);
    let longest = group.iter().map(used).max().unwrap_or(0);
    let row = |span: &Span| {
        let pages = span.pages[..used(span)].iter().map(|&page| page as i32).collect::<Vec<_>>();
        pages.into_iter().chain(std::iter::repeat_n(0, longest - used(span)))
    };
    let table: Vec<i32> = group.iter().flat_map(row).collect();
    Tensor::from_slice(&table).view([group.len() as i64, -1])
}

fn paged(group: &[Span], cache: &KvCache, device: Device) -> Group {
    let lengths: Vec<i32> = group.iter().map(|span| (span.past + span.new) as i32).collect();
    let longest = group.iter().map(|span| span.past + span.new).max().unwrap_or(0);
    let table = page_table(group, cache.page_tokens()).to_device(device);
    Group::Paged(PagedSequences::new(&table, &Tensor::from_slice(&lengths).to_device(device), longest))
}

fn flash(span: &Span, cache: &KvCache, device: Device) -> Group {
    let (all, page_tokens) = ((span.past + span.new), cache.page_tokens());
    let in_pages = PREFIX_STEP.is_multiple_of(page_tokens);
    let prefix_tokens = if in_pages { span.past / PREFIX_STEP * PREFIX_STEP } else { 0 };
    let pages = |pages: &[PageId]| {
        let pages: Vec<i64> = pages.iter().map(|&page| page as i64).collect();
        Tensor::from_slice(&pages).unsqueeze(0).to_device(device)
    };
    let (prefix, suffix) = span.pages[..all.div_ceil(page_tokens)].split_at(prefix_tokens / page_tokens);
    let prefix = (!prefix.is_empty()).then(|| pages(prefix));
    Group::Flash { prefix, suffix: pages(suffix), tokens: (all - prefix_tokens) as i64 }
}

/// One sequence, or several with one new token each.
fn plain(group: &[Span], cache: &KvCache, device: Device) -> Group {
    let pages = page_table(group, cache.page_tokens()).to_kind(Kind::Int64).to_device(device);
    let tokens = match group {
        [span] if span.new > 1 => (span.past + span.new) as i64,
        _ => pages.size()[1] * cache.page_tokens() as i64,
    };
    let last: Vec<i64> =
        group.iter().flat_map(|span| span.past as i64..(span.past + span.new) as i64).collect();
    let is_new = matches!(group, [span] if span.past == 0 && span.new > 1);
    let mask = (!is_new).then(|| mask(&last, group.len(), tokens, cache, device));
    Group::Plain { pages, tokens, mask }
}

fn padded(group: &[Span], cache: &KvCache, device: Device) -> Group {
    let new = group.iter().map(|span| span.new).max().unwrap_or(0);
    let (mut pad_rows, mut unpad_rows, mut last) = (vec![], vec![], vec![]);
    for (index, span) in group.iter().enumerate() {
        let first = unpad_rows.len() as i64;
        for at in 0..new {
            let is_token = at < span.new;
            // padding repeats the first row; its result is not used
            pad_rows.push(if is_token { first + at as i64 } else { first });
            last.push((span.past + if is_token { at } else { 0 }) as i64);
            if is_token {
                unpad_rows.push((index * new + at) as i64);
            }
        }
    }
    let tensor = |values: &[i64]| Tensor::from_slice(values).to_device(device);
    let pages = page_table(group, cache.page_tokens()).to_kind(Kind::Int64).to_device(device);
    let tokens = pages.size()[1] * cache.page_tokens() as i64;
    let mask = mask(&last, group.len(), tokens, cache, device);
    Group::Padded { pages, pad_rows: tensor(&pad_rows), unpad_rows: tensor(&unpad_rows), mask }
}

/// 0 up to the last token that each new token sees, minus infinity after it.
fn mask(last: &[i64], sequences: usize, tokens: i64, cache: &KvCache, device: Device) -> Tensor {
    let last = Tensor::from_slice(last).to_device(device).view([sequences as i64, 1, -1, 1]);
    let hidden = Tensor::arange(tokens, (Kind::Int64, device)).gt_tensor(&last);
    Tensor::zeros(hidden.size(), (cache.kind(), device)).masked_fill(&hidden, f64::NEG_INFINITY)
}

impl Group {
    /// Causal attention of queries `[rows, heads, width]`: `[rows, heads * width]`.
    fn attend(&self, cache: &KvCache, layer: usize, q: &Tensor) -> Tensor {
        let (rows, heads, width) = (q.size()[0], q.size()[1], q.size()[2]);
        match self {
            Self::Paged(sequences) => {
                let [keys, values] = cache.layer(layer);
                let paged = cache.kernels().paged(q);
                let attended = paged.and_then(|paged| paged.attention(q, keys, values, sequences));
                attended.expect("the plan was made for the kernel")
            }
            Self::Flash { prefix, suffix, tokens } => {
                let [k, v] = cache.read(layer, suffix).map(|x| x.narrow(2, 0, *tokens));
                let q = q.transpose(0, 1).unsqueeze(0);
                let prefix = prefix.as_ref().map(|pages| cache.read(layer, pages));
                let attended = causal_bottom_right(cache.kernels(), &q, prefix.as_ref(), [&k, &v]);
                attended.reshape([heads, rows, width]).transpose(0, 1).reshape([rows, -1])
            }
            Self::Plain { pages, tokens, mask } => {
                let [k, v] = cache.read(layer, pages).map(|x| x.narrow(2, 0, *tokens));
                let (sequences, kv_heads) = (k.size()[0], k.size()[1]);
                let (new, group) = (rows / sequences, heads / kv_heads);
                let q = q.view([sequences, new, heads, width]).transpose(1, 2);
                let attended = match mask {
                    None => attention(&q, &k, &v, None, group > 1),
                    Some(mask) => {
                        // the query heads that share a kv head are rows of one matmul
                        let q = q.reshape([sequences, kv_heads, group * new, width]);
                        let mask =
                            if new == 1 { mask.shallow_clone() } else { mask.repeat([1, 1, group, 1]) };
                        attention(&q, &k, &v, Some(&mask), false)
                    }
                };
                attended.reshape([sequences, heads, new, width]).transpose(1, 2).reshape([rows, -1])
            }
            Self::Padded { pages, pad_rows, unpad_rows, mask } => {
                let (sequences, new) = (mask.size()[0], mask.size()[2]);
                let q = q.index_select(0, pad_rows).view([sequences, new, heads, width]).transpose(1, 2);
                let [k, v] = cache.read(layer, pages).map(|x| {
                    let (kv_heads, tokens) = (x.size()[1], x.size()[2]);
                    let size = [sequences, kv_heads, heads / kv_heads, tokens, width];
                    x.unsqueeze(2).expand(size, false).reshape([sequences, heads, tokens, width])
                });
                let attended = attention(&q, &k, &v, Some(mask), false);
                attended.transpose(1, 2).reshape([sequences * new, -1]).index_select(0, unpad_rows)
            }
        }
    }
}

/// Causal without a mask; `grouped`: keys and values have fewer heads.
fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, grouped: bool) -> Tensor {
    Tensor::scaled_dot_product_attention(q, k, v, mask, 0.0, mask.is_none(), None, grouped)
}
