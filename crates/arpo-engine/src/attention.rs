//! Attention of new tokens over the cache.
//!
//! New tokens of a pass lie one behind the other, sequence by sequence. Sequences that add one token are computed
//! together, over all of their pages at once. Those that add more are computed one by one where sequences are long and
//! there is a kernel for them, and otherwise together too, filled up to the longest.

use crate::cache::{KeyValueCache, Slots};
use crate::pages::PageId;
use arpo_model::Projected;
use arpo_torch::kernels::paged::{PagedSequences, paged_attention};
use arpo_torch::shim::{causal_from_the_end, counts_from_the_end};
use std::cell::OnceCell;
use tch::{Device, Kind, Tensor};

/// Older tokens are kept apart in multiples of so many: each multiple, with each number of new ones rounded up, costs the
/// library that attends to them a search for its plan, once for each thread.
const OLDER_STEP: usize = 2048;

/// One sequence of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) pages: &'a [PageId],
    /// Tokens that were there before.
    pub(crate) past: usize,
    /// Tokens added in this pass.
    pub(crate) new: usize,
}

/// Where the tokens of a pass are written and what they see: the same for all layers.
#[derive(Debug)]
pub(crate) struct Routes {
    slots: Slots,
    /// In the order of the rows.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    rows: i64,
    kind: PartKind,
}

#[derive(Debug)]
enum PartKind {
    /// Sequences with one new token each.
    Steps(Steps),
    /// One sequence with several.
    Several(Several),
    /// Sequences with several each.
    Together(Together),
}

#[derive(Debug)]
struct Several {
    /// Pages that all of its new tokens see, if they are kept apart.
    older: Option<Tensor>, // [1, pages], i64
    /// The rest, with the new tokens at the end, and how many tokens are in them.
    newer: Tensor, // [1, pages], i64
    tokens: i64,
    mask: Option<Tensor>,
}

#[derive(Debug)]
struct Together {
    pages: Tensor,  // [sequences, pages], i64
    spread: Tensor, // [sequences * most]: the row that stands at each place
    back: Tensor,   // [rows]: the place of each row
    mask: Tensor,   // [sequences, 1, most, tokens]: 0 for what is seen
    most: i64,
}

#[derive(Debug)]
struct Steps {
    table: Tensor,   // [sequences, pages], i32
    lengths: Tensor, // [sequences], i32
    sequences: Option<PagedSequences>,
    /// What attention without the kernel needs.
    plain: OnceCell<PlainSteps>,
}

#[derive(Debug)]
struct PlainSteps {
    pages: Tensor, // [sequences, pages], i64
    mask: Tensor,  // [sequences, 1, 1, tokens]: 0 for what is there
}

impl Routes {
    /// Routes for sequences in the order of their rows; those with one new token should stand together.
    pub(crate) fn new(spans: &[Span], cache: &KeyValueCache, device: Device) -> Self {
        let page_tokens = cache.page_tokens();
        let tokens =
            spans.iter().flat_map(|span| (span.past..span.past + span.new).map(|at| (span.pages, at)));
        let slots = Slots::new(tokens, page_tokens, device);
        let fill_up = !counts_from_the_end(cache.kind(), device);
        let alike = |a: &Span, b: &Span| (a.new == 1) == (b.new == 1) && (a.new == 1 || fill_up);
        let parts = spans.chunk_by(alike).map(|group| {
            let kind = match group {
                [span] if span.new > 1 => PartKind::Several(Several::new(span, cache, device)),
                [first, ..] if first.new > 1 => PartKind::Together(Together::new(group, cache, device)),
                group => PartKind::Steps(Steps::new(group, cache, device)),
            };
            Part { rows: group.iter().map(|span| span.new as i64).sum(), kind }
        });
        Self { slots, parts: parts.collect() }
    }

