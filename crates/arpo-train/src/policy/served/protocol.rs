//! What is asked of an inference server, whatever its make: a response, its own settings, new weights.

use super::fleet::Target;
use crate::episode::{EpisodeScreen, History};
use crate::policy::http::{Http, Problem};
use serde_json::Value;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// A request for a response.
#[derive(Debug)]
pub(super) struct ServedPrompt {
    /// The episode so far.
    pub(super) history: History,
    /// Our own assembly of the conversation, with a placeholder for every feature of every image.
    pub(super) tokens: Vec<u32>,
    /// Where the features of each image are.
    pub(super) images: Vec<Range<usize>>,
    /// Its screenshots; one that the server has already is not even encoded.
    pub(super) screens: Vec<EpisodeScreen>,
    pub(super) temperature: f64,
}

impl ServedPrompt {
    /// The tokens with one placeholder for each image, as servers take them.
    pub(super) fn with_one_placeholder_each(&self) -> Vec<u32> {
        with_one_placeholder_each(&self.tokens, &self.images)
    }
}

fn with_one_placeholder_each(all: &[u32], images: &[Range<usize>]) -> Vec<u32> {
    let mut tokens = Vec::with_capacity(all.len());
    let mut end = 0;
    for image in images {
        tokens.extend(&all[end..=image.start]);
        end = image.end;
    }
    tokens.extend(&all[end..]);
    tokens
}

/// What is the same for all requests of a run.
#[derive(Debug, Clone)]
pub(super) struct ServedOptions {
    pub(super) max_tokens: usize,
    /// Ends a response and belongs to it.
    pub(super) end_token: u32,
    /// May not be sampled.
    pub(super) forbidden: Vec<u32>,
    /// The sampling temperature of episodes that are trained on.
    pub(super) trained_temperature: f64,
    /// Most images of a request.
    pub(super) images: usize,
    /// The output head of the model is its input embedding.
    pub(super) tied_head: bool,
    /// The environment variable that the servers' key was looked for in, and whether it was there.
    pub(super) key_variable: String,
    pub(super) has_key: bool,
}

impl ServedOptions {
    /// What to do about a server that refuses the key; `None` if this is another problem.
    pub(super) fn about_key(&self, problem: &Problem) -> Option<String> {
        let variable = &self.key_variable;
        match problem {
            Problem::Refused { status: 401 | 403, .. } if self.has_key => Some(format!(
                "it refuses the key in {variable}: expected the key that it was started with (`rollout.key_variable`): \
                 {problem}"
            )),
            Problem::Refused { status: 401 | 403, .. } => Some(format!(
                "it wants a key: expected it in the environment variable {variable} (`rollout.key_variable`): {problem}"
            )),
            _ => None,
        }
    }
}

/// A sampled response.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sampled {
    pub(super) tokens: Vec<u32>,
    pub(super) logp: Vec<f32>,
    /// It ended by itself.
    pub(super) complete: bool,
    /// The labels of the weights that sampled it.
    pub(super) labels: Vec<String>,
    /// The prompt as the server read it.
    pub(super) prompt: Option<Vec<u32>>,
    /// Where the server put the images.
    pub(super) images: Option<Vec<Range<usize>>>,
    /// The server was sent the text of earlier responses, not their tokens.
    pub(super) retokenised: bool,
}

/// A server, with the deadline of the request to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) http: &'a Http,
    pub(super) address: &'a str,
    pub(super) limit: Duration,
}

impl Line<'_> {
    pub(super) fn get(&self, path: &str) -> Result<Value, Problem> {
        self.http.get(&format!("{}{path}", self.address), self.limit)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, Problem> {
        self.http.post(&format!("{}{path}", self.address), body, self.limit)
    }
}

/// Why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unusable {
    /// It does not answer as it should, now.
    Failing(Problem),
    /// It was started in a way that training cannot use.
    Refused(String),
}

impl From<Problem> for Unusable {
    fn from(problem: Problem) -> Self {
        Self::Failing(problem)
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failing(problem) => problem.fmt(f),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

/// How a make of servers is spoken to.
pub(super) trait Protocol: Send + Sync {
    /// Whether the server can be trained with, as it was started.
    fn inspect(&self, line: Line, options: &ServedOptions) -> Result<(), Unusable>;

    /// Gives the server new weights and empties its caches. If it fails half-way, no answer carries the new label.
    fn update(&self, line: Line, target: &Target) -> Result<(), Unusable>;

    /// Samples a response.
    fn sample(&self, line: Line, prompt: &ServedPrompt, options: &ServedOptions) -> Result<Sampled, Problem>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_has_one_placeholder() {
        let one = with_one_placeholder_each;
        assert_eq!(one(&[1, 5, 5, 5, 2], std::slice::from_ref(&(1..4))), [1, 5, 2]);
        assert_eq!(one(&[5, 5, 5, 5, 2], &[0..2, 2..4]), [5, 5, 2]);
        assert_eq!(one(&[1, 2, 3], &[]), [1, 2, 3]);
        assert_eq!(one(&[1, 5, 2, 5], &[1..2, 3..4]), [1, 5, 2, 5]);
    }
}
