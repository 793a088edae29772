//! Sampling parameters, which chat and token requests share, and the fields that are accepted only where they change
//! nothing.

use crate::fields::{Fields, Neutral};
use crate::{ApiError, Limits, ServedModel};
use arpo_engine::{Penalties, Sampling};
use serde_json::{Number, Value};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Stop tokens of a request, at most: each sampled token is compared with all of them.
const MOST_STOP_TOKENS: usize = 1024;

/// Alternatives reported with a token at most, as in OpenAI's interface.
const MOST_ALTERNATIVES: usize = 20;
const MOST_STOP_STRINGS: usize = 16;
const LONGEST_STOP_STRING: usize = 1024;
/// A smaller temperature than this divides logits out of the range of numbers.
const LEAST_TEMPERATURE: f64 = 0.01;
const MOST_TEMPERATURE: f64 = 100.0;

/// How the choices of a request are sampled.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Params {
    pub(crate) choices: usize,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) stop_strings: Vec<String>,
    pub(crate) stop_tokens: Vec<u32>,
    pub(crate) skip_special: bool,
    /// How many alternatives are reported with each log-probability; `None` for no log-probabilities.
    pub(crate) logprobs: Option<usize>,
    temperature: f64,
    top_p: Option<f64>,
    top_k: Option<usize>,
    penalties: Penalties,
    seed: u64,
    ignore_end: bool,
}