    /// Writes the new keys and values of a layer and attends: `[tokens, heads * width]`.
    pub(crate) fn attend(&self, cache: &KeyValueCache, layer: usize, projected: &Projected) -> Tensor {
        // all are written before any is read: sequences of one pass may share pages
        let q = cache.write(layer, projected, &self.slots);
        let mut first = 0;
        let mut results: Vec<Tensor> = self
            .parts
            .iter()
            .map(|part| {
                let q = q.narrow(0, first, part.rows);
                first += part.rows;
                match &part.kind {
                    PartKind::Steps(steps) => steps.attend(cache, layer, &q),
                    PartKind::Several(several) => several.attend(cache, layer, &q),
                    PartKind::Together(together) => together.attend(cache, layer, &q),
                }
            })
            .collect();
        match results.len() {
            1 => results.remove(0),
            _ => Tensor::cat(&results, 0),
        }
    }
}

/// Pages of each sequence, one row each, filled up with page 0, which masks hide; and how many there are in a row.
fn page_table(group: &[Span], page_tokens: usize) -> (Vec<i32>, usize) {
    let used = |span: &Span| (span.past + span.new).div_ceil(page_tokens);
    let most = group.iter().map(used).max().unwrap_or(0);
    let row = |span: &Span| {
        let pages = span.pages[..used(span)].iter().map(|&page| page as i32).collect::<Vec<_>>();
        pages.into_iter().chain(std::iter::repeat_n(0, most - used(span)))
    };
    (group.iter().flat_map(row).collect(), most)
}

/// 0 where a place is at most the last that is seen, minus infinity behind it.
fn seen_up_to(last: &Tensor, tokens: i64) -> Tensor {
    let places = Tensor::arange(tokens, (last.kind(), last.device()));
    let hidden = places.gt_tensor(&last.unsqueeze(-1));
    Tensor::zeros_like(&hidden).to_kind(Kind::Float).masked_fill(&hidden, f64::NEG_INFINITY)
}

impl Together {
    fn new(group: &[Span], cache: &KeyValueCache, device: Device) -> Self {
        let (table, pages) = page_table(group, cache.page_tokens());
        let most = group.iter().map(|span| span.new).max().unwrap_or(0);
        let (mut spread, mut back, mut last) = (vec![], vec![], vec![]);
        for (number, span) in group.iter().enumerate() {
            let first = back.len() as i64;
            for at in 0..most {
                let filled = at < span.new;
                // what fills up repeats the first row; nobody reads what comes of it
                spread.push(if filled { first + at as i64 } else { first });
                last.push((span.past + if filled { at } else { 0 }) as i64);
                if filled {
                    back.push((number * most + at) as i64);
                }
            }
        }
        let numbers = |numbers: &[i64]| Tensor::from_slice(numbers).to_device(device);
        let (sequences, most) = (group.len() as i64, most as i64);
        let last = numbers(&last).view([sequences, 1, most]);
        let mask = seen_up_to(&last, (pages * cache.page_tokens()) as i64).to_kind(cache.kind());
        let pages = Tensor::from_slice(&table).view([sequences, -1]).to_kind(Kind::Int64).to_device(device);
        Self { pages, spread: numbers(&spread), back: numbers(&back), mask, most }
    }

    fn attend(&self, cache: &KeyValueCache, layer: usize, q: &Tensor) -> Tensor {
        let (sequences, heads, width) = (self.pages.size()[0], q.size()[1], q.size()[2]);
        let q = q.index_select(0, &self.spread).view([sequences, self.most, heads, width]).transpose(1, 2);
        let [k, v] = cache.read(layer, &self.pages).map(|x| {
            let (shared, tokens) = (x.size()[1], x.size()[2]);
            let by_head = x.unsqueeze(2).expand([sequences, shared, heads / shared, tokens, width], false);
            by_head.reshape([sequences, heads, tokens, width])
        });
        let attended =
            Tensor::scaled_dot_product_attention(&q, &k, &v, Some(&self.mask), 0.0, false, None, false);
        attended.transpose(1, 2).reshape([sequences * self.most, -1]).index_select(0, &self.back)
    }
}

impl Steps {
    fn new(group: &[Span], cache: &KeyValueCache, device: Device) -> Self {
        let (table, _) = page_table(group, cache.page_tokens());
        let lengths: Vec<i32> = group.iter().map(|span| (span.past + span.new) as i32).collect();
        let table = Tensor::from_slice(&table).view([group.len() as i64, -1]).to_device(device);
        let lengths = Tensor::from_slice(&lengths).to_device(device);
        let longest = group.iter().map(|span| span.past + span.new).max().unwrap_or(0);
        let sequences = PagedSequences::new(&table, &lengths, longest);
        Self { table, lengths, sequences, plain: OnceCell::new() }
    }

