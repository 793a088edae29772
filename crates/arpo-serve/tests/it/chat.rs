//! Chat completions: choices, streams, stop strings, log-probabilities, errors.

use crate::fixture::{Fixture, body, image_part};
use serde_json::{Value, json};

fn content(response: &Value, index: usize) -> String {
    response["choices"][index]["message"]["content"].as_str().unwrap().to_owned()
}

#[test]
fn a_stream_gives_the_same_response() {
    let fixture = Fixture::new();
    let asked = json!({
        "n": 3, "logprobs": true, "top_logprobs": 2, "return_token_ids": true, "temperature": 1.0,
    });
    let whole = fixture.chat(&body(1, &asked));
    let mut streamed = body(1, &asked);
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let chunks = fixture.stream("/v1/chat/completions", &streamed);
    assert_eq!(chunks[0]["object"], "chat.completion.chunk");
    assert_eq!(chunks[0]["prompt_token_ids"], whole["prompt_token_ids"]);
    let usage = &chunks.last().unwrap()["usage"];
    for key in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(usage[key], whole["usage"][key], "{key}");
    }
    assert!(
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0,
        "the prompt is in the cache"
    );
    for index in 0..3 {
        let (mut text, mut ids, mut logprobs, mut finish) = (String::new(), vec![], vec![], Value::Null);
        for choice in chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()) {
            if choice["index"] != index {
                continue;
            }
            assert!(finish.is_null(), "nothing comes after the end");
            text.push_str(choice["delta"]["content"].as_str().unwrap_or(""));
            ids.extend(choice["token_ids"].as_array().into_iter().flatten().cloned());
            logprobs.extend(choice["logprobs"]["content"].as_array().into_iter().flatten().cloned());
            finish = choice["finish_reason"].clone();
        }
        let expected = &whole["choices"][index];
        assert_eq!(text, content(&whole, index));
        assert_eq!((&json!(ids), &finish), (&expected["token_ids"], &expected["finish_reason"]));
        assert_eq!(logprobs.len(), expected["logprobs"]["content"].as_array().unwrap().len());
        for entry in &logprobs {
            let top = entry["top_logprobs"].as_array().unwrap();
            assert!(top.len() == 2 && top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64(), "{entry}");
        }
    }
    // choices differ, and the first is that of a request for one
    let alone = fixture.chat(&body(1, &json!({"temperature": 1.0})));
    assert_eq!(content(&alone, 0), content(&whole, 0));
    fixture.wait_until_idle(256);
}

