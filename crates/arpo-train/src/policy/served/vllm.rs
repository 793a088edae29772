//! vLLM's HTTP interface, as vLLM 0.32 has it: tokens in and out by `/inference/v1/generate` (`--enable-scale-out`), or by
//! chat requests that return token ids where that is missing; control requests of its development mode
//! (`VLLM_SERVER_DEV_MODE=1`).
//!
//! A chat request sends the text of earlier responses, which the server tokenises again. Where that gives other tokens than
//! were sampled, the prompts differ, and the episode cannot be continued: so `/inference/v1/generate` is preferred.

use super::fleet::Target;
use super::protocol::{Line, Protocol, Sampled, ServedOptions, ServedPrompt, Unusable};
use crate::agent::Agent;
use crate::episode::EpisodeScreen;
use crate::policy::data_urls::data_url;
use crate::policy::http::{Problem, one_line};
use crate::policy::messages::messages;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Added to the logits of forbidden tokens: their probability is exactly 0 at any temperature.
const FORBIDDEN: f64 = -1e30;

/// The same in chat requests, which allow no more.
const FORBIDDEN_IN_CHAT: f64 = -100.0;

/// What a server says of a screen that it should have and has not.
const MISSING: &str = "data is not provided";

/// The label of weights that are being replaced.
const UPDATING: &str = "updating";

/// vLLM's servers.
#[derive(Debug)]
pub(super) struct Vllm {
    agent: Arc<Agent>,
    /// The servers without tokens in and out, and the names of their models.
    chat_models: Mutex<HashMap<String, String>>,
    /// The digests of screens that each server has seen since its last update, and should still have.
    seen: Mutex<HashMap<String, HashSet<Arc<str>>>>,
}

impl Vllm {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self { agent, chat_models: Mutex::default(), seen: Mutex::default() }
    }

    fn chat_model(&self, address: &str) -> Option<String> {
        self.chat_models.lock().unwrap_or_else(PoisonError::into_inner).get(address).cloned()
    }

    /// Finds out which of the two ways of asking the server has.
    fn find_way(&self, line: Line) -> Result<(), Problem> {
        // a GET of an existing path is a wrong method
        let found = match line.get("/inference/v1/generate") {
            Err(Problem::Refused { status: 404, .. }) => false,
            // the path is not told to those without the key
            Err(problem @ Problem::Refused { status: 401 | 403, .. }) => return Err(problem),
            Err(Problem::Refused { .. }) | Ok(_) => true,
            Err(problem) => return Err(problem),
        };
        let model = if found {
            None
        } else {
            let models = line.get("/v1/models")?;
            let name = models["data"][0]["id"].as_str();
            Some(name.ok_or_else(|| garbled("a list of models", &models))?.to_owned())
        };
        let mut chat_models = self.chat_models.lock().unwrap_or_else(PoisonError::into_inner);
        match model {
            None => chat_models.remove(line.address),
            Some(model) => chat_models.insert(line.address.to_owned(), model),
        };
        Ok(())
    }

    fn chat(
        &self,
        line: Line,
        model: &str,
        prompt: &ServedPrompt,
        options: &ServedOptions,
    ) -> Result<Sampled, Problem> {
        let messages = messages(&prompt.history, &self.agent.style, true).map_err(Problem::Garbled)?;
        let mut body = sampling(prompt, options, FORBIDDEN_IN_CHAT);
        body.extend([
            ("model".into(), json!(model)),
            ("messages".into(), messages),
            ("logprobs".into(), json!(true)),
            ("top_logprobs".into(), json!(0)),
            ("return_token_ids".into(), json!(true)),
        ]);
        let answer = line.post("/v1/chat/completions", &Value::Object(body))?;
        let mut sampled = sampled(&answer)?;
        // chat answers do not carry the label; a server that was started again has another one
        sampled.labels = vec![label(line)?];
        sampled.retokenised = true;
        Ok(sampled)
    }
}

impl Protocol for Vllm {
    fn inspect(&self, line: Line, options: &ServedOptions) -> Result<(), Unusable> {
        let info = match line.get("/server_info?config_format=json") {
            Err(Problem::Refused { status: 404, .. }) => {
                return Err(Unusable::Refused(
                    "it cannot be given new weights: expected vLLM 0.32 or newer, started with \
                     VLLM_SERVER_DEV_MODE=1 in its environment"
                        .into(),
                ));
            }
            info => info?,
        };
        check_settings(&info, options).map_err(Unusable::Refused)?;
        let on_cpu = info["vllm_config"]["device_config"]["device"] == json!("cpu");
        if on_cpu && options.tied_head && !has_own_head(line)? {
            return Err(Unusable::Refused(
                "vLLM on a CPU does not renew the output head of a model with tied embeddings: expected `rollout.start`, \
                 or a server of a copy of the model with `lm_head.weight` and \"tie_word_embeddings\": false"
                    .into(),
            ));
        }
        Ok(self.find_way(line)?)
    }

