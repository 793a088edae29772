//! What callers hand to the engine and get back: options, completions, errors, counters.

use crate::sequence::FinishReason;
use arpo_core::trajectory::PolicyVersion;
use arpo_image::ImageError;
use arpo_model::ModelError;
use arpo_tokenizer::TokenizerError;

/// Options of the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineOptions {
    /// Bytes of the kv cache.
    pub cache_bytes: u64,
    /// Bytes of the cache for image features.
    pub feature_bytes: usize,
    /// The vision tower is frozen: cached image features stay valid across weight updates.
    pub frozen_vision: bool,
    /// Tokens in a page of the cache.
    pub page_tokens: usize,
    /// Most requests that run concurrently.
    pub max_running: usize,
    /// Most new prompt tokens in one pass, unless a single prompt has more.
    pub max_prefill_tokens: usize,
    /// Tokens that may not occur in a response; the learner masks them too.
    pub forbidden: Vec<u32>,
}

/// Identifies a request of this engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Its text, if the engine has a tokenizer, without the end token.
    pub text: String,
    /// The sampled tokens.
    pub tokens: Vec<u32>,
    /// Its log-probabilities at the sampling temperature.
    pub logp: Vec<f32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The version of the weights that sampled it.
    pub version: PolicyVersion,
    /// Prompt tokens found in the cache.
    pub cache_hits: usize,
}

/// Errors of the engine and its requests.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The model rejects the input.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A screenshot cannot be processed.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The sampled tokens cannot be decoded.
    #[error(transparent)]
    Decode(#[from] TokenizerError),
    /// Invalid sampling parameters.
    #[error("{0}")]
    Sampling(String),
    /// The request does not fit into the cache.
    #[error(
        "a request of {tokens} tokens needs {needed} pages of the cache, which has {pages}: give it more memory"
    )]
    TooLong {
        /// Tokens of the prompt and the longest response.
        tokens: usize,
        /// Pages they need.
        needed: usize,
        /// Pages of the cache.
        pages: usize,
    },
    /// The model's logits are NaN or infinite.
    #[error("the model's logits are not finite: its weights are corrupt, or a temperature is too small")]
    NonFinite,
    /// Weights and cache cannot change while requests are pending.
    #[error("weights and KV cache cannot change while {0} requests are pending")]
    Busy(usize),
}

/// Counters of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineCounts {
    /// Forward passes.
    pub passes: u64,
    /// Tokens computed.
    pub computed: u64,
    /// Prompt tokens found in the cache.
    pub cache_hits: u64,
    /// Tokens recomputed because their pages were evicted.
    pub recomputed: u64,
    /// Tokens sampled.
    pub sampled: u64,
    /// Times a running sequence was preempted for lack of pages.
    pub preempted: u64,
}

/// What the engine holds at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineLoad {
    /// Requests in the batch.
    pub running: usize,
    /// Requests that wait for a place or for pages.
    pub waiting: usize,
    /// Pages of the cache.
    pub pages: usize,
    /// Pages of running requests; the others are free or can be evicted.
    pub leased_pages: usize,
}
