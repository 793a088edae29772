//! One request in progress: its tokens so far, their positions and log-probabilities.

use crate::image_features::Screenshot;
use crate::pages::{Lease, TokenKey};
use crate::sampling::{RowSampler, SampledToken, Sampling, UniformStream};
use arpo_model::positions::{Grid, Positions};

/// A generation request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The whole prompt, with a placeholder for every feature of every image.
    pub tokens: Vec<u32>,
    /// Its images, in the order of their placeholders.
    pub screenshots: Vec<Screenshot>,
    /// How the response is sampled.
    pub sampling: Sampling,
    /// Forced as the first tokens of the response instead of sampling, scored with the model's log-probabilities. With
    /// them an untrained model can be made to play whole episodes.
    pub forced: Vec<u32>,
}

/// Why a response is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// It ends with a stop token.
    Stop,
    /// It has reached its maximum length.
    Length,
}

/// The placeholders of one image in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ImageSpan {
    first: usize,
    features: usize,
}

/// The features of an image that a pass needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeededFeatures {
    pub(crate) image: usize,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) screenshots: Vec<Screenshot>,
    sampling: Sampling,
    uniforms: UniformStream,
    forced: Vec<u32>,
    /// The prompt, then the sampled tokens.
    tokens: Vec<u32>,
    keys: Vec<TokenKey>,
    prompt: Positions,
    prompt_length: usize,
    image_spans: Vec<ImageSpan>,
    logp: Vec<f32>,
    /// Its pages, while it is running.
    pub(crate) lease: Option<Lease>,
    /// Tokens whose keys and values are in the cache.
    pub(crate) cached: usize,
    /// Prompt tokens found in the cache when it was first admitted.
    pub(crate) cache_hits: Option<usize>,
}

impl Sequence {
    /// From a request whose placeholders match its images.
    pub(crate) fn new(
        request: Request,
        grids: &[Grid],
        merge: usize,
        image_token: u32,
        prompt: Positions,
    ) -> Self {
        let Request { tokens, screenshots, sampling, forced } = request;
        let mut keys: Vec<TokenKey> = tokens.iter().map(|&token| TokenKey::token(token)).collect();
        let mut image_spans = Vec::with_capacity(grids.len());
        let mut at = 0;
        for (grid, screenshot) in grids.iter().zip(&screenshots) {
            at += tokens[at..].iter().position(|&token| token == image_token).unwrap_or(0);
            let features = grid.features(merge);
            for (key, feature) in
                keys[at..at + features].iter_mut().zip(TokenKey::features(&screenshot.digest))
            {
                *key = feature;
            }
            image_spans.push(ImageSpan { first: at, features });
            at += features;
        }
        let uniforms = sampling.uniforms();
        let prompt_length = tokens.len();
        Self {
            screenshots,
            sampling,
            uniforms,
            forced,
            tokens,
            keys,
            prompt,
            prompt_length,
            image_spans,
            logp: vec![],
            lease: None,
            cached: 0,
            cache_hits: None,
        }
    }

    pub(crate) fn keys(&self) -> &[TokenKey] {
        &self.keys
    }

    /// Tokens of the next pass.
    pub(crate) fn new_tokens(&self) -> &[u32] {
        &self.tokens[self.cached..]
    }

    /// Their positions: those of the prompt, continued for the sampled tokens.
    pub(crate) fn new_positions(&self) -> Positions {
        let sampled = self.tokens.len() - self.prompt_length;
        let axes = self.prompt.axes.each_ref().map(|axis| {
            let of_prompt = axis.get(self.cached..).unwrap_or(&[]).iter().copied();
            let skipped = self.cached.saturating_sub(self.prompt_length);
            of_prompt.chain((skipped..sampled).map(|offset| self.prompt.next + offset as i64)).collect()
        });
        Positions { axes, next: self.prompt.next + sampled as i64 }
    }

    /// The image features among the tokens of the next pass.
    pub(crate) fn needed_features(&self) -> impl Iterator<Item = NeededFeatures> {
        self.image_spans.iter().enumerate().filter_map(|(image, span)| {
            let first = self.cached.saturating_sub(span.first);
            (first < span.features).then(|| NeededFeatures { image, first, count: span.features - first })
        })
    }

    /// How its next token is sampled: the parameters, the random stream, and the forced token if any.
    pub(crate) fn next_sampler(&mut self) -> RowSampler<'_> {
        let forced = self.forced.get(self.logp.len()).copied();
        let response = &self.tokens[self.prompt_length..];
        RowSampler { sampling: &self.sampling, uniforms: &mut self.uniforms, forced, response }
    }

    /// Appends a sampled token. Returns why the response is complete, if it is.
    pub(crate) fn push(&mut self, sampled: &SampledToken) -> Option<FinishReason> {
        self.tokens.push(sampled.token);
        self.keys.push(TokenKey::token(sampled.token));
        self.logp.push(sampled.logp);
        if self.sampling.stop.contains(&sampled.token) {
            Some(FinishReason::Stop)
        } else {
            (self.logp.len() == self.sampling.max_tokens).then_some(FinishReason::Length)
        }
    }

    /// The response's tokens and log-probabilities.
    pub(crate) fn into_response(mut self) -> (Vec<u32>, Vec<f32>) {
        (self.tokens.split_off(self.prompt_length), self.logp)
    }
}