    fn update(&self, line: Line, target: &Target) -> Result<(), Unusable> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(line.address);
        // it failed at a request and still has these weights: the requests of others go on. The label is the engine's own, so
        // one that hangs does not answer; at most the end of a pause is missing
        if label(line).is_ok_and(|label| label == target.label) {
            return line.post("/resume", &json!({})).map(drop).map_err(Into::into);
        }
        // requests that nobody waits for any more would hold the pause up
        line.post("/pause?mode=abort", &json!({}))?;
        let updated = replace(line, target);
        let resumed = line.post("/resume", &json!({}));
        updated?;
        resumed?;
        match label(line)? {
            label if label == target.label => Ok(()),
            other => Err(Problem::Garbled(format!(
                "it has weights {other:?} after an update to {:?}: does another run use it?",
                target.label
            ))
            .into()),
        }
    }

    fn sample(&self, line: Line, prompt: &ServedPrompt, options: &ServedOptions) -> Result<Sampled, Problem> {
        if let Some(model) = self.chat_model(line.address) {
            return self.chat(line, &model, prompt, options);
        }
        let digests = |seen: &mut HashMap<String, HashSet<Arc<str>>>| {
            seen.entry(line.address.to_owned()).or_default().clone()
        };
        let seen = digests(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let ask = |seen| line.post("/inference/v1/generate", &request(prompt, options, seen)?);
        let answer = match ask(&seen) {
            // its cache has dropped a screen
            Err(Problem::Refused { status: 400, message })
                if message.contains(MISSING) && !seen.is_empty() =>
            {
                self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(line.address);
                ask(&HashSet::new())?
            }
            answer => answer?,
        };
        let shown = prompt.screens.iter().map(|screen| Arc::clone(screen.digest()));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry(line.address.to_owned()).or_default().extend(shown);
        drop(seen);
        sampled(&answer)
    }
}

/// A request for tokens in and out. A screen that the server has seen is named, and not sent again: an episode shows its last
/// screenshots in every request.
fn request(
    prompt: &ServedPrompt,
    options: &ServedOptions,
    seen: &HashSet<Arc<str>>,
) -> Result<Value, Problem> {
    let mut sampling = sampling(prompt, options, FORBIDDEN);
    sampling.extend([("logprobs".into(), json!(0)), ("detokenize".into(), json!(false))]);
    let part = |screen: &EpisodeScreen| {
        let url = (!seen.contains(screen.digest())).then(|| data_url(screen)).transpose();
        let url = url.map_err(Problem::Garbled)?;
        // the URL lies flat here, other than in chat messages: there the server would take the screen for missing
        Ok(json!({"type": "image_url", "url": url, "uuid": &**screen.digest()}))
    };
    let parts = prompt.screens.iter().map(part).collect::<Result<Vec<Value>, Problem>>()?;
    Ok(json!({
        "token_ids": prompt.with_one_placeholder_each(),
        "content_parts": parts,
        "sampling_params": sampling,
        "return_token_ids": true,
        "output_mode": "tokens",
    }))
}

/// Replaces the weights of a paused server, and everything that was computed with the old ones.
fn replace(line: Line, target: &Target) -> Result<(), Problem> {
    line.post("/update_weight_version", &json!({"new_version": UPDATING}))?;
    let folder = target.folder.to_string_lossy();
    let reload = json!({"method": "reload_weights", "kwargs": {"weights_path": folder}});
    line.post("/collective_rpc", &reload).map_err(|problem| match problem {
        Problem::Refused { status, message } => Problem::Refused {
            status,
            message: format!("{folder} cannot be read there as its model's weights: {message}"),
        },
        other => other,
    })?;
    let reset = line.post("/reset_prefix_cache", &json!({}))?;
    if reset["success"] == json!(false) {
        return Err(Problem::Garbled("its prefix cache could not be emptied".into()));
    }
    line.post("/reset_mm_cache", &json!({}))?;
    line.post("/reset_encoder_cache", &json!({}))?;
    line.post("/update_weight_version", &json!({"new_version": target.label})).map(drop)
}

