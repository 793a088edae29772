//! Continuous batching: every pass computes the new tokens of all running requests (one token that was just sampled, or
//! a whole prompt), and samples one token for each.
//!
//! A sequence's keys and values stay in the cache when its response is complete, so the next turn of the episode
//! computes only its new screenshot and text. When pages run out, unused pages are evicted first, then the youngest
//! running sequence is preempted and recomputed later.

use crate::attention::{AttentionPlan, Span};
use crate::cache::KvCache;
use crate::image_features::{FeatureCache, FeatureStore, Screenshot};
use crate::interface::{Completion, EngineCounts, EngineError, EngineLoad, EngineOptions, RequestId};
use crate::pages::PageAllocator;
use crate::sampling::{SampledToken, SamplingBatch};
use crate::sequence::{FinishReason, Request, Sequence};
use arpo_core::trajectory::PolicyVersion;
use arpo_image::ImageProcessor;
use arpo_model::ModelError;
use arpo_model::checkpoint::Weights;
use arpo_model::distribution::Forbidden;
use arpo_model::model::{Model, ModelInput};
use arpo_model::positions::{Grid, Positions};
use arpo_tokenizer::{Tokenizer, TokenizerError};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use tch::{Tensor, no_grad};

/// The rollout engine.
#[derive(Debug)]
pub struct Engine {
    model: Model,
    options: EngineOptions,
    forbidden: Forbidden,
    version: PolicyVersion,
    allocator: PageAllocator,
    /// Allocated when it is first needed, freed by [`Engine::release_cache`].
    cache: Option<KvCache>,
    features: FeatureCache,
    waiting: VecDeque<(RequestId, Sequence)>,
    running: Vec<(RequestId, Sequence)>,
    next_id: u64,
    detokenizer: Option<Detokenizer>,
    counts: EngineCounts,
}

type Decode = dyn Fn(&[u32]) -> Result<String, TokenizerError> + Send + Sync;

/// Decodes tokens into text.
struct Detokenizer(Box<Decode>);

impl fmt::Debug for Detokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Detokenizer")
    }
}

impl Engine {
    /// An engine around a model.
    pub fn new(
        model: Model,
        processor: ImageProcessor,
        options: EngineOptions,
        version: PolicyVersion,
    ) -> Self {
        let (text, kind) = (&model.config().text, model.weights().kind());
        let page_bytes = KvCache::page_bytes(text, options.page_tokens, kind);
        let pages = (options.cache_bytes / page_bytes) as usize;
        Self {
            allocator: PageAllocator::new(pages, options.page_tokens),
            cache: None,
            features: FeatureCache::new(FeatureStore::new(
                processor,
                options.feature_bytes,
                options.frozen_vision,
            )),
            forbidden: Forbidden::new(&options.forbidden, model.device(), model.weights().kernels()),
            model,
            options,
            version,
            waiting: VecDeque::new(),
            running: vec![],
            next_id: 0,
            detokenizer: None,
            counts: EngineCounts::default(),
        }
    }

    /// Decodes responses with a tokenizer.
    #[must_use]
    pub fn with_tokenizer(self, tokenizer: Arc<Tokenizer>) -> Self {
        self.with_detokenizer(move |tokens| tokenizer.decode(tokens, true))
    }

    /// Decodes responses with a function.
    #[must_use]
    pub fn with_detokenizer(
        self,
        decode: impl Fn(&[u32]) -> Result<String, TokenizerError> + Send + Sync + 'static,
    ) -> Self {
        Self { detokenizer: Some(Detokenizer(Box::new(decode))), ..self }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The version of its weights.
    pub fn version(&self) -> PolicyVersion {
        self.version
    }

    /// The cache of image features, for a learner with a frozen vision tower.
    pub fn features(&self) -> FeatureCache {
        self.features.clone()
    }

    /// Its counters.
    pub fn counts(&self) -> EngineCounts {
        EngineCounts { recomputed: self.allocator.recomputed(), ..self.counts }
    }

    /// Frees the kv cache until the next pass; its contents are lost. An error while requests are pending.
    pub fn release_cache(&mut self) -> Result<(), EngineError> {
        if self.pending() > 0 {
            return Err(EngineError::Busy(self.pending()));
        }
        self.allocator.evict_unused();
        self.features.lock().invalidate();
        self.cache = None;
        Ok(())
    }

    /// The kv cache, allocated if necessary.
    fn cache(&mut self) -> &KvCache {
        let (pages, page_tokens) = (self.allocator.page_count(), self.options.page_tokens);
        self.cache.get_or_insert_with(|| KvCache::new(&self.model, pages, page_tokens))
    }

    /// Number of waiting and running requests.
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// Queues a request, to be completed by later passes.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, EngineError> {
        if let Some(problem) = request.sampling.problem() {
            return Err(EngineError::Sampling(problem));
        }
        let features = self.features.lock();
        let grids: Vec<Grid> =
            request.screenshots.iter().map(|one| features.grid(one)).collect::<Result<_, _>>()?;
        let prompt = self.model.positions(&ModelInput { tokens: &request.tokens, grids: &grids })?;
        if request.tokens.is_empty() {
            return Err(ModelError::Input("an empty prompt".into()).into());
        }
        self.model.check_tokens(&request.forced)?;
        let tokens = request.tokens.len() + request.sampling.max_tokens;
        let (needed, pages) = (self.allocator.pages_for(tokens), self.allocator.page_count());
        if needed > pages {
            return Err(EngineError::TooLong { tokens, needed, pages });
        }
        let config = self.model.config();
        let sequence =
            Sequence::new(request, &grids, config.vision.merge as usize, config.image_token, prompt);
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.waiting.push_back((id, sequence));
        Ok(id)
    }

