//! One request on its way: its tokens so far, where they stand, what was drawn.

use crate::pages::{Lease, TokenKey};
use crate::pictures::Screenshot;
use crate::sampling::{Choice, Drawn, Draws, Sampling};
use arpo_model::positions::{Grid, Positions};

/// What is asked of the engine.
#[derive(Debug, Clone)]
pub struct Request {
    /// The whole prompt, a placeholder for every feature of every picture.
    pub tokens: Vec<u32>,
    /// Its pictures, in the order of their placeholders.
    pub screenshots: Vec<Screenshot>,
    /// How the response is sampled.
    pub sampling: Sampling,
    /// Said instead of what would be drawn, as far as it goes, with the log-probabilities the model gives it. A model
    /// without knowledge can be made to play whole episodes with it.
    pub dictated: Vec<u32>,
}

/// Why a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With a stop token, which is its last.
    Stop,
    /// At the longest allowed length.
    Length,
}

/// The placeholders of one picture in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    first: usize,
    features: usize,
}

/// A part of a picture's features that a pass needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeededFeatures {
    pub(crate) picture: usize,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// A request being answered.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) screenshots: Vec<Screenshot>,
    sampling: Sampling,
    draws: Draws,
    dictated: Vec<u32>,
    /// Prompt, then what was drawn.
    tokens: Vec<u32>,
    keys: Vec<TokenKey>,
    prompt: Positions,
    prompt_length: usize,
    shown: Vec<Shown>,
    logp: Vec<f32>,
    /// Its pages, while it runs.
    pub(crate) lease: Option<Lease>,
    /// Tokens whose keys and values are in the cache.
    pub(crate) cached: usize,
    /// Prompt tokens that were found in the cache when it began.
    pub(crate) found: Option<usize>,
}

impl Sequence {
    /// From a request whose placeholders were found to fit its pictures.
    pub(crate) fn new(
        request: Request,
        grids: &[Grid],
        merge: usize,
        image_token: u32,
        prompt: Positions,
    ) -> Self {
        let Request { tokens, screenshots, sampling, dictated } = request;
        let mut keys: Vec<TokenKey> = tokens.iter().map(|&token| TokenKey::word(token)).collect();
        let mut shown = Vec::with_capacity(grids.len());
        let mut at = 0;
        for (grid, screenshot) in grids.iter().zip(&screenshots) {
            at += tokens[at..].iter().position(|&token| token == image_token).unwrap_or(0);
            let features = grid.features(merge);
            for (key, feature) in
                keys[at..at + features].iter_mut().zip(TokenKey::features(&screenshot.digest))
            {
                *key = feature;
            }
            shown.push(Shown { first: at, features });
            at += features;
        }
        let draws = sampling.draws();
        let prompt_length = tokens.len();
        Self {
            screenshots,
            sampling,
            draws,
            dictated,
            tokens,
            keys,
            prompt,
            prompt_length,
            shown,
            logp: vec![],
            lease: None,
            cached: 0,
            found: None,
        }
    }

    pub(crate) fn keys(&self) -> &[TokenKey] {
        &self.keys
    }

    /// Tokens of the next pass.
    pub(crate) fn new_tokens(&self) -> &[u32] {
        &self.tokens[self.cached..]
    }

    /// Where they stand: of the prompt's as computed, of the drawn ones behind it.
    pub(crate) fn new_positions(&self) -> Positions {
        let drawn = self.tokens.len() - self.prompt_length;
        let axes = self.prompt.axes.each_ref().map(|axis| {
            let of_prompt = axis.get(self.cached..).unwrap_or(&[]).iter().copied();
            let skipped = self.cached.saturating_sub(self.prompt_length);
            of_prompt.chain((skipped..drawn).map(|place| self.prompt.next + place as i64)).collect()
        });
        Positions { axes, next: self.prompt.next + drawn as i64 }
    }

    /// The features that stand among the tokens of the next pass.
    pub(crate) fn needed_features(&self) -> impl Iterator<Item = NeededFeatures> {
        self.shown.iter().enumerate().filter_map(|(picture, shown)| {
            let first = self.cached.saturating_sub(shown.first);
            (first < shown.features).then(|| NeededFeatures { picture, first, count: shown.features - first })
        })
    }

    /// How its next token comes about: how it is sampled, from which numbers, or what is dictated.
    pub(crate) fn next_choice(&mut self) -> Choice<'_> {
        let dictated = self.dictated.get(self.logp.len()).copied();
        Choice { sampling: &self.sampling, draws: &mut self.draws, dictated }
    }

    /// Takes what was drawn; says whether that was the end.
    pub(crate) fn push(&mut self, drawn: Drawn) -> Option<Ended> {
        self.tokens.push(drawn.token);
        self.keys.push(TokenKey::word(drawn.token));
        self.logp.push(drawn.logp);
        if self.sampling.stop.contains(&drawn.token) {
            Some(Ended::Stop)
        } else {
            (self.logp.len() == self.sampling.max_tokens).then_some(Ended::Length)
        }
    }

    /// What was drawn, and its log-probabilities.
    pub(crate) fn into_response(mut self) -> (Vec<u32>, Vec<f32>) {
        (self.tokens.split_off(self.prompt_length), self.logp)
    }
}
