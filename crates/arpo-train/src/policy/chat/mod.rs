//! A model behind an OpenAI-compatible chat server, such as vLLM: screenshots go out as PNG, text comes back.
//!
//! For evaluation only: neither tokens nor log-probabilities are requested, and a server is given no new weights. A response
//! that cannot be parsed is requested again at temperature 1, and the last one that cannot ends the episode, as in OSWorld's
//! agent for UI-TARS. Several servers share the episodes in turn; an episode stays with its server, which may have its
//! prefix in a cache, and moves if that does not respond. If none responds, the episode is lost, and after several in a row
//! the policy fails. A mistake that every request would repeat, such as a wrong model name, fails at once.
//!
//! | to change | look in |
//! |---|---|
//! | attempts, and what is sent | `client` |
//! | what is done about an error, and what the user is told | `mod@verdict` |

mod client;
mod verdict;

use super::exchange::Exchange;
use super::http::{Http, Problem};
use super::{GenerationRequest, Policy, RequestId, Response, transcript_in_bytes};
use crate::TrainError;
use crate::episode::{History, TranscriptSlice};
use arpo_agent::geometry::{PixelLimits, SIDE_FACTOR, Size, smart_resize};
use arpo_agent::style::{ActionFormat, AgentStyle};
use arpo_core::trajectory::{EpisodeId, PolicyVersion};
use arpo_image::ImageError;
use client::{Answered, Client, Unanswered};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use verdict::{Advice, Verdict, verdict};

/// How a chat server is called.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatOptions {
    /// Servers that share the episodes, as `http://host:port/v1`.
    pub servers: Vec<String>,
    /// The model's name there.
    pub model: String,
    /// Sent as a bearer token, if the server needs one.
    pub key: Option<String>,
    /// The environment variable that the key was looked for in.
    pub key_variable: String,
    /// Sampling temperature.
    pub temperature: f64,
    /// Nucleus sampling: only the most likely tokens with this total probability.
    pub top_p: Option<f64>,
    /// Tokens of a response at most.
    pub max_tokens: usize,
    /// OpenAI `frequency_penalty`.
    pub frequency_penalty: f64,
    /// Timeout of one request, and of the waits for a server that has too many.
    pub limit: Duration,
    /// Requests for one response at most.
    pub tries: u32,
    /// Send a seed with every request.
    pub seeded: bool,
    /// Repeat the request if the response cannot be parsed.
    pub retry_unparsable: bool,
    /// The sizes at which the model sees screens; the server's image processor must use the same.
    pub pixels: PixelLimits,
    /// Screenshots of a request at most.
    pub max_screenshots: usize,
}

/// Requests in a row without a response, per server, before the policy gives up.
const GIVE_UP_AFTER: usize = 4;

/// A model behind a chat server.
pub struct ChatPolicy {
    client: Arc<Client>,
    exchange: Exchange<Result<Answered, Unanswered>>,
    /// The server of each episode.
    homes: HashMap<EpisodeId, usize>,
    episodes: usize,
    asked: HashMap<RequestId, EpisodeId>,
    lost: Vec<(RequestId, String)>,
    failures_in_row: usize,
}

impl ChatPolicy {
    /// Prompts in this style.
    pub fn new(options: ChatOptions, style: AgentStyle) -> Self {
        Self {
            client: Arc::new(Client::new(options, style)),
            exchange: Exchange::new(),
            homes: HashMap::new(),
            episodes: 0,
            asked: HashMap::new(),
            lost: vec![],
            failures_in_row: 0,
        }
    }

    /// The candidates that respond; an error if none does, or if one wants another key.
    pub fn available(
        candidates: &[String],
        key: Option<&str>,
        key_variable: &str,
        limit: Duration,
    ) -> Result<Vec<String>, TrainError> {
        let http = Http::new(key.map(str::to_owned));
        let advice = Advice { key_variable, has_key: key.is_some(), ..Advice::default() };
        let mut available = vec![];
        for server in candidates {
            match http.get(&format!("{server}/models"), limit) {
                Err(Problem::Unreachable(_)) => {}
                // many proxies have no list of models; a wrong address is found by the first request for a response
                Ok(_) | Err(Problem::Refused { status: 404 | 405, .. }) => available.push(server.clone()),
                Err(problem) => match verdict(&problem, &advice) {
                    Verdict::Fatal(reason) => return Err(TrainError::Service(format!("{server}: {reason}"))),
                    // it responds, though it gives no list of models now
                    _ => available.push(server.clone()),
                },
            }
        }
        if available.is_empty() {
            return Err(TrainError::Service(format!(
                "no chat server responds at {}: expected an OpenAI-compatible one, for example `vllm serve`",
                candidates.join(", ")
            )));
        }
        Ok(available)
    }
}

impl fmt::Debug for ChatPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatPolicy").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Policy for ChatPolicy {
    fn submit(&mut self, request: GenerationRequest) -> Result<(), TrainError> {
        let GenerationRequest { id, history } = request;
        let episode = history.plan.id.clone();
        let servers = self.client.options.servers.len();
        let home = *self.homes.entry(episode.clone()).or_insert_with(|| {
            self.episodes += 1;
            (self.episodes - 1) % servers
        });
        self.asked.insert(id, episode);
        let client = Arc::clone(&self.client);
        self.exchange.send(id, move |wanted| client.respond(home, &history, wanted))
    }

    fn pending(&self) -> usize {
        self.exchange.pending()
    }

    fn step(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError> {
        let mut responses = Vec::new();
        for (id, result) in self.exchange.receive()? {
            let episode = self.asked.remove(&id);
            match result {
                Ok(Answered { text, server }) => {
                    self.failures_in_row = 0;
                    if let Some(episode) = episode {
                        self.homes.insert(episode, server);
                    }
                    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
                    let (logp, version) = (vec![0.0; tokens.len()], PolicyVersion(0));
                    responses.push((id, Response { text, tokens, logp, complete: true, version }));
                }
                Err(Unanswered::Fatal(reason)) => return Err(TrainError::Service(reason)),
                Err(Unanswered::Lost(reason)) => {
                    self.failures_in_row += 1;
                    if self.failures_in_row >= GIVE_UP_AFTER * self.client.options.servers.len() {
                        let count = self.failures_in_row;
                        return Err(TrainError::Service(format!(
                            "{count} requests in a row without a response: {reason}"
                        )));
                    }
                    self.lost.push((id, reason));
                }
            }
        }
        Ok(responses)
    }

    fn take_lost(&mut self) -> Vec<(RequestId, String)> {
        std::mem::take(&mut self.lost)
    }

    fn cancel_all(&mut self) {
        self.exchange.cancel_all();
        self.homes.clear();
        self.asked.clear();
        self.lost.clear();
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion(0)
    }

    fn format(&self) -> ActionFormat {
        self.client.style.format
    }

    fn seen_size(&self, screen: Size) -> Result<Size, TrainError> {
        smart_resize(screen, SIDE_FACTOR, self.client.options.pixels)
            .map_err(|error| ImageError::Image(error.to_string()).into())
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        Ok(transcript_in_bytes(history))
    }
}

#[cfg(test)]
mod tests;
