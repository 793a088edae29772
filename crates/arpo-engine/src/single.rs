//! A pass with one sequence and one new token, which is most of what a single episode waits for: the whole of it is one
//! kernel, where there is one.

use crate::cache::KeyValueCache;
use crate::pages::PageId;
use arpo_model::text::TextModel;
use arpo_torch::kernels::token::WholeToken;
use tch::{Device, Tensor};

/// One new token behind others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewToken<'a> {
    pub(crate) token: u32,
    /// The sequence's, with a place for it.
    pub(crate) pages: &'a [PageId],
    /// Tokens before it.
    pub(crate) past: usize,
    /// Its place on each axis.
    pub(crate) position: [i64; 3],
}

/// The kernel for a model and a cache, both of which stay where they are.
#[derive(Debug)]
pub(crate) struct SingleTokens {
    whole: WholeToken,
    /// The pages last used, here and on the device: they are others only now and then.
    pages: Vec<PageId>,
    table: Tensor,
}

impl SingleTokens {
    /// `None` where there is no kernel.
    pub(crate) fn new(text: &TextModel, cache: &KeyValueCache) -> Option<Self> {
        let whole = text.whole_token(|layer| cache.layer(layer).each_ref()).ok()?;
        Some(Self { whole, pages: vec![], table: Tensor::new() })
    }

    /// Logits `[1, vocabulary]` of what follows it. `None`, and nothing computed, where the kernel cannot be used now.
    pub(crate) fn logits(&mut self, text: &TextModel, new: NewToken, device: Device) -> Option<Tensor> {
        if self.pages != new.pages {
            self.pages = new.pages.to_vec();
            let numbers: Vec<i32> = new.pages.iter().map(|&page| page as i32).collect();
            self.table = Tensor::from_slice(&numbers).to_device(device);
        }
        self.whole.logits(&text.embedding_of(new.token), &self.table, new.past, new.position)
    }
}
