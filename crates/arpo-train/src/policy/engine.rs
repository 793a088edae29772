//! The built-in engine as a policy: a history becomes tokens, with what the agent said as the tokens it drew.

use super::scripted::Script;
use super::{Answer, CacheUse, Policy, Question, Ticket};
use crate::TrainError;
use crate::agent::Agent;
use crate::demonstrations::response_tokens;
use crate::dialogue::{Assembled, assemble};
use crate::episode::{History, TranscriptSlice, reference};
use arpo_agent::conversation::{Turn, conversation};
use arpo_agent::geometry::{Size, smart_resize};
use arpo_agent::window::WindowSlice;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::engine::RequestId;
use arpo_engine::{Ended, Engine, Request, Sampling};
use arpo_model::checkpoint::Weights;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use tch::Device;

/// How responses are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResponseOptions {
    /// Logits are divided by it; 0 takes the most likely token.
    pub temperature: f64,
    /// Tokens at most; a longer response is cut off.
    pub max_tokens: usize,
}

/// The engine, asked in conversations.
pub struct EnginePolicy {
    /// How responses are sampled; may be changed between episodes.
    pub responses: ResponseOptions,
    engine: Engine,
    version: PolicyVersion,
    agent: Arc<Agent>,
    asked: HashMap<RequestId, Ticket>,
    dictation: Option<Script>,
    /// Episodes whose keys and values the cache holds.
    capacity: Option<usize>,
}

impl EnginePolicy {
    /// An engine with weights of this version, and how it reads and speaks.
    pub fn new(
        engine: Engine,
        version: PolicyVersion,
        agent: Arc<Agent>,
        responses: ResponseOptions,
    ) -> Self {
        let engine = engine.with_tokenizer(Arc::clone(&agent.tokenizer));
        Self { responses, engine, version, agent, asked: HashMap::new(), dictation: None, capacity: None }
    }

    /// Says what a script says, computed and scored as if the engine had drawn it: for a model that knows nothing yet.
    #[must_use]
    pub fn dictated(self, script: Script) -> Self {
        Self { dictation: Some(script), ..self }
    }

    /// With a cache that holds so many episodes.
    #[must_use]
    pub fn with_capacity(self, episodes: usize) -> Self {
        Self { capacity: Some(episodes), ..self }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Takes over new weights, between questions.
    pub fn update(&mut self, weights: &Weights, version: PolicyVersion) -> Result<(), TrainError> {
        self.engine.update(weights, version)?;
        self.version = version;
        Ok(())
    }

    /// Gives back what memory of a GPU it does not need until it is asked again.
    pub fn rest(&mut self) -> Result<(), TrainError> {
        if self.engine.model().device() != Device::Cpu {
            self.engine.rest()?;
        }
        Ok(())
    }

    /// Sees weights that it shares with a learner after they have moved.
    pub fn refresh(&mut self, version: PolicyVersion) -> Result<(), TrainError> {
        let weights = self.engine.model().weights().share();
        self.update(&weights, version)
    }

    /// The first `seen` screens of a history and their answers in tokens, with the next turn opened if the last of these
    /// screens is not answered; and the first screen that is live in them.
    fn assembled(&self, history: &History, seen: usize) -> Result<(Assembled, usize), TrainError> {
        let screens = &history.screens[..seen];
        let answers = &history.answers[..seen.min(history.answers.len())];
        let past: Vec<Turn> = screens
            .iter()
            .zip(answers)
            .map(|(screen, answer)| Turn { screenshot: reference(screen), response: answer.text.clone() })
            .collect();
        let current = screens.get(answers.len()).map(reference);
        let style = &self.agent.style;
        let messages = conversation(&history.plan.task.instruction, &past, current.as_ref(), style);
        let first_live = style.window.first_live(seen);
        let grids = screens[first_live..]
            .iter()
            .map(|screen| self.agent.processor.grid(screen.image.width(), screen.image.height()))
            .collect::<Result<Vec<_>, _>>()?;
        let responses: Vec<&[u32]> = answers.iter().map(|answer| answer.tokens.as_slice()).collect();
        Ok((assemble(&self.agent, &messages, &responses, &grids, current.is_some())?, first_live))
    }
}

impl fmt::Debug for EnginePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnginePolicy").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Policy for EnginePolicy {
    fn ask(&mut self, question: Question) -> Result<(), TrainError> {
        let Question { ticket, history } = question;
        let (assembled, first_live) = self.assembled(&history, history.screens.len())?;
        let sampling = Sampling {
            temperature: self.responses.temperature,
            top_k: None,
            top_p: None,
            max_tokens: self.responses.max_tokens,
            stop: vec![self.agent.end_token],
            seed: history.plan.sampling_seed,
            turn: history.answers.len() as u64,
        };
        let screenshots = history.screens[first_live..].to_vec();
        let dictated = match &mut self.dictation {
            Some(script) => response_tokens(&self.agent, &script(&history)?)?,
            None => vec![],
        };
        let request = Request { tokens: assembled.tokens, screenshots, sampling, dictated };
        let id = self.engine.submit(request)?;
        self.asked.insert(id, ticket);
        Ok(())
    }

    fn unanswered(&self) -> usize {
        self.asked.len()
    }

    fn capacity(&self) -> Option<usize> {
        self.capacity
    }

    fn cache_use(&self) -> CacheUse {
        let counts = self.engine.counts();
        CacheUse { found: counts.found, lost: counts.lost }
    }

    fn advance(&mut self) -> Result<Vec<(Ticket, Answer)>, TrainError> {
        let mut answers = Vec::new();
        for (id, completion) in self.engine.pass()? {
            let unasked = || TrainError::Options("the engine answered what nobody asked".into());
            let ticket = self.asked.remove(&id).ok_or_else(unasked)?;
            let answer = Answer {
                text: completion.text,
                complete: completion.ended == Ended::Stop,
                tokens: completion.tokens,
                logp: completion.logp,
                version: completion.version,
            };
            answers.push((ticket, answer));
        }
        Ok(answers)
    }

    fn abandon(&mut self) {
        if !self.asked.is_empty() {
            self.asked.clear();
            self.engine.abandon();
        }
    }

    fn version(&self) -> PolicyVersion {
        self.version
    }

    fn seen_size(&self, screen: Size) -> Result<Size, TrainError> {
        smart_resize(screen, self.agent.processor.limits)
            .map_err(|error| TrainError::Options(error.to_string()))
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        let slices = self.agent.style.window.slices(history.answers.len()).into_iter();
        slices
            .map(|WindowSlice { turns, .. }| {
                let (assembled, first_live) = self.assembled(history, turns.end)?;
                Ok(TranscriptSlice { assembled, turns, first_live })
            })
            .collect()
    }
}
