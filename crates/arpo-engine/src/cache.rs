//! The paged kv cache: two tensors of pages for each layer.

use crate::pages::PageId;
use arpo_model::Projected;
use arpo_model::config::TextConfig;
use arpo_model::model::Model;
use arpo_torch::kernels::Kernels;
use arpo_torch::kernels::paged::PageSlots;
use tch::{Device, Kind, Tensor};

/// The pages of all layers.
#[derive(Debug)]
pub(crate) struct KvCache {
    /// Keys and values, each `[pages, kv_heads, page_tokens, width]`.
    layers: Vec<[Tensor; 2]>,
    page_tokens: usize,
    kernels: Kernels,
    decodes_in_place: bool,
}

/// Where new tokens are written: the page of each, and its offset in it.
#[derive(Debug)]
pub(crate) struct Slots {
    pages: Tensor,   // [tokens]
    offsets: Tensor, // [tokens]
}

impl Slots {
    /// The slots of tokens, each given by its sequence's pages and its index in the sequence.
    pub(crate) fn new<'a>(
        tokens: impl Iterator<Item = (&'a [PageId], usize)>,
        page_tokens: usize,
        device: Device,
    ) -> Self {
        let (pages, offsets): (Vec<i64>, Vec<i64>) =
            tokens.map(|(pages, at)| (pages[at / page_tokens] as i64, (at % page_tokens) as i64)).unzip();
        let [pages, offsets] = [pages, offsets].map(|values| Tensor::from_slice(&values).to_device(device));
        Self { pages, offsets }
    }
}

impl KvCache {
    /// On the model's device, in its type.
    pub(crate) fn new(model: &Model, pages: usize, page_tokens: usize) -> Self {
        let (config, weights) = (&model.config().text, model.weights());
        let size = [pages as i64, config.kv_heads, page_tokens as i64, config.head_width];
        let layer = |_| [(); 2].map(|()| Tensor::zeros(size, (weights.kind(), model.device())));
        let layers: Vec<[Tensor; 2]> = (0..config.layers).map(layer).collect();
        let kernels = weights.kernels().clone();
        let paged = layers.first().and_then(|[keys, _]| kernels.paged(keys));
        let decodes_in_place = paged.is_some_and(|paged| {
            paged.attends(config.heads, config.kv_heads, config.head_width, page_tokens)
        });
        Self { layers, page_tokens, kernels, decodes_in_place }
    }

    /// Whether a kernel attends to the pages where they are.
    pub(crate) fn decodes_in_place(&self) -> bool {
        self.decodes_in_place
    }

    /// The kernels of its device.
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Bytes of one page over all layers.
    pub(crate) fn page_bytes(config: &TextConfig, page_tokens: usize, kind: Kind) -> u64 {
        let values = 2 * config.layers as i64 * config.kv_heads * page_tokens as i64 * config.head_width;
        values as u64 * kind.elt_size_in_bytes() as u64
    }

    pub(crate) fn kind(&self) -> Kind {
        self.layers[0][0].kind()
    }

    pub(crate) fn page_tokens(&self) -> usize {
        self.page_tokens
    }

    /// Keys and values of a layer.
    pub(crate) fn layer(&self, layer: usize) -> &[Tensor; 2] {
        &self.layers[layer]
    }

    /// Writes the new keys and values of a layer, and returns the queries `[tokens, heads, width]`.
    pub(crate) fn write(&self, layer: usize, projected: &Projected, slots: &Slots) -> Tensor {
        let [keys, values] = &self.layers[layer];
        let page_slots = PageSlots { keys, values, pages: &slots.pages, offsets: &slots.offsets };
        projected.split_into(page_slots).unwrap_or_else(|| {
            let [q, k, v] = projected.split();
            for (pool, new) in [(keys, k), (values, v)] {
                let mut by_token = pool.transpose(1, 2);
                let _ = by_token.index_put_(&[Some(&slots.pages), Some(&slots.offsets)], &new, false);
            }
            q
        })
    }

    /// The contents of a layer's pages, keys and values each `[sequences, kv_heads, tokens, width]`, for `pages`
    /// `[sequences, pages]`.
    pub(crate) fn read(&self, layer: usize, pages: &Tensor) -> [Tensor; 2] {
        let (sequences, count) = (pages.size()[0], pages.size()[1]);
        let [keys, values] = &self.layers[layer];
        if sequences == 1
            && let Some(paged) = self.kernels.paged(keys)
            && let Some(read) = paged.gather(keys, values, &pages.get(0))
        {
            return read;
        }
        self.layers[layer].each_ref().map(|pool| {
            let size = pool.size();
            let (heads, tokens, width) = (size[1], size[2], size[3]);
            let read = pool.index_select(0, &pages.flatten(0, -1));
            let by_head = read.view([sequences, count, heads, tokens, width]).transpose(1, 2);
            by_head.reshape([sequences, heads, count * tokens, width])
        })
    }
}
