//! The ids that are served for a conversation are those that the trainer assembles for it.

use crate::fixture::{Fixture, data_url, engine, screenshot};
use arpo_agent::conversation::{Content, Turn, conversation};
use arpo_core::trajectory::ImageRef;
use arpo_engine::{Penalties, Request, Sampling, Screenshot};
use arpo_train::dialogue::assemble;
use serde_json::{Value, json};
use std::sync::Arc;

fn image_ref(number: u32) -> ImageRef {
    let (width, height) = screenshot(number).dimensions();
    ImageRef { digest: number.to_string(), width, height }
}

/// A conversation of three turns as a chat request, and as the trainer's tokens.
fn conversation_both_ways(fixture: &Fixture) -> (Vec<Value>, Vec<u32>) {
    let agent = &fixture.agent;
    let responses = ["Action: click(start_box='(12,30)')", "Action: type(content='é')"];
    let past: Vec<Turn> = (0..)
        .zip(responses)
        .map(|(number, response)| Turn { screenshot: image_ref(number), response: response.into() })
        .collect();
    let messages = conversation("Open the mail.", &past, Some(&image_ref(2)), &agent.style);
    let chat = messages.iter().map(|message| {
        let part = |content: &Content| match content {
            Content::Text(text) => json!({"type": "text", "text": text}),
            Content::Image(image) => {
                json!({"type": "image_url", "image_url": {"url": data_url(&screenshot(image.digest.parse().unwrap()))}})
            }
        };
        let content: Vec<Value> = message.content.iter().map(part).collect();
        json!({"role": message.role.name(), "content": content})
    });
    let tokens = responses.map(|response| {
        let mut tokens = agent.tokenizer.encode(response).unwrap();
        tokens.push(agent.end_token);
        tokens
    });
    let grids: Vec<_> = (0..3).map(|_| agent.processor.grid(112, 84).unwrap()).collect();
    let assembled = assemble(agent, &messages, &tokens, &grids, true).unwrap();
    (chat.collect(), assembled.tokens)
}

#[test]
fn a_conversation_has_the_tokens_of_the_trainer() {
    let fixture = Fixture::new();
    let (messages, tokens) = conversation_both_ways(&fixture);
    let body = json!({"messages": messages, "max_tokens": 4, "temperature": 0, "return_token_ids": true});
    let served = fixture.chat(&body);
    assert_eq!(served["prompt_token_ids"], json!(tokens));
    assert_eq!(served["usage"]["prompt_tokens"], tokens.len());

    // one placeholder an image, as a trainer sends it; the server expands them
    let (mut compact, mut last) = (Vec::new(), None);
    for &token in &tokens {
        if token != fixture.agent.image_token || last != Some(token) {
            compact.push(token);
        }
        last = Some(token);
    }
    let parts: Vec<Value> = (0..3)
        .map(|number| json!({"type": "image_url", "image_url": {"url": data_url(&screenshot(number))}, "uuid": "s"}))
        .collect();
    let body = json!({
        "token_ids": compact, "content_parts": parts, "return_token_ids": true, "request_id": "mine",
        "sampling_params": {"max_tokens": 4, "temperature": 0, "logprobs": 2},
    });
    let (status, generated) = fixture.post("/inference/v1/generate", &body);
    assert_eq!(status, 200, "{generated}");
    assert_eq!(generated["prompt_token_ids"], json!(tokens));
    assert_eq!(generated["request_id"], "mine");
    let choice = &generated["choices"][0];
    assert_eq!(choice["token_ids"], served["choices"][0]["token_ids"]);
    let count = choice["token_ids"].as_array().unwrap().len();
    assert_eq!(choice["weight_versions"], json!([{"version": "3", "start": 0, "end": count}]));
    for (image, placeholders) in generated["mm_placeholders"]["image"].as_array().unwrap().iter().enumerate()
    {
        let [offset, length] = ["offset", "length"].map(|key| placeholders[key].as_u64().unwrap() as usize);
        assert!(
            tokens[offset..offset + length].iter().all(|&token| token == fixture.agent.image_token),
            "{image}"
        );
        assert_eq!(length, fixture.agent.processor.grid(112, 84).unwrap().features(fixture.agent.merge));
    }
    for (at, entry) in choice["logprobs"]["content"].as_array().unwrap().iter().enumerate() {
        assert_eq!(entry["token_id"], choice["token_ids"][at]);
        // greedy: the sampled token is the most likely
        assert_eq!((&entry["rank"], entry["top_logprobs"].as_array().unwrap().len()), (&json!(1), 2));
        assert_eq!(entry["top_logprobs"][0]["logprob"], entry["logprob"]);
    }

    // expanded placeholders are not expanded again
    let body = json!({"token_ids": tokens, "content_parts": parts, "sampling_params": {}});
    let (status, refused) = fixture.post("/inference/v1/generate", &body);
    let message = refused["error"]["message"].as_str().unwrap();
    assert_eq!(status, 400);
    assert!(message.contains("image placeholders for 3 images: expected one placeholder"), "{message}");
}

/// The same tokens with the same log-probabilities as the engine itself gives.
#[test]
fn responses_are_those_of_the_engine() {
    let fixture = Fixture::new();
    let (messages, tokens) = conversation_both_ways(&fixture);
    let (mut engine, agent) = engine();
    for (temperature, seed) in [(0.0, 1), (1.0, 2), (0.7, u64::MAX)] {
        let request = Request {
            tokens: tokens.clone(),
            screenshots: (0..3)
                .map(|number| Screenshot::new(number.to_string(), Arc::new(screenshot(number))))
                .collect(),
            sampling: Sampling {
                temperature,
                top_k: None,
                top_p: None,
                max_tokens: 24,
                stop: vec![agent.end_token],
                penalties: Penalties::default(),
                alternatives: 0,
                seed,
                turn: 0,
            },
            forced: vec![],
        };
        engine.submit(request).unwrap();
        let mut completed = Vec::new();
        while engine.pending() > 0 {
            completed.extend(engine.pass().unwrap());
        }
        let expected = completed.remove(0).1;
        let body = json!({
            "messages": messages, "max_tokens": 24, "temperature": temperature, "seed": seed,
            "return_token_ids": true, "return_tokens_as_token_ids": true, "logprobs": true,
        });
        let choice = fixture.chat(&body)["choices"][0].clone();
        assert_eq!(choice["token_ids"], json!(expected.tokens));
        let decoded = agent.tokenizer.decode(&expected.tokens, true).unwrap();
        assert_eq!(choice["message"]["content"], json!(decoded));
        let entries = choice["logprobs"]["content"].as_array().unwrap();
        assert_eq!(entries.len(), expected.logp.len());
        for ((entry, token), logp) in entries.iter().zip(&expected.tokens).zip(&expected.logp) {
            assert_eq!(entry["token"], format!("token_id:{token}"));
            assert!((entry["logprob"].as_f64().unwrap() - f64::from(*logp)).abs() < 1e-4);
        }
    }
}