#[test]
fn stop_strings_end_a_response() {
    let fixture = Fixture::new();
    let whole = fixture.chat(&body(2, &json!({"temperature": 0, "max_tokens": 24})));
    let text = content(&whole, 0);
    let (at, stop) = text.char_indices().nth(5).map(|(at, _)| (at, &text[at..at + 3])).unwrap();
    let at = text.find(stop).unwrap_or(at);
    for stream in [false, true] {
        let asked = body(
            2,
            &json!({
                "temperature": 0, "max_tokens": 24, "stop": ["never in it", stop], "stream": stream, "return_token_ids": true,
            }),
        );
        let (found, finish) = if stream {
            let chunks = fixture.stream("/v1/chat/completions", &asked);
            let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
            let text =
                choices.clone().filter_map(|choice| choice["delta"]["content"].as_str()).collect::<String>();
            (text, choices.last().unwrap().clone())
        } else {
            let response = fixture.chat(&asked);
            // a stop string ends a response before the engine does; its prompt was in the cache all the same
            assert!(response["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0);
            (content(&response, 0), response["choices"][0].clone())
        };
        assert_eq!(found, &text[..at]);
        assert_eq!((&finish["finish_reason"], &finish["stop_reason"]), (&json!("stop"), &json!(stop)));
    }
    // a stop token belongs to the ids and not to the text
    let ids = fixture.chat(&body(2, &json!({"temperature": 0, "return_token_ids": true})))["choices"][0]["token_ids"].clone();
    let second = ids[1].as_u64().unwrap();
    let cut = fixture
        .chat(&body(2, &json!({"temperature": 0, "return_token_ids": true, "stop_token_ids": [second]})));
    let choice = &cut["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!("stop"), &json!(second)));
    assert_eq!(choice["token_ids"].as_array().unwrap().last(), Some(&json!(second)));
    fixture.wait_until_idle(256);
}

#[test]
fn seeds_penalties_and_lengths_matter() {
    let fixture = Fixture::new();
    let ids = |more: Value| {
        let mut asked =
            json!({"return_token_ids": true, "max_tokens": 40, "ignore_eos": true, "temperature": 1.5});
        for (key, value) in more.as_object().unwrap() {
            asked[key] = value.clone();
        }
        fixture.chat(&body(3, &asked))["choices"][0]["token_ids"].as_array().unwrap().clone()
    };
    assert_eq!(ids(json!({"seed": 5})), ids(json!({"seed": 5})));
    assert_ne!(ids(json!({"seed": 5})), ids(json!({"seed": 6})));
    assert_ne!(ids(json!({"seed": null})), ids(json!({"seed": null})));
    assert_eq!(ids(json!({})).len(), 40);
    let distinct =
        |ids: &[Value]| ids.iter().map(Value::to_string).collect::<std::collections::BTreeSet<_>>().len();
    let repeated = ids(json!({"temperature": 0}));
    let varied = ids(json!({"temperature": 0, "frequency_penalty": 2, "presence_penalty": 2}));
    assert!(distinct(&varied) > distinct(&repeated), "{varied:?} {repeated:?}");
    let first = ids(json!({"top_k": 1}));
    assert_eq!(first, repeated);
}

#[test]
fn messages_of_several_parts_are_one_message() {
    let fixture = Fixture::new();
    let parts = json!([{"type": "text", "text": "Open "}, {"type": "text", "text": "the mail."}, image_part(4), image_part(5)]);
    let body = json!({
        "messages": [{"role": "developer", "content": "GUI agent"}, {"role": "user", "content": parts}],
        "max_completion_tokens": 3, "return_token_ids": true,
    });
    let response = fixture.chat(&body);
    let ids: Vec<u32> = serde_json::from_value(response["prompt_token_ids"].clone()).unwrap();
    let text = fixture.agent.tokenizer.decode(&ids, false).unwrap();
    let pads = text.matches("<|image_pad|>").count();
    assert_eq!(pads, 2 * fixture.agent.processor.grid(112, 84).unwrap().features(fixture.agent.merge));
    assert!(
        text.starts_with(
            "<|im_start|>system\nGUI agent<|im_end|>\n<|im_start|>user\nOpen the mail.<|vision_start|>"
        ),
        "{text}"
    );
    assert_eq!(text.matches("<|im_start|>").count(), 3);
    assert_eq!(response["choices"][0]["finish_reason"], "length");
}

#[test]
fn models_health_and_metrics() {
    let fixture = Fixture::new();
    let models: Value = serde_json::from_str(&fixture.get("/v1/models", None).1).unwrap();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("pocket")));
    assert_eq!(fixture.get("/v1/models/pocket", None).0, 200);
    assert_eq!(fixture.get("/v1/models/gpt", None).0, 404);
    assert_eq!(fixture.get("/health", None).0, 200);
    fixture.chat(&body(1, &json!({"max_tokens": 3, "ignore_eos": true})));
    // the engine's thread tells its load a moment after the response
    fixture.wait_until_idle(256);
    let (status, text) = fixture.get("/metrics", None);
    assert_eq!(status, 200);
    for line in [
        "arpo_serve_responses_total{route=\"/v1/chat/completions\",status=\"200\"} 1",
        "arpo_serve_response_tokens_total 3",
        "arpo_serve_cache_pages_in_use 0",
        "arpo_serve_time_to_first_token_seconds_count 1",
        "arpo_serve_request_seconds_bucket{le=\"+Inf\"} 1",
        "# TYPE process_resident_memory_bytes gauge",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
}
