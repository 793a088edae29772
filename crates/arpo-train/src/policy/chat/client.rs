//! One response of a chat server: the messages, the attempts, the next server.

use super::ChatOptions;
use super::verdict::{Advice, Verdict, verdict};
use crate::episode::History;
use crate::policy::exchange::Wanted;
use crate::policy::http::{Http, Problem, one_line};
use crate::policy::messages::messages;
use arpo_agent::style::AgentStyle;
use serde_json::json;
use std::fmt;
use std::time::{Duration, Instant};

/// Wait before a request is repeated because no response came.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// A response, and the server that gave it.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) text: String,
    pub(super) server: usize,
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The episode cannot be continued.
    Lost(String),
    /// No episode could be.
    Fatal(String),
}

/// Calls chat servers.
pub(super) struct Client {
    pub(super) options: ChatOptions,
    pub(super) style: AgentStyle,
    http: Http,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // not the key
        f.debug_struct("Client").field("servers", &self.options.servers).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(options: ChatOptions, style: AgentStyle) -> Self {
        let http = Http::new(options.key.clone());
        Self { options, style, http }
    }

    /// A response that can be parsed, if that is wanted. Every further attempt goes to the next server.
    pub(super) fn respond(
        &self,
        home: usize,
        history: &History,
        wanted: &Wanted,
    ) -> Result<Answered, Unanswered> {
        let ChatOptions { servers, tries, temperature, retry_unparsable, .. } = &self.options;
        let grammar = self.style.format.grammar;
        let (mut temperature, mut unreadable, mut problem) = (*temperature, None, String::new());
        let patience = Instant::now() + self.options.limit;
        let mut attempt = 0;
        while attempt < (*tries).max(1) && wanted.is_wanted() {
            let server = (home + attempt as usize) % servers.len();
            let seed = history
                .plan
                .sampling_seed
                .wrapping_add((history.responses.len() as u64) << 8 | u64::from(attempt));
            let body = self.body(history, temperature, seed).map_err(Unanswered::Lost)?;
            let delay = match self.request(&servers[server], body) {
                Ok(text) if !retry_unparsable || grammar.parse(&text).is_ok() => {
                    return Ok(Answered { text, server });
                }
                Ok(text) => {
                    (temperature, unreadable) = (1.0, Some((text, server)));
                    Duration::ZERO
                }
                Err(error) => match verdict(&error, &self.advice()) {
                    Verdict::Fatal(reason) => {
                        return Err(Unanswered::Fatal(format!("{}: {reason}", servers[server])));
                    }
                    Verdict::Lost(reason) => {
                        return Err(Unanswered::Lost(format!("{}: {reason}", servers[server])));
                    }
                    Verdict::Retry(reason) => {
                        problem = format!("{}: {reason}", servers[server]);
                        RETRY_DELAY
                    }
                    Verdict::Wait(delay, reason) if Instant::now() + delay < patience => {
                        problem = format!("{}: {reason}", servers[server]);
                        wanted.rest(delay);
                        // a server that is busy has not failed
                        continue;
                    }
                    Verdict::Wait(delay, reason) => {
                        return Err(Unanswered::Lost(format!(
                            "{}: {reason}; the wait of {:.0} s is longer than `chat.limit_seconds` allows",
                            servers[server],
                            delay.as_secs_f64()
                        )));
                    }
                },
            };
            attempt += 1;
            if attempt < *tries {
                wanted.rest(delay);
            }
        }
        // the episode is over; the response stays on record
        unreadable
            .map(|(text, server)| Answered { text: grammar.given_up(&text), server })
            .filter(|answered| grammar.parse(&answered.text).is_ok())
            .ok_or(Unanswered::Lost(problem))
    }

    fn advice(&self) -> Advice<'_> {
        let ChatOptions { key, key_variable, max_screenshots, model, .. } = &self.options;
        Advice { key_variable, has_key: key.is_some(), max_screenshots: *max_screenshots, model }
    }

    /// A request as text. It is made anew for every attempt, and nothing it is made of is kept: 15 screenshots of 0.5 MB are 11 MB
    /// of text, and all desktops may wait for an answer at once.
    fn body(&self, history: &History, temperature: f64, seed: u64) -> Result<String, String> {
        let ChatOptions { model, top_p, max_tokens, frequency_penalty, seeded, .. } = &self.options;
        let mut body = json!({
            "model": model,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "frequency_penalty": frequency_penalty,
        });
        if *seeded {
            // servers read a signed number
            body["seed"] = json!(seed & (u64::MAX >> 1));
        }
        if let Some(top_p) = top_p {
            body["top_p"] = json!(top_p);
        }
        body["messages"] = messages(history, &self.style, false)?;
        Ok(body.to_string())
    }

    fn request(&self, server: &str, body: String) -> Result<String, Problem> {
        let answer = self.http.post_text(&format!("{server}/chat/completions"), body, self.options.limit)?;
        answer["choices"][0]["message"]["content"].as_str().map(str::to_owned).ok_or_else(|| {
            Problem::Garbled(format!(
                "a completion without choices[0].message.content: {}",
                one_line(&answer.to_string())
            ))
        })
    }
}
