//! `SGLang`'s HTTP interface, from its source (0.5.23); not tried with a running server.
//!
//! `/generate` takes token ids and images and returns the sampled ids with their log-probabilities. Those are of the
//! distribution before the temperature unless the server says otherwise, so the temperature must be 1. It does not return
//! where it put the images: only the length of the prompt can be compared.

use super::fleet::Target;
use super::protocol::{Line, Protocol, Sampled, ServedOptions, ServedPrompt, Unusable};
use crate::policy::data_urls::data_url;
use crate::policy::http::{Problem, one_line};
use serde_json::{Map, Value, json};

/// Added to the logits of forbidden tokens, before the temperature.
const FORBIDDEN: f64 = -1e30;

/// `SGLang`'s servers.
#[derive(Debug)]
pub(super) struct Sglang;

impl Protocol for Sglang {
    fn inspect(&self, line: Line, options: &ServedOptions) -> Result<(), Unusable> {
        line.get("/get_server_info")?;
        if (options.trained_temperature - 1.0).abs() > 1e-9 {
            return Err(Unusable::Refused(format!(
                "SGLang's log-probabilities do not include the temperature: expected `collect.temperature` = 1, not {}",
                options.trained_temperature
            )));
        }
        Ok(())
    }

    fn update(&self, line: Line, target: &Target) -> Result<(), Unusable> {
        let body = json!({
            "model_path": target.folder.to_string_lossy(),
            "abort_all_requests": true,
            "flush_cache": true,
            "weight_version": target.label,
        });
        let answer = line.post("/update_weights_from_disk", &body)?;
        if answer["success"] == json!(true) {
            return Ok(());
        }
        Err(Problem::Garbled(format!("it did not take the weights: {}", one_line(&answer.to_string())))
            .into())
    }

    fn sample(&self, line: Line, prompt: &ServedPrompt, options: &ServedOptions) -> Result<Sampled, Problem> {
        let bias: Map<String, Value> =
            options.forbidden.iter().map(|token| (token.to_string(), json!(FORBIDDEN))).collect();
        let images = prompt.screens.iter().map(data_url).collect::<Result<Vec<_>, _>>();
        let images = images.map_err(Problem::Garbled)?;
        let body = json!({
            "input_ids": prompt.with_one_placeholder_each(),
            "image_data": images,
            "return_logprob": true,
            "logprob_start_len": -1,
            "sampling_params": {
                "temperature": prompt.temperature,
                "top_p": 1.0,
                "top_k": -1,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "frequency_penalty": 0.0,
                "presence_penalty": 0.0,
                "max_new_tokens": options.max_tokens,
                "stop_token_ids": [options.end_token],
                "logit_bias": bias,
                "skip_special_tokens": false,
                "no_stop_trim": true,
            },
        });
        sampled(&line.post("/generate", &body)?, prompt, options)
    }
}

fn sampled(answer: &Value, prompt: &ServedPrompt, options: &ServedOptions) -> Result<Sampled, Problem> {
    let (tokens, logp, complete, labels) = read(answer, prompt.tokens.len())?;
    Ok(Sampled {
        // an end token at the last place counts as its length there
        complete: complete || tokens.last() == Some(&options.end_token),
        tokens,
        logp,
        labels,
        // not returned; the length was compared
        prompt: Some(prompt.tokens.clone()),
        images: Some(prompt.images.clone()),
        retokenised: false,
    })
}

type Read = (Vec<u32>, Vec<f32>, bool, Vec<String>);

/// Tokens, log-probabilities, whether it ended by itself, and the labels of the weights; `ours` is the length of our prompt.
fn read(answer: &Value, ours: usize) -> Result<Read, Problem> {
    let info = &answer["meta_info"];
    let garbled =
        |what: &str| Problem::Garbled(format!("an answer without {what}: {}", one_line(&answer.to_string())));
    let pairs = info["output_token_logprobs"].as_array().ok_or_else(|| garbled("output_token_logprobs"))?;
    let pair = |pair: &Value| Some((u32::try_from(pair[1].as_u64()?).ok()?, pair[0].as_f64()? as f32));
    let pairs: Option<Vec<(u32, f32)>> = pairs.iter().map(pair).collect();
    let (tokens, logp) = pairs.ok_or_else(|| garbled("tokens with log-probabilities"))?.into_iter().unzip();
    let complete = match info["finish_reason"]["type"].as_str() {
        Some("stop") => true,
        Some("length") => false,
        Some(other) => return Err(Problem::Garbled(format!("the response ended by {other:?}"))),
        None => return Err(garbled("finish_reason")),
    };
    let read = info["prompt_tokens"].as_u64().ok_or_else(|| garbled("prompt_tokens"))?;
    if read != ours as u64 {
        return Err(Problem::Garbled(format!(
            "it read a prompt of {read} tokens, ours has {ours}: does its image processor use other sizes?"
        )));
    }
    let labels = info["weight_version"].as_str().map(str::to_owned).into_iter().collect();
    Ok((tokens, logp, complete, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As its source builds it.
    #[test]
    fn an_answer_is_read() {
        let answer = |reason: &str| {
            json!({"meta_info": {
                "output_token_logprobs": [[-0.5, 273, null], [-0.25, 2, null]], "prompt_tokens": 4,
                "finish_reason": {"type": reason}, "weight_version": "arpo-1",
            }})
        };
        let expected = (vec![273, 2], vec![-0.5, -0.25], true, vec!["arpo-1".to_owned()]);
        assert_eq!(read(&answer("stop"), 4), Ok(expected));
        assert!(!read(&answer("length"), 4).unwrap().2);
        assert!(read(&answer("abort"), 4).is_err() && read(&json!({}), 4).is_err());
        assert!(read(&answer("stop"), 5).unwrap_err().to_string().contains("of 4 tokens, ours has 5"));
    }
}
