//! The shapes of responses: OpenAI's chat completions and their chunks, and vLLM's token responses.

use crate::ServedModel;
use crate::chat::Output;
use crate::choice::{Choice, Choices, Delta};
use crate::prompt::Prompt;
use arpo_engine::SampledToken;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Log-probabilities below this are of tokens that are never sampled.
const NEVER: f32 = -1e20;

/// Which interface is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `/v1/chat/completions`.
    Chat,
    /// `/inference/v1/generate`.
    Tokens {
        /// With the text.
        with_text: bool,
    },
}

/// Everything that a response needs besides its choices.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) shape: Shape,
    pub(crate) output: Output,
    /// Log-probabilities are reported.
    pub(crate) with_logprobs: bool,
    pub(crate) id: String,
    pub(crate) model: Arc<ServedModel>,
    pub(crate) prompt: Prompt,
    pub(crate) created: u64,
}

impl Answer {
    /// The whole response.
    pub(crate) fn whole(&self, choices: &Choices) -> Value {
        let all = choices.all.iter().enumerate();
        let all: Vec<Value> = all.map(|(index, choice)| self.choice(index, choice)).collect();
        let mut answer = self.head("chat.completion");
        answer.insert("choices".into(), all.into());
        answer.insert("usage".into(), usage(choices));
        self.insert_prompt(&mut answer);
        answer.into()
    }

    /// The first chunk of a stream, before any token.
    pub(crate) fn opening(&self, choices: &Choices) -> Option<Value> {
        let mut chunk = self.head("chat.completion.chunk");
        match self.shape {
            Shape::Chat => {
                let opened = |index| {
                    json!({
                        "index": index, "delta": {"role": "assistant", "content": ""},
                        "logprobs": null, "finish_reason": null,
                    })
                };
                let opened: Vec<Value> = (0..choices.all.len()).map(opened).collect();
                chunk.insert("choices".into(), opened.into());
            }
            Shape::Tokens { .. } if self.output.token_ids => {
                chunk.insert("choices".into(), json!([]));
            }
            Shape::Tokens { .. } => return None,
        }
        self.insert_prompt(&mut chunk);
        if self.includes_usage() {
            chunk.insert("usage".into(), Value::Null);
        }
        Some(chunk.into())
    }

    /// A chunk with what is new; `None` if there is nothing to tell.
    pub(crate) fn chunk(&self, choices: &Choices, delta: &Delta) -> Option<Value> {
        let Delta { index, text, first_token } = delta;
        let choice = &choices.all[*index];
        let new = &choice.sampled[*first_token..];
        let tells_tokens = self.with_logprobs || self.output.token_ids || self.shape != Shape::Chat;
        let tells_nothing = new.is_empty() || !tells_tokens;
        if text.is_empty() && choice.finish.is_none() && tells_nothing {
            return None;
        }
        let mut one = Map::new();
        one.insert("index".into(), json!(index));
        match self.shape {
            Shape::Chat => {
                let content =
                    if text.is_empty() && new.is_empty() { json!({}) } else { json!({"content": text}) };
                one.insert("delta".into(), content);
            }
            Shape::Tokens { with_text: true } => {
                one.insert("text".into(), json!(text));
            }
            Shape::Tokens { with_text: false } => {}
        }
        one.insert("logprobs".into(), self.logprobs(new));
        self.insert_finish(&mut one, choice);
        if self.tells_ids() {
            one.insert("token_ids".into(), ids(new).into());
        }
        let mut chunk = self.head("chat.completion.chunk");
        chunk.insert("choices".into(), json!([one]));
        if self.includes_usage() {
            chunk.insert("usage".into(), Value::Null);
        }
        Some(chunk.into())
    }

    /// The last chunk of a stream, if the request asks for it.
    pub(crate) fn closing(&self, choices: &Choices) -> Option<Value> {
        self.includes_usage().then(|| {
            let mut chunk = self.head("chat.completion.chunk");
            chunk.insert("choices".into(), json!([]));
            chunk.insert("usage".into(), usage(choices));
            chunk.into()
        })
    }

    fn choice(&self, index: usize, choice: &Choice) -> Value {
        let mut one = Map::new();
        one.insert("index".into(), json!(index));
        match self.shape {
            Shape::Chat => {
                let message = json!({"role": "assistant", "content": choice.text.text(), "refusal": null});
                one.insert("message".into(), message);
            }
            Shape::Tokens { with_text: true } => {
                one.insert("text".into(), json!(choice.text.text()));
            }
            Shape::Tokens { with_text: false } => {}
        }
        one.insert("logprobs".into(), self.logprobs(&choice.sampled));
        self.insert_finish(&mut one, choice);
        if self.tells_ids() {
            one.insert("token_ids".into(), ids(&choice.sampled).into());
        }
        one.into()
    }

