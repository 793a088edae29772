//! Many requests at once: every pass computes the new tokens of all running ones, whatever they are (one token that was
//! just drawn, or a whole prompt), and draws one token for each.
//!
//! A sequence's keys and values stay in the cache when its response is complete, so the next turn of the episode pays
//! for its new screenshot and words only. When pages run out, what nobody uses is forgotten first, then the youngest
//! running sequence waits and is computed again later.

use crate::attention::{Routes, Span};
use crate::cache::KeyValueCache;
use crate::pages::PageTable;
use crate::pictures::{FeatureStore, KnownFeatures, Screenshot};
use crate::sampling::Draft;
use crate::sequence::{Ended, Request, Sequence};
use crate::single::{NewToken, SingleTokens};
use arpo_core::trajectory::PolicyVersion;
use arpo_image::{ImageError, ImageProcessor};
use arpo_model::ModelError;
use arpo_model::checkpoint::Weights;
use arpo_model::distribution::Forbidden;
use arpo_model::model::{Model, Sequence as ModelSequence};
use arpo_model::positions::{Grid, Positions};
use arpo_tokenizer::{Tokenizer, TokenizerError};
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use tch::{Tensor, no_grad};

/// How the engine computes.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineOptions {
    /// Bytes for keys and values.
    pub cache_bytes: u64,
    /// Bytes for features of pictures.
    pub feature_bytes: usize,
    /// The vision tower's weights stay as they are when others come: its features are kept.
    pub fixed_vision: bool,
    /// Tokens in a page of the cache.
    pub page_tokens: usize,
    /// Requests computed at once.
    pub most_running: usize,
    /// New prompt tokens in one pass, unless a single prompt has more.
    pub prompt_tokens: usize,
    /// Tokens that may not occur in a response; the learner leaves them out too.
    pub forbidden: Vec<u32>,
}

/// Names a request of this engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// In words, if the engine was given a tokenizer; the end token is left out.
    pub text: String,
    /// What was drawn.
    pub tokens: Vec<u32>,
    /// Its log-probabilities at the sampling temperature.
    pub logp: Vec<f32>,
    /// Why it ended.
    pub ended: Ended,
    /// The weights that drew it.
    pub version: PolicyVersion,
    /// Prompt tokens that were in the cache.
    pub found: usize,
}

/// Why a request cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The model cannot read it.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A screenshot cannot be seen.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// What was drawn has no words.
    #[error(transparent)]
    Words(#[from] TokenizerError),
    /// How to sample contradicts itself.
    #[error("{0}")]
    Sampling(String),
    /// It would never fit.
    #[error(
        "a request of {tokens} tokens needs {needed} pages of the cache, which has {pages}: give it more memory"
    )]
    TooLong {
        /// Prompt and longest response.
        tokens: usize,
        /// For them.
        needed: usize,
        /// In all.
        pages: usize,
    },
    /// The model's logits are none.
    #[error("the model's logits are no numbers: its weights are broken, or a temperature is too small")]
    NoNumbers,
    /// New weights came while requests were running.
    #[error("the weights cannot change while {0} requests are running")]
    Busy(usize),
}

/// What the engine has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineCounts {
    /// Forward passes.
    pub passes: u64,
    /// Tokens computed.
    pub computed: u64,
    /// Prompt tokens found in the cache.
    pub found: u64,
    /// Tokens computed again that a cache without limit would have found.
    pub lost: u64,
    /// Tokens drawn.
    pub drawn: u64,
    /// Times a running sequence had to wait for want of pages.
    pub put_back: u64,
    /// Passes that were a single kernel.
    pub single: u64,
}

/// The rollout engine.
#[derive(Debug)]
pub struct Engine {
    model: Model,
    options: EngineOptions,
    forbidden: Forbidden,
    version: PolicyVersion,
    table: PageTable,
    /// Taken when it is first needed, and given back by [`Engine::rest`].
    cache: Option<KeyValueCache>,
    /// Made when it is first needed; none where there can be none.
    single: OnceCell<Option<SingleTokens>>,
    features: KnownFeatures,
    waiting: VecDeque<(RequestId, Sequence)>,
    running: Vec<(RequestId, Sequence)>,
    next_id: u64,
    text: Option<TextOf>,
    counts: EngineCounts,
}

type Decode = dyn Fn(&[u32]) -> Result<String, TokenizerError> + Send + Sync;

/// How tokens are put into words.
struct TextOf(Box<Decode>);