    /// Loads new weights and clears the caches, whose contents depend on the old ones. Weights that share this model's
    /// memory only get the new version. An error while requests are pending.
    pub fn update(&mut self, weights: &Weights, version: PolicyVersion) -> Result<(), EngineError> {
        if self.pending() > 0 {
            return Err(EngineError::Busy(self.pending()));
        }
        self.model.weights().copy_from(weights)?;
        self.allocator.evict_unused();
        self.features.lock().invalidate();
        self.version = version;
        Ok(())
    }

    /// What it holds at the moment.
    pub fn load(&self) -> EngineLoad {
        EngineLoad {
            running: self.running.len(),
            waiting: self.waiting.len(),
            pages: self.allocator.page_count(),
            leased_pages: self.allocator.leased_count(),
        }
    }

    /// Tokens that fit into the cache.
    pub fn cache_tokens(&self) -> usize {
        self.allocator.page_count() * self.options.page_tokens
    }

    /// Cancels one request, between passes. What it has computed stays in the prefix cache; its pages can be evicted.
    pub fn cancel(&mut self, id: RequestId) {
        self.waiting.retain(|(other, _)| *other != id);
        if let Some(at) = self.running.iter().position(|(other, _)| *other == id) {
            let (_, mut sequence) = self.running.remove(at);
            self.release(&mut sequence);
        }
    }

    /// Cancels all requests and clears the caches.
    pub fn cancel_all(&mut self) {
        self.waiting.clear();
        for (_, mut sequence) in std::mem::take(&mut self.running) {
            self.release(&mut sequence);
        }
        self.allocator.evict_unused();
        self.features.lock().invalidate();
    }

    /// One forward pass. Returns the responses it completed.
    pub fn pass(&mut self) -> Result<Vec<(RequestId, Completion)>, EngineError> {
        self.pass_observed(|_, _, _| ())
    }

    /// The same; `observe` sees every token as it is sampled, also the last one of a response, and how many tokens of its
    /// prompt were found in the cache.
    pub fn pass_observed(
        &mut self,
        mut observe: impl FnMut(RequestId, SampledToken, usize),
    ) -> Result<Vec<(RequestId, Completion)>, EngineError> {
        self.reserve_slots();
        self.admit();
        if self.running.is_empty() {
            return Ok(vec![]);
        }
        let sampler = {
            let mut rows: Vec<_> = self.running.iter_mut().map(|(_, one)| one.next_sampler()).collect();
            SamplingBatch::new(&mut rows, self.model.device(), &self.forbidden)
        };
        let logits = no_grad(|| self.logits())?;
        let sampled = no_grad(|| sampler.sample(&logits, &self.forbidden));
        if sampled.iter().any(|sampled| sampled.logp.is_nan()) {
            return Err(EngineError::NonFinite);
        }
        let (mut completed, mut failed) = (Vec::new(), None);
        let mut still_running = Vec::with_capacity(self.running.len());
        for ((id, mut sequence), sampled) in std::mem::take(&mut self.running).into_iter().zip(sampled) {
            sequence.cached = sequence.keys().len();
            self.counts.sampled += 1;
            let finished = sequence.push(&sampled);
            observe(id, sampled, sequence.cache_hits.unwrap_or(0));
            match finished {
                None => still_running.push((id, sequence)),
                Some(finish_reason) => match self.complete(sequence, finish_reason) {
                    Ok(completion) => completed.push((id, completion)),
                    // returned once the others are running again, so that cancelling them frees their pages
                    Err(error) => failed = failed.or(Some(error)),
                },
            }
        }
        self.running = still_running;
        failed.map_or(Ok(completed), Err)
    }