    fn includes_usage(&self) -> bool {
        self.output.stream.is_some_and(|stream| stream.include_usage)
    }

    fn tells_ids(&self) -> bool {
        self.output.token_ids || self.shape != Shape::Chat
    }

    fn insert_finish(&self, one: &mut Map<String, Value>, choice: &Choice) {
        one.insert("finish_reason".into(), choice.finish.as_ref().map(|finish| finish.reason).into());
        if let Some(finish) = &choice.finish {
            one.insert("stop_reason".into(), finish.stop_reason.clone());
            if self.shape != Shape::Chat {
                let span = json!({
                    "version": choice.version.0.to_string(), "start": 0, "end": choice.sampled.len(),
                });
                one.insert("weight_versions".into(), json!([span]));
            }
        }
    }

    fn head(&self, object: &str) -> Map<String, Value> {
        let head = match self.shape {
            Shape::Chat => json!({
                "id": self.id, "object": object, "created": self.created, "model": self.model.name,
            }),
            Shape::Tokens { with_text } => json!({
                "request_id": self.id, "created": self.created, "model": self.model.name,
                "output_mode": if with_text { "text" } else { "tokens" },
            }),
        };
        match head {
            Value::Object(head) => head,
            _ => Map::new(),
        }
    }

    fn insert_prompt(&self, answer: &mut Map<String, Value>) {
        if self.output.token_ids {
            answer.insert("prompt_token_ids".into(), json!(self.prompt.tokens));
        }
        // small, and how a trainer checks that both sides cut images alike
        if self.shape != Shape::Chat {
            let images = self.prompt.images.iter();
            let images: Vec<Value> =
                images.map(|image| json!({"offset": image.offset, "length": image.length})).collect();
            answer.insert("mm_placeholders".into(), json!({"image": images}));
        }
    }

    fn logprobs(&self, sampled: &[SampledToken]) -> Value {
        if !self.with_logprobs {
            return Value::Null;
        }
        let by_id = self.shape == Shape::Tokens { with_text: false };
        let entry = |one: &SampledToken| if by_id { by_ids(one) } else { self.by_texts(one) };
        json!({"content": sampled.iter().map(entry).collect::<Vec<_>>()})
    }

    /// OpenAI's shape.
    fn by_texts(&self, sampled: &SampledToken) -> Value {
        let one = |token: u32, logp: f32| {
            // the text is for people: a token may be part of a character, whose text is not unique
            let text = self.model.tokenizer.decode(&[token], false).unwrap_or_default();
            let bytes = text.as_bytes().to_vec();
            let text = if self.output.tokens_as_ids { format!("token_id:{token}") } else { text };
            json!({"token": text, "logprob": logp, "bytes": bytes})
        };
        let mut entry = one(sampled.token, sampled.logp);
        let others = sampled.alternatives.iter().filter(|(_, logp)| *logp > NEVER);
        entry["top_logprobs"] = others.map(|&(token, logp)| one(token, logp)).collect::<Vec<_>>().into();
        entry
    }
}

/// vLLM's shape: the sampled token first among its alternatives.
fn by_ids(sampled: &SampledToken) -> Value {
    let SampledToken { token, logp, alternatives } = sampled;
    let rank = alternatives.iter().position(|(other, _)| other == token).map(|at| at + 1);
    let own = json!({"token_id": token, "logprob": logp, "rank": rank});
    let others = alternatives.iter().enumerate().filter(|(_, (other, logp))| other != token && *logp > NEVER);
    let others =
        others.map(|(at, (token, logp))| json!({"token_id": token, "logprob": logp, "rank": at + 1}));
    let top: Vec<Value> = std::iter::once(own.clone()).chain(others).collect();
    let mut entry = own;
    entry["top_logprobs"] = top.into();
    entry
}

fn ids(sampled: &[SampledToken]) -> Vec<u32> {
    sampled.iter().map(|one| one.token).collect()
}

fn usage(choices: &Choices) -> Value {
    let (prompt, response) = (choices.prompt_tokens, choices.response_tokens());
    let cached = choices.all.iter().filter_map(|choice| choice.cached).min();
    json!({
        "prompt_tokens": prompt, "completion_tokens": response, "total_tokens": prompt + response,
        "prompt_tokens_details": {"cached_tokens": cached.unwrap_or(0)},
    })
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
