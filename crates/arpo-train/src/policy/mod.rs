//! The rollout-policy port: an episode's history in; a response with its tokens, their log-probabilities and the version of
//! the weights out.
//!
//! | to change | look in |
//! |---|---|
//! | how the built-in engine generates | [`engine`] |
//! | how the engines of several ranks share the episodes | [`ranks`] |
//! | how inference servers sample while training | [`served`] |
//! | how a chat server is called | [`chat`] |
//! | what both send: requests, messages, screenshots | `exchange`, `http`, `messages`, `data_urls` |
//! | how a history becomes tokens | `transcription` |
//! | tasks solved by hand, from a file | [`script_file`] |
//! | policies without a model, for tests and benchmarks | [`scripted`] |

pub mod chat;
mod data_urls;
pub mod engine;
mod exchange;
mod http;
mod messages;
pub mod ranks;
pub mod script_file;
pub mod scripted;
pub mod served;
mod transcription;

use crate::TrainError;
use crate::dialogue::Assembled;
use crate::episode::{History, TranscriptSlice};
use crate::run::stop::StopSwitch;
use arpo_agent::geometry::Size;
use arpo_agent::style::ActionFormat;
use arpo_core::trajectory::{EpisodeId, PolicyVersion, TokenSpan};
use arpo_model::checkpoint::Weights;
use serde::{Deserialize, Serialize};

pub use chat::ChatPolicy;
pub use engine::EnginePolicy;
pub use ranks::RankedPolicy;
pub use scripted::ScriptedPolicy;
pub use served::ServedPolicy;

/// Identifies a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request for the next response in an episode.
#[derive(Debug, Clone)]
pub struct GenerationRequest {
    /// Comes back with the response.
    pub id: RequestId,
    /// The episode so far; the last screen is the one to act on.
    pub history: History,
}

/// What the policy generated.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The text.
    pub text: String,
    /// The tokens as they were sampled.
    pub tokens: Vec<u32>,
    /// A log-probability for every token.
    pub logp: Vec<f32>,
    /// It ended by itself; false if it was cut off at the token limit.
    pub complete: bool,
    /// The weights it was sampled with.
    pub version: PolicyVersion,
}

/// How well a policy's prefix cache has worked since the policy was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheUse {
    /// Prompt tokens that were in the cache.
    pub hits: u64,
    /// Tokens computed again that an unlimited cache would have held.
    pub recomputed: u64,
}

/// A policy that responses are sampled from. Requests are submitted and computed together in steps.
pub trait Policy: Send {
    /// Takes a request, to be completed by steps to come.
    fn submit(&mut self, request: GenerationRequest) -> Result<(), TrainError>;

    /// Requests that are not completed yet.
    fn pending(&self) -> usize;

    /// Computes one step for all pending requests; returns the responses that it completed.
    fn step(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError>;

    /// Requests that steps so far have given up: they will have no response, and why. Their episodes are lost.
    fn take_lost(&mut self) -> Vec<(RequestId, String)> {
        vec![]
    }

    /// An episode has ended: it requests no more responses.
    fn ended(&mut self, _episode: &EpisodeId) {}

    /// Drops all pending requests.
    fn cancel_all(&mut self);

    /// Episodes that fit into its cache at once; `None` for any number.
    fn max_episodes(&self) -> Option<usize> {
        None
    }

    /// How its prefix cache has worked so far.
    fn cache_use(&self) -> CacheUse {
        CacheUse::default()
    }

    /// The weights it samples with now.
    fn version(&self) -> PolicyVersion;

    /// How it writes actions.
    fn format(&self) -> ActionFormat {
        ActionFormat::UITARS
    }

    /// The size at which it sees a screen; coordinates in its responses may be pixels of that.
    fn seen_size(&self, screen: Size) -> Result<Size, TrainError> {
        Ok(screen)
    }

    /// A completed episode, in the sequences that its responses were sampled in.
    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError>;
}

/// New weights, as a learner hands them over.
#[derive(Debug)]
pub enum WeightUpdate {
    /// The learner and the policy share the weights' memory: they have changed in place.
    InPlace,
    /// A copy for the policy.
    Copy(Weights),
}

/// A policy that is trained: it can be given new weights.
pub trait RolloutPolicy: Policy {
    /// Samples with these weights from now on. Whatever was computed with older ones is discarded.
    fn publish(&mut self, weights: WeightUpdate, version: PolicyVersion) -> Result<(), TrainError>;

    /// Samples at this temperature from now on.
    fn set_temperature(&mut self, temperature: f64);

    /// Ends its waits, with [`TrainError::Interrupted`], once the switch is on.
    fn stopped_by(&mut self, _stop: StopSwitch) {}

    /// Gives back device memory that it does not need until the next request.
    fn release_memory(&mut self) -> Result<(), TrainError> {
        Ok(())
    }
}

/// The transcript of a policy without a tokenizer: its tokens are the bytes of its text.
fn transcript_in_bytes(history: &History) -> Vec<TranscriptSlice> {
    let turns = 0..history.responses.len();
    if turns.is_empty() {
        return vec![];
    }
    let mut tokens: Vec<u32> = history.plan.task.instruction.bytes().map(u32::from).collect();
    let spans = history
        .responses
        .iter()
        .map(|response| {
            let start = tokens.len();
            tokens.extend(&response.tokens);
            TokenSpan { start, end: tokens.len() }
        })
        .collect();
    vec![TranscriptSlice { assembled: Assembled { tokens, spans }, turns, first_live: 0, first_response: 0 }]
}
