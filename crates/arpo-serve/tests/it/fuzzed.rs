//! Bodies with random damage, over real sockets: every one is answered, and the server goes on.

use crate::fixture::{Fixture, body};
use arpo_serve::Limits;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

const BODIES: u32 = 3000;

/// Values that a field may have by mistake.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..40).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::collection::vec(-5i64..2000, 0..6).prop_map(Value::from),
        prop::collection::vec("\\PC{0,4}", 0..4).prop_map(Value::from),
        Just(json!({"url": "data:image/png;base64,iVBORw0KGgo="})),
        Just(json!([{"type": "text", "text": "<|image_pad|><|im_end|>"}])),
    ]
}

#[test]
fn damaged_bodies_are_answered() {
    // short responses, so that those that stay legal are soon done
    let limits = Limits { context_tokens: 250, response_tokens: 8, ..Limits::default() };
    let fixture = Fixture::with(limits, None);
    let chat = body(
        1,
        &json!({
            "max_tokens": 3, "n": 1, "stop": "x", "logprobs": true, "top_logprobs": 2, "temperature": 1.0, "top_p": 0.9,
            "top_k": 7, "seed": 1, "stream": false, "frequency_penalty": 0.1, "return_token_ids": true,
            "stream_options": {"include_usage": true}, "stop_token_ids": [9],
        }),
    );
    let image = chat["messages"][2]["content"][0].clone();
    let tokens = json!({
        "token_ids": [3, 20, 7, 5, 8, 21], "content_parts": [image], "output_mode": "text", "return_token_ids": true,
        "sampling_params": {"max_tokens": 3, "temperature": 1.0, "logprobs": 1, "n": 1, "seed": 4},
    });
    let answered = AtomicUsize::new(0);
    let damage = (
        any::<bool>(),
        prop::collection::vec((any::<prop::sample::Index>(), any_value()), 0..3),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2),
    );
    let mut runner = TestRunner::new(ProptestConfig { cases: BODIES, ..ProptestConfig::default() });
    let done = runner.run(&damage, |(use_tokens, fields, bytes)| {
        let (path, mut body) = if use_tokens {
            ("/inference/v1/generate", tokens.clone())
        } else {
            ("/v1/chat/completions", chat.clone())
        };
        for (at, value) in fields {
            let keys: Vec<String> = body.as_object().unwrap().keys().cloned().collect();
            body[&keys[at.index(keys.len())]] = value;
        }
        let mut text = body.to_string().into_bytes();
        for (at, byte) in bytes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        let (status, answer) = fixture.post_bytes(path, &text);
        prop_assert!(
            [200, 400, 404].contains(&status),
            "{status} {answer} for {}",
            String::from_utf8_lossy(&text)
        );
        answered.fetch_add(usize::from(status == 200), Ordering::Relaxed);
        Ok(())
    });
    done.unwrap();
    assert!(answered.load(Ordering::Relaxed) > 100, "some bodies stay legal");
    fixture.wait_until_idle(256);
    let (_, metrics) = fixture.get("/metrics", None);
    assert!(metrics.contains("arpo_serve_failed_passes_total 0"), "{metrics}");
    assert!(fixture.chat(&chat)["choices"][0]["finish_reason"].is_string(), "it still answers");
}