/// Whether the output head of the server's model is a parameter of its own.
fn has_own_head(line: Line) -> Result<bool, Problem> {
    let checked = line.post("/weight_checker", &json!({"action": "checksum"}))?;
    let checksums = checked["checksums"].as_object().ok_or_else(|| garbled("checksums", &checked))?;
    Ok(checksums.keys().any(|name| name.contains("lm_head")))
}

fn label(line: Line) -> Result<String, Problem> {
    let info = line.get("/weight_info")?;
    info["weight_version"].as_str().map(str::to_owned).ok_or_else(|| garbled("a weight version", &info))
}

/// Whether the settings of a server give log-probabilities and prompts that can be trained on.
fn check_settings(info: &Value, options: &ServedOptions) -> Result<(), String> {
    let model = &info["vllm_config"]["model_config"];
    match model["logprobs_mode"].as_str() {
        Some("processed_logprobs") => {}
        Some("raw_logprobs") if is_one(options.trained_temperature) => {}
        mode => {
            return Err(format!(
                "its log-probabilities are {:?}, not those of the distribution that is sampled from: expected a server \
                 started with --logprobs-mode processed_logprobs{}",
                mode.unwrap_or("unknown"),
                if mode == Some("raw_logprobs") { ", or `collect.temperature` = 1" } else { "" }
            ));
        }
    }
    let most = model["multimodal_config"]["limit_per_prompt"]["image"]["count"].as_u64();
    if let Some(most) = most.filter(|&most| most < options.images as u64) {
        return Err(format!(
            "it takes {most} images in a prompt: expected a server started with --limit-mm-per-prompt \
             '{{\"image\": {}}}', or a smaller `agent.max_screenshots`",
            options.images
        ));
    }
    Ok(())
}

fn is_one(temperature: f64) -> bool {
    (temperature - 1.0).abs() < 1e-9
}

/// Sampling from the whole distribution. Everything is named, because a server has defaults of its own, from the model's
/// `generation_config.json`. There is no seed: batches and updates are not repeatable anyway, and vLLM 0.32 on a CPU dies of
/// seeded requests whose prompts it splits.
fn sampling(prompt: &ServedPrompt, options: &ServedOptions, forbidden: f64) -> Map<String, Value> {
    let bias: Map<String, Value> =
        options.forbidden.iter().map(|token| (token.to_string(), json!(forbidden))).collect();
    let value = json!({
        "temperature": prompt.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "max_tokens": options.max_tokens,
        "min_tokens": 0,
        // the model's own end tokens may be others
        "ignore_eos": true,
        "stop_token_ids": [options.end_token],
        "logit_bias": bias,
    });
    match value {
        Value::Object(map) => map,
        _ => unreachable!("an object was written"),
    }
}

/// Reads the answer to either kind of request.
fn sampled(answer: &Value) -> Result<Sampled, Problem> {
    let choice = &answer["choices"][0];
    let wrong = |what| garbled(what, answer);
    let tokens = ids(&choice["token_ids"]).ok_or_else(|| wrong("choices[0].token_ids"))?;
    let content = choice["logprobs"]["content"].as_array();
    let content = content.ok_or_else(|| wrong("choices[0].logprobs.content"))?;
    let logp: Option<Vec<f32>> = content.iter().map(|one| Some(one["logprob"].as_f64()? as f32)).collect();
    let logp = logp.ok_or_else(|| wrong("a log-probability of every token"))?;
    let complete = match choice["finish_reason"].as_str() {
        Some("stop") => true,
        Some("length") => false,
        // the server was paused for other weights, or is ending
        Some(other) => return Err(Problem::Garbled(format!("the response ended by {other:?}"))),
        None => return Err(wrong("choices[0].finish_reason")),
    };
    let spans = choice["weight_versions"].as_array().into_iter().flatten();
    let labels = spans.filter_map(|span| span["version"].as_str().map(str::to_owned)).collect();
    let images = answer["mm_placeholders"]["image"].as_array();
    let range = |place: &Value| -> Option<Range<usize>> {
        let (start, length) = (place["offset"].as_u64()? as usize, place["length"].as_u64()? as usize);
        Some(start..start.checked_add(length)?)
    };
    let images = match images {
        None => None,
        Some(places) => {
            let ranges: Option<Vec<_>> = places.iter().map(range).collect();
            Some(ranges.ok_or_else(|| wrong("mm_placeholders"))?)
        }
    };
    let prompt = ids(&answer["prompt_token_ids"]);
    Ok(Sampled { tokens, logp, complete, labels, prompt, images, retokenised: false })
}

fn ids(value: &Value) -> Option<Vec<u32>> {
    value.as_array()?.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}

