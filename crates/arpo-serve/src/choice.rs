//! The choices of a request while they are computed: events of the engine become text, tokens and log-probabilities.

use crate::ServedModel;
use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::params::Params;
use crate::text::TextBuilder;
use crate::worker::Event;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{FinishReason, SampledToken};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::mpsc::UnboundedReceiver;

/// One choice.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) text: TextBuilder,
    /// Its tokens with their log-probabilities.
    pub(crate) sampled: Vec<SampledToken>,
    pub(crate) finish: Option<Finish>,
    pub(crate) version: PolicyVersion,
    /// Tokens of the prompt that were in the cache, once that is known.
    pub(crate) cached: Option<usize>,
    abandoned: Arc<AtomicBool>,
}

/// Why a choice is complete.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finish {
    /// `stop` or `length`.
    pub(crate) reason: &'static str,
    /// The stop string or the stop token of the request.
    pub(crate) stop_reason: Value,
}

/// What is new of a choice.
#[derive(Debug, PartialEq)]
pub(crate) struct Delta {
    pub(crate) index: usize,
    pub(crate) text: String,
    /// Its tokens from this one on are new.
    pub(crate) first_token: usize,
}

/// The choices of a request. Dropped before all of them are complete, they are cancelled.
#[derive(Debug)]
pub(crate) struct Choices {
    pub(crate) all: Vec<Choice>,
    pub(crate) prompt_tokens: usize,
    events: UnboundedReceiver<(usize, Event)>,
    open: usize,
    end_token: u32,
    began: Instant,
    metrics: Arc<Metrics>,
}

impl Choices {
    /// Of a request whose jobs send these events; `abandoned` are the flags of its jobs.
    pub(crate) fn new(
        model: &ServedModel,
        params: &Params,
        prompt_tokens: usize,
        events: UnboundedReceiver<(usize, Event)>,
        abandoned: Vec<Arc<AtomicBool>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let choice = |abandoned| Choice {
            text: TextBuilder::new(
                Arc::clone(&model.tokenizer),
                params.skip_special,
                params.stop_strings.clone(),
            ),
            sampled: vec![],
            finish: None,
            version: PolicyVersion::default(),
            cached: None,
            abandoned,
        };
        Self {
            open: abandoned.len(),
            all: abandoned.into_iter().map(choice).collect(),
            prompt_tokens,
            events,
            end_token: model.end_token,
            began: Instant::now(),
            metrics,
        }
    }

    /// Waits until the engine has taken all of them; an error if it rejects one.
    pub(crate) async fn accepted(&mut self) -> Result<(), ApiError> {
        let mut left = self.all.len();
        while left > 0 {
            match self.events.recv().await {
                Some((index, Event::Accepted(version))) => {
                    self.all[index].version = version;
                    left -= 1;
                }
                Some((_, Event::Failed(error))) => return Err(self.failed(error)),
                // all choices are taken before the next pass, so nothing else comes before the last is accepted
                Some((_, Event::Token(..) | Event::Finished(_))) | None => return Err(self.failed(ended())),
            }
        }
        Ok(())
    }

    /// The next news of any choice; `None` when all are complete.
    pub(crate) async fn next(&mut self) -> Option<Result<Delta, ApiError>> {
        while self.open > 0 {
            let Some((index, event)) = self.events.recv().await else {
                return Some(Err(self.failed(ended())));
            };
            let choice = &mut self.all[index];
            if choice.finish.is_some() {
                // sampled before the engine saw that the choice is complete
                continue;
            }
            let first_token = choice.sampled.len();
            match event {
                Event::Accepted(_) => continue,
                Event::Token(sampled, cached) => {
                    // known from the first token on: a stop string ends a choice before the engine does
                    choice.cached.get_or_insert(cached);
                    self.metrics.token(self.began, first_token == 0);
                    let token = sampled.token;
                    choice.sampled.push(sampled);
                    match choice.text.push(token) {
                        Ok(true) => choice.stop_at_string(),
                        Ok(false) => {}
                        Err(error) => return Some(Err(self.failed(ApiError::internal(error.to_string())))),
                    }
                }
                Event::Finished(reason) => {
                    if let Err(error) = choice.text.finish() {
                        return Some(Err(self.failed(ApiError::internal(error.to_string()))));
                    }
                    choice.finish = Some(choice.finish_of(reason, self.end_token));
                }
                Event::Failed(error) => return Some(Err(self.failed(error))),
            }
            let finished = choice.finish.is_some();
            let text = choice.text.give_out(finished);
            if finished {
                self.open -= 1;
                if self.open == 0 {
                    self.metrics.completed(self.began);
                }
            }
            return Some(Ok(Delta { index, text, first_token }));
        }
        None
    }

    /// Tokens of all responses so far.
    pub(crate) fn response_tokens(&self) -> usize {
        self.all.iter().map(|choice| choice.sampled.len()).sum()
    }

    /// The request has failed: nothing else will come.
    fn failed(&mut self, error: ApiError) -> ApiError {
        self.open = 0;
        error
    }
}

impl Drop for Choices {
    fn drop(&mut self) {
        if self.open > 0 {
            self.metrics.disconnected();
        }
    }
}

impl Choice {
    fn stop_at_string(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
        let stop_reason = self.text.stopped_by().into();
        self.finish = Some(Finish { reason: "stop", stop_reason });
    }

    fn finish_of(&self, reason: FinishReason, end_token: u32) -> Finish {
        let last = self.text.tokens().last().copied();
        match (self.text.stopped_by(), reason) {
            (Some(stop), _) => Finish { reason: "stop", stop_reason: stop.into() },
            (None, FinishReason::Stop) => {
                let stop_reason = last.filter(|&token| token != end_token).into();
                Finish { reason: "stop", stop_reason }
            }
            (None, FinishReason::Length) => Finish { reason: "length", stop_reason: Value::Null },
        }
    }
}

fn ended() -> ApiError {
    ApiError::unavailable("the engine has ended")
}