    fn attend(&self, cache: &KeyValueCache, layer: usize, q: &Tensor) -> Tensor {
        let [keys, values] = cache.layer(layer);
        let fast = self.sequences.as_ref().and_then(|sequences| paged_attention(q, keys, values, sequences));
        fast.unwrap_or_else(|| {
            let plain = self.plain.get_or_init(|| self.plain(cache));
            let [k, v] = cache.read(layer, &plain.pages);
            let (sequences, width) = (q.size()[0], q.size()[2]);
            // the heads that share a key are rows of one product
            let q = q.view([sequences, k.size()[1], -1, width]);
            let attended =
                Tensor::scaled_dot_product_attention(&q, &k, &v, Some(&plain.mask), 0.0, false, None, false);
            attended.reshape([sequences, -1])
        })
    }
}

impl Steps {
    fn plain(&self, cache: &KeyValueCache) -> PlainSteps {
        let (kind, tokens) = (cache.kind(), self.table.size()[1] * cache.page_tokens() as i64);
        let last = (self.lengths.to_kind(Kind::Int64) - 1).view([-1, 1, 1]);
        let mask = seen_up_to(&last, tokens).to_kind(kind);
        PlainSteps { pages: self.table.to_kind(Kind::Int64), mask }
    }
}

impl Several {
    fn new(span: &Span, cache: &KeyValueCache, device: Device) -> Self {
        let (all, page_tokens) = ((span.past + span.new), cache.page_tokens());
        let from_the_end = counts_from_the_end(cache.kind(), device);
        let apart = if from_the_end && OLDER_STEP.is_multiple_of(page_tokens) {
            span.past / OLDER_STEP * OLDER_STEP
        } else {
            0
        };
        let pages = |pages: &[PageId]| {
            let pages: Vec<i64> = pages.iter().map(|&page| page as i64).collect();
            Tensor::from_slice(&pages).unsqueeze(0).to_device(device)
        };
        let (older, newer) = span.pages[..all.div_ceil(page_tokens)].split_at(apart / page_tokens);
        // a fresh sequence needs no mask, nor does attention that counts from the end
        let mask = (span.past > 0 && !from_the_end).then(|| {
            let last = Tensor::arange_start(span.past as i64, all as i64, (Kind::Int64, device));
            Tensor::arange(all as i64, (Kind::Int64, device)).unsqueeze(0).le_tensor(&last.unsqueeze(1))
        });
        let older = (!older.is_empty()).then(|| pages(older));
        Self { older, newer: pages(newer), tokens: (all - apart) as i64, mask }
    }

    /// Queries `[new, heads, width]`, each seeing up to itself: `[new, heads * width]`.
    fn attend(&self, cache: &KeyValueCache, layer: usize, q: &Tensor) -> Tensor {
        let [k, v] = cache.read(layer, &self.newer).map(|x| x.narrow(2, 0, self.tokens));
        let (new, heads, shared, width) = (q.size()[0], q.size()[1], k.size()[1], q.size()[2]);
        let q = q.transpose(0, 1).unsqueeze(0);
        let attended = match &self.mask {
            None if counts_from_the_end(q.kind(), q.device()) => {
                let older = self.older.as_ref().map(|pages| cache.read(layer, pages));
                causal_from_the_end(&q, older.as_ref(), [&k, &v])
            }
            None => {
                let no_mask = None::<&Tensor>;
                Tensor::scaled_dot_product_attention(&q, &k, &v, no_mask, 0.0, true, None, heads != shared)
            }
            Some(mask) => {
                // the heads that share a key are rows of one product
                let group = heads / shared;
                let q = q.reshape([1, shared, group * new, width]);
                let mask = mask.repeat([group, 1]);
                Tensor::scaled_dot_product_attention(&q, &k, &v, Some(&mask), 0.0, false, None, false)
            }
        };
        attended.reshape([heads, new, width]).transpose(0, 1).reshape([new, -1])
    }
}