impl Params {
    /// From the fields of a body or of `sampling_params`; the caller takes those that differ.
    pub(crate) fn take(
        fields: &mut Fields,
        max_tokens: Option<usize>,
        logprobs: Option<usize>,
        limits: &Limits,
        model: &ServedModel,
    ) -> Result<Self, ApiError> {
        check_bias(fields, model)?;
        let within = |fields: &mut Fields, name: &str, low: f64, high: f64| {
            let expected = format!("a number from {low} to {high}");
            let value: Option<f64> = fields.take(name, &expected)?;
            match value {
                Some(value) if !(low..=high).contains(&value) => {
                    Err(fields.wrong(name, &Value::from(value), &expected))
                }
                value => Ok(value),
            }
        };
        let temperature = within(fields, "temperature", 0.0, MOST_TEMPERATURE)?.unwrap_or(1.0);
        if temperature > 0.0 && temperature < LEAST_TEMPERATURE {
            let expected = format!("0 for the most likely token, or a number from {LEAST_TEMPERATURE}");
            return Err(fields.wrong("temperature", &Value::from(temperature), &expected));
        }
        let top_p = within(fields, "top_p", 0.0, 1.0)?;
        if top_p == Some(0.0) {
            return Err(fields.wrong("top_p", &Value::from(0), "a number above 0"));
        }
        let penalties = Penalties {
            frequency: within(fields, "frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
            presence: within(fields, "presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
        };
        let top_k: Option<i64> = fields.take("top_k", "a whole number, -1 or 0 for all tokens")?;
        let top_k = match top_k {
            Some(count) if count < -1 => {
                return Err(fields.wrong(
                    "top_k",
                    &Value::from(count),
                    "at least 1, or -1 or 0 for all tokens",
                ));
            }
            Some(count @ 1..) => Some(count as usize),
            _ => None,
        };
        let choices = fields.take("n", "a whole number")?.unwrap_or(1);
        if choices == 0 || choices > limits.choices {
            let expected = format!("a number from 1 to {}", limits.choices);
            return Err(fields.wrong("n", &Value::from(choices), &expected));
        }
        if max_tokens == Some(0) {
            return Err(ApiError::field(fields.name("max_tokens"), "max_tokens is 0: expected at least 1"));
        }
        if let Some(count) = logprobs.filter(|&count| count > MOST_ALTERNATIVES) {
            let message =
                format!("{count} alternatives for every token: expected at most {MOST_ALTERNATIVES}");
            return Err(ApiError::field(fields.name("top_logprobs"), message));
        }
        let seed = match fields.take::<Number>("seed", "a whole number")? {
            None => random_seed(),
            Some(number) => match (number.as_u64(), number.as_i64()) {
                (Some(seed), _) => seed,
                (None, Some(seed)) => seed.cast_unsigned(),
                (None, None) => return Err(fields.wrong("seed", &Value::Number(number), "a whole number")),
            },
        };
        Ok(Self {
            choices,
            max_tokens,
            stop_strings: stop_strings(fields)?,
            stop_tokens: stop_tokens(fields)?,
            skip_special: fields.take("skip_special_tokens", "true or false")?.unwrap_or(true),
            logprobs,
            temperature,
            top_p,
            top_k,
            penalties,
            seed,
            ignore_end: fields.take("ignore_eos", "true or false")?.unwrap_or(false),
        })
    }

    /// The engine's parameters for one choice.
    pub(crate) fn sampling(&self, choice: usize, max_tokens: usize, end_token: u32) -> Sampling {
        let end = (!self.ignore_end).then_some(end_token);
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            max_tokens,
            stop: end.into_iter().chain(self.stop_tokens.iter().copied()).collect(),
            penalties: self.penalties,
            alternatives: self.logprobs.unwrap_or(0),
            seed: self.seed,
            turn: choice as u64,
        }
    }
}

fn stop_tokens(fields: &mut Fields) -> Result<Vec<u32>, ApiError> {
    let tokens: Vec<u32> = fields.take("stop_token_ids", "an array of token ids")?.unwrap_or_default();
    if tokens.len() > MOST_STOP_TOKENS {
        let name = fields.name("stop_token_ids");
        let message = format!("{name} has {} tokens: expected at most {MOST_STOP_TOKENS}", tokens.len());
        return Err(ApiError::field(&name, message));
    }
    Ok(tokens)
}

fn stop_strings(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let expected =
        format!("a text, or up to {MOST_STOP_STRINGS} of them, each of 1 to {LONGEST_STOP_STRING} bytes");
    let Some(value) = fields.take_value("stop") else { return Ok(vec![]) };
    let strings = match &value {
        Value::String(text) => Some(vec![text.clone()]),
        value => serde_json::from_value::<Vec<String>>(value.clone()).ok(),
    };
    let legal = |text: &String| (1..=LONGEST_STOP_STRING).contains(&text.len());
    match strings {
        Some(strings) if strings.len() <= MOST_STOP_STRINGS && strings.iter().all(legal) => Ok(strings),
        _ => Err(fields.wrong("stop", &value, &expected)),
    }
}

/// A bias is accepted if it only forbids what is never sampled anyway, as trainers that list such tokens do.
fn check_bias(fields: &mut Fields, model: &ServedModel) -> Result<(), ApiError> {
    const FORBIDS: f64 = -100.0;
    let Some(value) = fields.take_value("logit_bias") else { return Ok(()) };
    let forbids = |(token, bias): (&String, &Value)| {
        let token = token.parse::<u32>().ok();
        token.is_some_and(|token| model.forbidden.contains(&token))
            && bias.as_f64().is_some_and(|bias| bias <= FORBIDS)
    };
    match value.as_object() {
        Some(bias) if bias.iter().all(forbids) => Ok(()),
        _ => Err(fields.wrong(
            "logit_bias",
            &value,
            "none, or -100 for tokens that are never sampled here: roles, images, ids without text",
        )),
    }
}

/// A seed for a request that gives none, or an id.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}

fn is_false(value: &Value) -> bool {
    value == &Value::Bool(false)
}

fn is_true(value: &Value) -> bool {
    value == &Value::Bool(true)
}

const fn neutral(name: &'static str, accepts: fn(&Value) -> bool, expected: &'static str) -> Neutral {
    Neutral { name, accepts, expected }
}

/// Sampling parameters of OpenAI and vLLM that the engine does not have.
pub(crate) const UNSUPPORTED: &[Neutral] = &[
    neutral("repetition_penalty", is_one, "1"),
    neutral("length_penalty", is_one, "1"),
    neutral("min_p", is_zero, "0"),
    neutral("min_tokens", is_zero, "0"),
    neutral("best_of", is_one, "1"),
    neutral("use_beam_search", is_false, "false"),
    neutral("include_stop_str_in_output", is_false, "false"),
    neutral("spaces_between_special_tokens", is_true, "true"),
    neutral("detokenize", is_true, "true"),
    neutral("bad_words", is_empty, "none"),
    neutral("allowed_token_ids", is_empty, "none"),
    neutral("tools", is_empty, "none"),
    neutral("functions", is_empty, "none"),
    neutral("tool_choice", |value| value == "none" || value == "auto", "\"none\""),
    neutral("response_format", |value| value["type"] == "text", "{\"type\": \"text\"}"),
    neutral("modalities", |value| *value == serde_json::json!(["text"]), "[\"text\"]"),
    neutral("echo", is_false, "false"),
    neutral("continue_final_message", is_false, "false"),
    neutral("chat_template_kwargs", is_empty, "none"),
    neutral("vllm_xargs", is_empty, "none"),
    neutral("priority", is_zero, "0"),
];

/// Fields that say nothing about the response.
pub(crate) const HARMLESS: &[&str] = &[
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
    "request_id",
];