fn garbled(expected: &str, answer: &Value) -> Problem {
    Problem::Garbled(format!("an answer without {expected}: {}", one_line(&answer.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(temperature: f64, images: usize) -> ServedOptions {
        ServedOptions {
            max_tokens: 9,
            end_token: 2,
            forbidden: vec![5, 6],
            trained_temperature: temperature,
            images,
            tied_head: false,
            key_variable: "KEY".into(),
            has_key: false,
        }
    }

    fn info(mode: &str, images: u64) -> Value {
        let limit = json!({"limit_per_prompt": {"image": {"count": images}}});
        json!({"vllm_config": {"model_config": {"logprobs_mode": mode, "multimodal_config": limit}}})
    }

    #[test]
    fn log_probabilities_must_be_those_that_are_sampled_from() {
        assert_eq!(check_settings(&info("processed_logprobs", 9), &options(0.7, 9)), Ok(()));
        assert_eq!(check_settings(&info("raw_logprobs", 9), &options(1.0, 9)), Ok(()));
        let raw = check_settings(&info("raw_logprobs", 9), &options(0.7, 9)).unwrap_err();
        assert!(raw.contains("--logprobs-mode processed_logprobs, or `collect.temperature` = 1"), "{raw}");
        for mode in ["raw_logits", "processed_logits"] {
            assert!(check_settings(&info(mode, 9), &options(1.0, 9)).is_err(), "{mode}");
        }
        assert!(check_settings(&json!({}), &options(1.0, 9)).unwrap_err().contains("unknown"));
    }

    #[test]
    fn a_refused_key_is_said_to_be_one() {
        let refused = |status| Problem::Refused { status, message: "Unauthorized".into() };
        let without = options(1.0, 9);
        let line = without.about_key(&refused(401)).unwrap();
        assert!(line.starts_with("it wants a key: expected it in the environment variable KEY"), "{line}");
        let with = ServedOptions { has_key: true, ..without.clone() };
        assert!(with.about_key(&refused(403)).unwrap().starts_with("it refuses the key in KEY"));
        assert_eq!(with.about_key(&refused(404)), None);
    }

    #[test]
    fn a_server_must_take_enough_images() {
        let few = check_settings(&info("processed_logprobs", 1), &options(1.0, 9)).unwrap_err();
        assert!(few.contains("takes 1 images") && few.contains("'{\"image\": 9}'"), "{few}");
        // without a limit there is none
        let unlimited = json!({"vllm_config": {"model_config": {"logprobs_mode": "processed_logprobs"}}});
        assert_eq!(check_settings(&unlimited, &options(1.0, 9)), Ok(()));
    }

    /// As vLLM 0.32 answered, shortened.
    #[test]
    fn an_answer_of_vllm_is_read() {
        let answer = json!({
            "prompt_token_ids": [1, 7, 5, 5, 8], "mm_placeholders": {"image": [{"offset": 2, "length": 2}]},
            "choices": [{
                "index": 0, "finish_reason": "stop", "stop_reason": null, "token_ids": [273, 2],
                "weight_versions": [{"version": "default", "start": 0, "end": 2}],
                "logprobs": {"content": [
                    {"token_id": 273, "logprob": -0.5, "rank": 1, "top_logprobs": []},
                    {"token_id": 2, "logprob": -0.25, "rank": 1, "top_logprobs": []},
                ]},
            }],
        });
        let expected = Sampled {
            tokens: vec![273, 2],
            logp: vec![-0.5, -0.25],
            complete: true,
            labels: vec!["default".into()],
            prompt: Some(vec![1, 7, 5, 5, 8]),
            images: Some(std::iter::once(2..4).collect()),
            retokenised: false,
        };
        assert_eq!(sampled(&answer), Ok(expected));
        let with = |pointer: &str, value: Value| {
            let mut answer = answer.clone();
            *answer.pointer_mut(pointer).unwrap() = value;
            sampled(&answer)
        };
        assert!(!with("/choices/0/finish_reason", json!("length")).unwrap().complete);
        for (pointer, value) in [
            ("/choices/0/finish_reason", json!("abort")),
            ("/choices/0/finish_reason", json!(null)),
            ("/choices/0/token_ids", json!(null)),
            ("/choices/0/token_ids", json!([-1])),
            ("/choices/0/logprobs", json!(null)),
            ("/choices/0/logprobs/content/0/logprob", json!("x")),
            ("/mm_placeholders/image/0/length", json!(null)),
            ("/choices", json!([])),
        ] {
            assert!(with(pointer, value.clone()).is_err(), "{pointer} {value}");
        }
    }
}