impl fmt::Debug for TextOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TextOf")
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
        let page_bytes = KeyValueCache::page_bytes(text, options.page_tokens, kind);
        let pages = (options.cache_bytes / page_bytes) as usize;
        Self {
            table: PageTable::new(pages, options.page_tokens),
            cache: None,
            single: OnceCell::new(),
            features: KnownFeatures::new(FeatureStore::new(
                processor,
                options.feature_bytes,
                options.fixed_vision,
            )),
            forbidden: Forbidden::new(&options.forbidden, model.device()),
            model,
            options,
            version,
            waiting: VecDeque::new(),
            running: vec![],
            next_id: 0,
            text: None,
            counts: EngineCounts::default(),
        }
    }

    /// With which it puts its responses into words.
    #[must_use]
    pub fn with_tokenizer(self, tokenizer: Arc<Tokenizer>) -> Self {
        self.with_text(move |tokens| tokenizer.decode(tokens, true))
    }

    /// The same with any way to do so.
    #[must_use]
    pub fn with_text(
        self,
        text: impl Fn(&[u32]) -> Result<String, TokenizerError> + Send + Sync + 'static,
    ) -> Self {
        Self { text: Some(TextOf(Box::new(text))), ..self }
    }

    /// The model it computes with.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What it makes of pictures, for a learner that does not train the vision tower.
    pub fn features(&self) -> KnownFeatures {
        self.features.clone()
    }

    /// What it has done so far.
    pub fn counts(&self) -> EngineCounts {
        EngineCounts { lost: self.table.lost(), ..self.counts }
    }

    /// Gives the memory for keys and values back until the next pass, between requests; what it holds is forgotten.
    pub fn rest(&mut self) -> Result<(), EngineError> {
        if self.unanswered() > 0 {
            return Err(EngineError::Busy(self.unanswered()));
        }
        self.table.forget_unused();
        self.features.lock().forget();
        // it knows where the cache lies
        self.single = OnceCell::new();
        self.cache = None;
        Ok(())
    }

    /// The memory for keys and values, taken if it is not there.
    fn cache(&mut self) -> &KeyValueCache {
        let (text, kind) = (&self.model.config().text, self.model.weights().kind());
        let (pages, device) = (self.table.page_count(), self.model.device());
        self.cache
            .get_or_insert_with(|| KeyValueCache::new(text, pages, self.options.page_tokens, kind, device))
    }

    /// Requests not yet answered.
    pub fn unanswered(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// Takes a request, to be answered by passes to come.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, EngineError> {
        if let Some(problem) = request.sampling.problem() {
            return Err(EngineError::Sampling(problem));
        }
        let features = self.features.lock();
        let grids: Vec<Grid> =
            request.screenshots.iter().map(|one| features.grid(one)).collect::<Result<_, _>>()?;
        let prompt = self.model.positions(&ModelSequence { tokens: &request.tokens, grids: &grids })?;
        if request.tokens.is_empty() {
            return Err(ModelError::Input("an empty prompt".into()).into());
        }
        self.model.check_tokens(&request.dictated)?;
        let tokens = request.tokens.len() + request.sampling.max_tokens;
        let (needed, pages) = (self.table.pages_for(tokens), self.table.page_count());
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

    /// Takes over new weights, between requests; what the cache holds was computed with the old ones and is forgotten.
    /// Weights that share this model's memory are only given their new version.
    pub fn update(&mut self, weights: &Weights, version: PolicyVersion) -> Result<(), EngineError> {
        if self.unanswered() > 0 {
            return Err(EngineError::Busy(self.unanswered()));
        }
        self.model.weights().copy_from(weights)?;
        self.table.forget_unused();
        self.features.lock().forget();
        self.version = version;
        Ok(())
    }

    /// Gives up all requests, and forgets what the cache holds.
    pub fn abandon(&mut self) {
        self.waiting.clear();
        for (_, mut sequence) in std::mem::take(&mut self.running) {
            self.release(&mut sequence);
        }
        self.table.forget_unused();
        self.features.lock().forget();
    }

    /// One pass. Returns the responses it completed.
    pub fn pass(&mut self) -> Result<Vec<(RequestId, Completion)>, EngineError> {
        self.make_room();
        self.admit();
        if self.running.is_empty() {
            return Ok(vec![]);
        }
        let draft = {
            let mut rows: Vec<_> = self.running.iter_mut().map(|(_, one)| one.next_choice()).collect();
            Draft::new(&mut rows, self.model.device())
        };
        let logits = no_grad(|| self.logits())?;
        let drawn = no_grad(|| draft.sample(&logits, &self.forbidden));
        if drawn.iter().any(|drawn| drawn.logp.is_nan()) {
            return Err(EngineError::NoNumbers);
        }
        let (mut completed, mut failed) = (Vec::new(), None);
        let mut going_on = Vec::with_capacity(self.running.len());
        for ((id, mut sequence), drawn) in std::mem::take(&mut self.running).into_iter().zip(drawn) {
            sequence.cached = sequence.keys().len();
            self.counts.drawn += 1;
            match sequence.push(drawn) {
                None => going_on.push((id, sequence)),
                Some(ended) => match self.complete(sequence, ended) {
                    Ok(completion) => completed.push((id, completion)),
                    // told when the others are in their places again: whoever gives them up gets their pages back
                    Err(error) => failed = failed.or(Some(error)),
                },
            }
        }
        self.running = going_on;
        failed.map_or(Ok(completed), Err)
    }

    /// A place for the token each running sequence has just drawn; the youngest wait if there are not enough.
    fn make_room(&mut self) {
        let mut ready = 0;
        while ready < self.running.len() {
            let sequence = &mut self.running[ready].1;
            let mut lease = sequence.lease.take().expect("running sequences have pages");
            let has_room = self.table.extend(&mut lease, sequence.keys());
            sequence.lease = Some(lease);
            if has_room {
                ready += 1;
                continue;
            }
            let (id, mut youngest) = self.running.pop().expect("there is at least this one");
            self.counts.put_back += 1;
            self.release(&mut youngest);
            self.waiting.push_front((id, youngest));
        }
    }

    fn admit(&mut self) {
        let mut new_tokens = 0;
        while self.running.len() < self.options.most_running
            && let Some((id, mut sequence)) = self.waiting.pop_front()
        {
            let mut lease = self.table.lease(sequence.keys());
            let found = lease.tokens();
            let more = sequence.keys().len() - found;
            let too_many = new_tokens > 0 && new_tokens + more > self.options.prompt_tokens;
            let admitted = !too_many && self.table.extend(&mut lease, sequence.keys());
            sequence.lease = Some(lease);
            sequence.cached = found;
            if !admitted {
                self.release(&mut sequence);
                self.waiting.push_front((id, sequence));
                break;
            }
            new_tokens += more;
            self.counts.found += found as u64;
            sequence.found.get_or_insert(found);
            self.running.push((id, sequence));
        }
    }

    /// Logits for what follows each running sequence: `[running, vocabulary]`.
    fn logits(&mut self) -> Result<Tensor, EngineError> {
        let tokens: Vec<u32> = self.running.iter().flat_map(|(_, one)| one.new_tokens()).copied().collect();
        self.counts.passes += 1;
        self.counts.computed += tokens.len() as u64;
        self.cache();
        if let Some(logits) = self.single_logits() {
            self.counts.single += 1;
            return Ok(logits);
        }
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
        let cache = self.cache.as_ref().expect("taken above");
        let routes = Routes::new(&spans, cache, device);
        let ends: Vec<i64> = spans
            .iter()
            .scan(0, |end, span| {
                *end += span.new as i64;
                Some(*end - 1)
            })
            .collect();
        let ends = Tensor::from_slice(&ends).to_device(device);
        // last: all that is sent to the device behind it, now only the tokens, waits for the encoding
        let features = self.new_features()?;
        let embedded = self.model.embed(&tokens, features.as_ref())?;
        let text = self.model.text();
        let hidden = text.forward_attending(embedded, &layout, &ends, |layer, projected| {
            routes.attend(cache, layer, projected)
        });
        Ok(text.logits(&hidden))
    }

    /// The same, if it is one sequence with one new token and there is a kernel for that.
    fn single_logits(&mut self) -> Option<Tensor> {
        let [(_, sequence)] = self.running.as_slice() else { return None };
        let &[token] = sequence.new_tokens() else { return None };
        if token == self.model.config().image_token {
            return None;
        }
        let text = self.model.text();
        let cache = self.cache.as_ref()?;
        self.single.get_or_init(|| SingleTokens::new(text, cache));
        let single = self.single.get_mut()?.as_mut()?;
        let position = sequence.new_positions().axes.map(|axis| axis[0]);
        let pages = sequence.lease.as_ref()?.pages();
        single.logits(text, NewToken { token, pages, past: sequence.cached, position }, self.model.device())
    }

    /// The features among the new tokens, one behind the other.
    fn new_features(&self) -> Result<Option<Tensor>, EngineError> {
        let needed: Vec<_> = self
            .running
            .iter()
            .flat_map(|(_, one)| {
                one.needed_features().map(move |part| (&one.screenshots[part.picture], part))
            })
            .collect();
        if needed.is_empty() {
            return Ok(None);
        }
        let screenshots: Vec<&Screenshot> = needed.iter().map(|(screenshot, _)| *screenshot).collect();
        let features = self.features.lock().features(&self.model, &screenshots)?;
        let parts = features.iter().zip(&needed);
        let parts: Vec<Tensor> = parts
            .map(|(features, (_, part))| features.narrow(0, part.first as i64, part.count as i64))
            .collect();
        Ok(Some(Tensor::cat(&parts, 0)))
    }

    fn complete(&mut self, mut sequence: Sequence, ended: Ended) -> Result<Completion, EngineError> {
        self.release(&mut sequence);
        let found = sequence.found.unwrap_or(0);
        let (tokens, logp) = sequence.into_response();
        let text = match &self.text {
            Some(TextOf(text)) => text(&tokens)?,
            None => String::new(),
        };
        Ok(Completion { text, tokens, logp, ended, version: self.version, found })
    }

    fn release(&mut self, sequence: &mut Sequence) {
        if let Some(lease) = sequence.lease.take() {
            let keys = &sequence.keys()[..lease.tokens()];
            self.table.release(lease, keys);
        }
        sequence.cached = 0;
    }
}