    /// Reserves a slot for the token each running sequence has just sampled; the youngest are preempted if pages run
    /// out.
    fn reserve_slots(&mut self) {
        let mut reserved = 0;
        while reserved < self.running.len() {
            let sequence = &mut self.running[reserved].1;
            let mut lease = sequence.lease.take().expect("running sequences have pages");
            let fits = self.allocator.extend(&mut lease, sequence.keys());
            sequence.lease = Some(lease);
            if fits {
                reserved += 1;
                continue;
            }
            let (id, mut youngest) = self.running.pop().expect("at least this one is running");
            self.counts.preempted += 1;
            self.release(&mut youngest);
            self.waiting.push_front((id, youngest));
        }
    }

    fn admit(&mut self) {
        let mut new_tokens = 0;
        while self.running.len() < self.options.max_running
            && let Some((id, mut sequence)) = self.waiting.pop_front()
        {
            let mut lease = self.allocator.lease(sequence.keys());
            let cache_hits = lease.tokens();
            let new = sequence.keys().len() - cache_hits;
            let over_budget = new_tokens > 0 && new_tokens + new > self.options.max_prefill_tokens;
            let admitted = !over_budget && self.allocator.extend(&mut lease, sequence.keys());
            sequence.lease = Some(lease);
            sequence.cached = cache_hits;
            if !admitted {
                self.release(&mut sequence);
                self.waiting.push_front((id, sequence));
                break;
            }
            new_tokens += new;
            self.counts.cache_hits += cache_hits as u64;
            sequence.cache_hits.get_or_insert(cache_hits);
            self.running.push((id, sequence));
        }
    }

    /// Logits for the next token of each running sequence: `[running, vocabulary]`.
    fn logits(&mut self) -> Result<Tensor, EngineError> {
        let tokens: Vec<u32> = self.running.iter().flat_map(|(_, one)| one.new_tokens()).copied().collect();
        self.counts.passes += 1;
        self.counts.computed += tokens.len() as u64;
        self.cache();
        let device = self.model.device();
        let positions: Vec<Positions> = self.running.iter().map(|(_, one)| one.new_positions()).collect();
        let layout = self.model.text().layout(&positions, device);
        let spans: Vec<Span> = self
            .running
            .iter()
            .map(|(_, one)| Span {
                pages: one.lease.as_ref().map_or(&[], |lease| lease.pages()),
                past: one.cached,
                new: one.new_tokens().len(),
            })
            .collect();
        let cache = self.cache.as_ref().expect("allocated above");
        let plan = AttentionPlan::new(&spans, cache, device);
        let ends: Vec<i64> = spans
            .iter()
            .scan(0, |end, span| {
                *end += span.new as i64;
                Some(*end - 1)
            })
            .collect();
        let ends = Tensor::from_slice(&ends).to_device(device);
        // last: transfers to the device after this one, now only the tokens, wait for the encoding
        let features = self.new_features()?;
        let embedded = self.model.embed(&tokens, features.as_ref())?;
        let text = self.model.text();
        let hidden = text.forward_with_attention(embedded, &layout, &ends, |layer, projected| {
            plan.attend(cache, layer, projected)
        });
        Ok(text.logits(&hidden))
    }

    /// The image features among the new tokens, concatenated.
    fn new_features(&self) -> Result<Option<Tensor>, EngineError> {
        let needed: Vec<_> = self
            .running
            .iter()
            .flat_map(|(_, one)| {
                one.needed_features().map(move |needed| (&one.screenshots[needed.image], needed))
            })
            .collect();
        if needed.is_empty() {
            return Ok(None);
        }
        let screenshots: Vec<&Screenshot> = needed.iter().map(|(screenshot, _)| *screenshot).collect();
        let features = self.features.lock().features(&self.model, &screenshots)?;
        let slices = features.iter().zip(&needed);
        let slices: Vec<Tensor> = slices
            .map(|(features, (_, needed))| features.narrow(0, needed.first as i64, needed.count as i64))
            .collect();
        Ok(Some(Tensor::cat(&slices, 0)))
    }

    fn complete(
        &mut self,
        mut sequence: Sequence,
        finish_reason: FinishReason,
    ) -> Result<Completion, EngineError> {
        self.release(&mut sequence);
        let cache_hits = sequence.cache_hits.unwrap_or(0);
        let (tokens, logp) = sequence.into_response();
        let text = match &self.detokenizer {
            Some(Detokenizer(decode)) => decode(&tokens)?,
            None => String::new(),
        };
        Ok(Completion { text, tokens, logp, finish_reason, version: self.version, cache_hits })
    }

    fn release(&mut self, sequence: &mut Sequence) {
        if let Some(lease) = sequence.lease.take() {
            let keys = &sequence.keys()[..lease.tokens()];
            self.allocator.release(lease, keys);
        }
        sequence.cached = 0;
    }
}
