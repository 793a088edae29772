//! Who answers: a history of screens and answers in; words, tokens, their log-probabilities and the version of the
//! weights out.
//!
//! | to change | look in |
//! |---|---|
//! | how the built-in engine is asked | [`engine`] |
//! | how a chat server is asked | [`chat`] |
//! | tasks solved by hand, from a file | [`script_file`] |
//! | policies without a model, for tests and benchmarks | [`scripted`] |

pub mod chat;
pub mod engine;
pub mod script_file;
pub mod scripted;

use crate::TrainError;
use crate::dialogue::Assembled;
use crate::episode::{History, TranscriptSlice};
use arpo_agent::geometry::Size;
use arpo_core::trajectory::{PolicyVersion, TokenSpan};

pub use chat::ChatPolicy;
pub use engine::EnginePolicy;
pub use scripted::ScriptedPolicy;

/// Names a question, to know its answer by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What to do next in an episode?
#[derive(Debug, Clone)]
pub struct Question {
    /// Its name.
    pub ticket: Ticket,
    /// What has happened; the last screen is to be acted on.
    pub history: History,
}

/// What the policy says.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The response.
    pub text: String,
    /// As it was sampled.
    pub tokens: Vec<u32>,
    /// A log-probability for every token.
    pub logp: Vec<f32>,
    /// It came to its end; false if it was cut off.
    pub complete: bool,
    /// The weights that said it.
    pub version: PolicyVersion,
}

/// How much of the prompts a policy did not have to read again, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUse {
    /// Prompt tokens found in its cache.
    pub found: u64,
    /// Tokens read again that a cache without limit would have found.
    pub lost: u64,
}

/// A policy. It is asked, and answers in passes: whatever has been asked when a pass begins is computed together.
pub trait Policy: Send {
    /// Takes a question, to be answered by passes to come.
    fn ask(&mut self, question: Question) -> Result<(), TrainError>;

    /// Questions not yet answered.
    fn unanswered(&self) -> usize;

    /// One pass; returns the answers that it completed.
    fn advance(&mut self) -> Result<Vec<(Ticket, Answer)>, TrainError>;

    /// Episodes at once that it answers without reading any of them again; `None` for any number.
    fn capacity(&self) -> Option<usize> {
        None
    }

    /// How its cache has done so far.
    fn cache_use(&self) -> CacheUse {
        CacheUse::default()
    }

    /// Gives up all questions.
    fn abandon(&mut self);

    /// The weights that would answer now.
    fn version(&self) -> PolicyVersion;

    /// The size at which it sees a screen; places in its responses are pixels of that.
    fn seen_size(&self, screen: Size) -> Result<Size, TrainError> {
        Ok(screen)
    }

    /// An ended episode, all screens answered, in the sequences it was said in.
    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError>;
}

/// An episode of a policy that has no tokens of its own: those are the bytes of its words.
fn transcript_in_bytes(history: &History) -> Vec<TranscriptSlice> {
    let turns = 0..history.answers.len();
    if turns.is_empty() {
        return vec![];
    }
    let mut tokens: Vec<u32> = history.plan.task.instruction.bytes().map(u32::from).collect();
    let spans = history
        .answers
        .iter()
        .map(|answer| {
            let start = tokens.len();
            tokens.extend(&answer.tokens);
            TokenSpan { start, end: tokens.len() }
        })
        .collect();
    vec![TranscriptSlice { assembled: Assembled { tokens, spans }, turns, first_live: 0 }]
}
