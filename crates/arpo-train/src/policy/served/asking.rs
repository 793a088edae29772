//! One request for a response, from the history to the checked answer: which server is asked, when another one, when none.
//!
//! An attempt that gave no answer is repeated, at the same server when that is ready again or at another. An answer is used
//! once or not at all: it is used if it came from the current weights and from exactly our prompt.

use super::answer::{Fault, check};
use super::fleet::{Fleet, Slot};
use super::protocol::{Line, Protocol, ServedOptions, ServedPrompt};
use crate::TrainError;
use crate::agent::Agent;
use crate::episode::History;
use crate::policy::Response;
use crate::policy::exchange::Wanted;
use crate::policy::http::{Http, Problem};
use crate::policy::transcription::transcribe;
use crate::run::notices::Notices;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Attempts of a request that servers fail at, besides one for each server.
const TRIES: usize = 3;

/// Wait for a server that has no slot for a request and does not say how long.
const BUSY_DELAY: Duration = Duration::from_secs(1);

/// Least wait for a server that is busy, whatever it says.
const MIN_BACKOFF: Duration = Duration::from_millis(100);

/// What came of a request.
#[derive(Debug)]
pub(super) enum Outcome {
    Response(Response),
    /// The episode cannot be continued, and why.
    Lost(String),
    /// The run cannot be continued, and why.
    Fatal(String),
}

/// Asks servers.
pub(super) struct Asker {
    pub(super) fleet: Arc<Fleet>,
    pub(super) protocol: Arc<dyn Protocol>,
    pub(super) http: Http,
    pub(super) options: Arc<ServedOptions>,
    pub(super) agent: Arc<Agent>,
    pub(super) notices: Notices,
    /// Deadline of one attempt.
    pub(super) limit: Duration,
    /// Longest wait for a server.
    pub(super) wait: Duration,
}

impl Asker {
    /// The next response of an episode.
    pub(super) fn ask(&self, history: History, temperature: f64, wanted: &Wanted) -> Outcome {
        let episode = history.plan.id.clone();
        let prompt = match self.prompt(history, temperature) {
            Ok(prompt) => prompt,
            Err(error) => return Outcome::Fatal(error.to_string()),
        };
        let (mut failures, mut last, mut avoid) = (0, String::new(), None);
        let mut deadline = Instant::now() + self.wait;
        loop {
            let Some(slot) = self.fleet.slot(&episode, avoid, deadline, || wanted.is_wanted()) else {
                let seconds = self.wait.as_secs();
                if self.fleet.any_ready() {
                    return Outcome::Lost(format!(
                        "no free slot at a server for {seconds} s (`rollout.wait_seconds`, `rollout.requests`){last}"
                    ));
                }
                return Outcome::Fatal(format!(
                    "no server could be asked for {seconds} s (`rollout.wait_seconds`): {}{last}",
                    self.fleet.setbacks()
                ));
            };
            let line = Line { http: &self.http, address: &slot.address, limit: self.limit };
            let problem = match self.protocol.sample(line, &prompt, &self.options) {
                Ok(sampled) => match check(&sampled, &prompt, &slot.target, &self.options) {
                    Ok(()) => match self.response(&slot, sampled.tokens, sampled.logp, sampled.complete) {
                        Ok(response) => return Outcome::Response(response),
                        Err(error) => return Outcome::Fatal(error.to_string()),
                    },
                    Err(Fault::OtherWeights(reason)) => reason,
                    Err(Fault::Retokenised(reason) | Fault::Cut(reason)) => {
                        return Outcome::Lost(format!("{}: {reason}", slot.address));
                    }
                    Err(Fault::Wrong(reason)) => {
                        return Outcome::Fatal(format!("{}: {reason}", slot.address));
                    }
                },
                Err(Problem::Busy { after, message }) => {
                    (last, avoid) = (format!("; {} is busy: {message}", slot.address), Some(slot.server));
                    drop(slot);
                    let left = deadline.saturating_duration_since(Instant::now());
                    wanted.rest(after.unwrap_or(BUSY_DELAY).max(MIN_BACKOFF).min(left));
                    continue;
                }
                Err(problem) if problem.is_the_servers() => problem.to_string(),
                Err(problem) => {
                    return match self.options.about_key(&problem) {
                        Some(reason) => Outcome::Fatal(format!("{}: {reason}", slot.address)),
                        None => Outcome::Lost(format!("{}: {problem}", slot.address)),
                    };
                }
            };
            let is_new = self.fleet.blame(slot.server, &slot.target);
            if is_new {
                let address = &slot.address;
                self.notices.say(&format!("server {address}: {problem}; its episodes move or wait"));
            }
            (last, avoid) = (format!("; the last answer of {}: {problem}", slot.address), Some(slot.server));
            // an answer that was cut off because another request failed is not this one's failure
            failures += usize::from(is_new);
            if failures >= TRIES + self.fleet.len() {
                return Outcome::Lost(format!("{failures} attempts failed{last}"));
            }
            // a server answered until now: the wait for the next one begins here
            deadline = Instant::now() + self.wait;
        }
    }

    fn prompt(&self, history: History, temperature: f64) -> Result<ServedPrompt, TrainError> {
        let prompt = transcribe(&self.agent, &history, history.screens.len())?;
        let screens = prompt.live(&history).to_vec();
        let images = image_ranges(&prompt.assembled.tokens, self.agent.image_token);
        if images.len() != screens.len() {
            return Err(TrainError::Internal(format!(
                "a prompt with {} screenshots and {} places for them",
                screens.len(),
                images.len()
            )));
        }
        Ok(ServedPrompt { tokens: prompt.assembled.tokens, images, screens, temperature, history })
    }

    fn response(
        &self,
        slot: &Slot,
        tokens: Vec<u32>,
        logp: Vec<f32>,
        complete: bool,
    ) -> Result<Response, TrainError> {
        let text = self.agent.tokenizer.decode(&tokens, true)?;
        // rounding may lead just past 0
        let logp = logp.into_iter().map(|logp| logp.min(0.0)).collect();
        Ok(Response { text, tokens, logp, complete, version: slot.target.version })
    }
}

/// The runs of image placeholders. Images never touch, because each has its own begin and end token.
fn image_ranges(tokens: &[u32], image_token: u32) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = vec![];
    for (at, _) in tokens.iter().enumerate().filter(|&(_, &token)| token == image_token) {
        match ranges.last_mut() {
            Some(range) if range.end == at => range.end += 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_placeholders_are_images() {
        assert_eq!(image_ranges(&[1, 5, 5, 2, 5, 5], 5), [1..3, 4..6]);
        assert!(image_ranges(&[1, 2], 5).is_empty());
    }
}
