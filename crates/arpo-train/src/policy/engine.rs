//! The built-in engine as a policy: a history becomes tokens, in which responses are the tokens that were sampled.

use super::scripted::Script;
use super::transcription::{self, transcribe};
use super::{CacheUse, GenerationRequest, Policy, RequestId, Response, RolloutPolicy, WeightUpdate};
use crate::TrainError;
use crate::agent::Agent;
use crate::demonstrations::response_tokens;
use crate::episode::{EpisodeScreen, History, TranscriptSlice};
use arpo_agent::geometry::Size;
use arpo_agent::style::ActionFormat;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Engine, FinishReason, Penalties, Request, RequestId as EngineRequestId, Sampling};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use tch::Device;

/// How responses are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResponseOptions {
    /// Logits are divided by it; 0 takes the most likely token.
    pub temperature: f64,
    /// Most tokens; a longer response is cut off.
    pub max_tokens: usize,
}

/// What an engine is asked to respond to, here or on another rank.
#[derive(Debug)]
pub(crate) struct Prompt {
    /// The conversation, with a placeholder for every feature of every screenshot.
    pub(crate) tokens: Vec<u32>,
    /// Its screenshots, in the order of their placeholders.
    pub(crate) screens: Vec<EpisodeScreen>,
    pub(crate) sampling: SamplingParams,
}

impl Prompt {
    /// What is asked for the next response of an episode.
    pub(crate) fn of(
        agent: &Agent,
        history: &History,
        responses: ResponseOptions,
    ) -> Result<Self, TrainError> {
        let transcribed = transcribe(agent, history, history.screens.len())?;
        let sampling = SamplingParams {
            temperature: responses.temperature,
            max_tokens: responses.max_tokens,
            seed: history.plan.sampling_seed,
            turn: history.responses.len() as u64,
        };
        let screens = transcribed.live(history).to_vec();
        Ok(Self { tokens: transcribed.assembled.tokens, screens, sampling })
    }
}

/// How the response to a prompt is sampled. Its random numbers come from the seed and the turn alone, so that they are the same
/// wherever it is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SamplingParams {
    temperature: f64,
    max_tokens: usize,
    /// The episode's.
    seed: u64,
    turn: u64,
}

/// The engine, prompted with conversations.
pub struct EnginePolicy {
    /// How responses are sampled; may be changed between episodes.
    pub responses: ResponseOptions,
    engine: Engine,
    version: PolicyVersion,
    agent: Arc<Agent>,
    pending: HashMap<EngineRequestId, RequestId>,
    forced: Option<Script>,
    /// Episodes that fit into the cache.
    max_episodes: Option<usize>,
}

impl EnginePolicy {
    /// An engine with weights of this version, and the agent around it.
    pub fn new(
        engine: Engine,
        version: PolicyVersion,
        agent: Arc<Agent>,
        responses: ResponseOptions,
    ) -> Self {
        let engine = engine.with_tokenizer(Arc::clone(&agent.tokenizer));
        Self { responses, engine, version, agent, pending: HashMap::new(), forced: None, max_episodes: None }
    }

    /// Responds with a script's text, computed and scored as if the engine had sampled it: for a model without trained
    /// weights.
    #[must_use]
    pub fn with_forced_responses(self, script: Script) -> Self {
        Self { forced: Some(script), ..self }
    }

    /// With a cache that holds this many episodes.
    #[must_use]
    pub fn with_max_episodes(self, episodes: usize) -> Self {
        Self { max_episodes: Some(episodes), ..self }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The agent around the engine.
    pub(crate) fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// Takes a request whose prompt is known.
    pub(crate) fn submit_prompt(&mut self, id: RequestId, prompt: Prompt) -> Result<(), TrainError> {
        self.submit_forced(id, prompt, vec![])
    }

    /// The same with the first tokens of the response.
    fn submit_forced(&mut self, id: RequestId, prompt: Prompt, forced: Vec<u32>) -> Result<(), TrainError> {
        let Prompt { tokens, screens, sampling: SamplingParams { temperature, max_tokens, seed, turn } } =
            prompt;
        let sampling = Sampling {
            temperature,
            top_k: None,
            top_p: None,
            max_tokens,
            stop: vec![self.agent.end_token],
            penalties: Penalties::default(),
            alternatives: 0,
            seed,
            turn,
        };
        let screenshots = screens.iter().map(EpisodeScreen::screenshot).collect();
        let request = Request { tokens, screenshots, sampling, forced };
        self.pending.insert(self.engine.submit(request)?, id);
        Ok(())
    }
}

impl fmt::Debug for EnginePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnginePolicy").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Policy for EnginePolicy {
    fn submit(&mut self, request: GenerationRequest) -> Result<(), TrainError> {
        let GenerationRequest { id, history } = request;
        let prompt = Prompt::of(&self.agent, &history, self.responses)?;
        let forced = match &mut self.forced {
            Some(script) => response_tokens(&self.agent, &script(&history)?)?,
            None => vec![],
        };
        self.submit_forced(id, prompt, forced)
    }

    fn pending(&self) -> usize {
        self.pending.len()
    }

    fn max_episodes(&self) -> Option<usize> {
        self.max_episodes
    }

    fn cache_use(&self) -> CacheUse {
        let counts = self.engine.counts();
        CacheUse { hits: counts.cache_hits, recomputed: counts.recomputed }
    }

    fn step(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError> {
        let mut responses = Vec::new();
        for (id, completion) in self.engine.pass()? {
            let unknown = || TrainError::Internal("the engine completed an unknown request".into());
            let id = self.pending.remove(&id).ok_or_else(unknown)?;
            let response = Response {
                text: completion.text,
                complete: completion.finish_reason == FinishReason::Stop,
                tokens: completion.tokens,
                logp: completion.logp,
                version: completion.version,
            };
            responses.push((id, response));
        }
        Ok(responses)
    }

    fn cancel_all(&mut self) {
        if !self.pending.is_empty() {
            self.pending.clear();
            self.engine.cancel_all();
        }
    }

    fn version(&self) -> PolicyVersion {
        self.version
    }

    fn format(&self) -> ActionFormat {
        self.agent.style.format
    }

    fn seen_size(&self, screen: Size) -> Result<Size, TrainError> {
        Ok(self.agent.processor.resized_size(screen)?)
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        transcription::transcript(&self.agent, history)
    }
}

impl RolloutPolicy for EnginePolicy {
    fn publish(&mut self, weights: WeightUpdate, version: PolicyVersion) -> Result<(), TrainError> {
        let weights = match weights {
            WeightUpdate::InPlace => self.engine.model().weights().share(),
            WeightUpdate::Copy(weights) => weights,
        };
        self.engine.update(&weights, version)?;
        self.version = version;
        Ok(())
    }

    fn set_temperature(&mut self, temperature: f64) {
        self.responses.temperature = temperature;
    }

    fn release_memory(&mut self) -> Result<(), TrainError> {
        if self.engine.model().device() != Device::Cpu {
            self.engine.release_cache()?;
        }
        Ok(())
    }
}
