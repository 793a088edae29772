//! Generated bodies for the parsers of requests: whatever comes, they answer with a request or an error, never a panic.

use crate::prompt::{of_messages, of_tokens};
use crate::text::TextBuilder;
use crate::{ApiError, Limits, ServedModel, chat, generate};
use arpo_image::{Grid, ImageProcessor};
use arpo_tokenizer::Tokenizer;
use arpo_train::base_model;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// The pocket model without its weights.
pub(crate) fn pocket() -> &'static ServedModel {
    static MODEL: LazyLock<ServedModel> = LazyLock::new(|| {
        let (config, files) = base_model::check(base_model::POCKET).unwrap();
        let tokenizer = Tokenizer::new(&files, Path::new("pocket")).unwrap();
        ServedModel {
            name: "pocket".into(),
            end_token: tokenizer.token("<|im_end|>").unwrap(),
            tokenizer: Arc::new(tokenizer),
            processor: ImageProcessor::parse(&files["preprocessor_config.json"]).unwrap(),
            image_token: config.image_token,
            merge: config.vision.merge as usize,
            forbidden: vec![config.image_token, config.video_token],
        }
    });
    &MODEL
}

const IMAGE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn chat_body() -> Value {
    json!({
        "model": "pocket",
        "messages": [
            {"role": "system", "content": "GUI agent"},
            {"role": "user", "content": [
                {"type": "text", "text": "Open the mail."},
                {"type": "image_url", "image_url": {"url": IMAGE, "detail": "high"}, "uuid": "a"},
            ]},
            {"role": "assistant", "content": "wait()", "name": "x"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]},
        ],
        "temperature": 0.5, "top_p": 0.9, "top_k": 5, "n": 2, "seed": -3, "max_tokens": 8,
        "max_completion_tokens": 8, "stop": ["a", "bc"], "stop_token_ids": [7], "logprobs": true,
        "top_logprobs": 3, "stream": true, "stream_options": {"include_usage": true}, "frequency_penalty": 0.5,
        "presence_penalty": -0.5, "return_token_ids": true, "return_tokens_as_token_ids": true,
        "logit_bias": {"5": -100}, "ignore_eos": false, "skip_special_tokens": true, "user": "me",
        "mm_processor_kwargs": {"min_pixels": 784}, "response_format": {"type": "text"}, "tools": null,
    })
}

fn token_body() -> Value {
    json!({
        "model": "pocket", "token_ids": [3, 7, 5, 8, 9], "request_id": "r", "output_mode": "text", "stream": false,
        "content_parts": [{"type": "image_url", "image_url": {"url": IMAGE}}],
        "sampling_params": {"max_tokens": 4, "temperature": 1.0, "logprobs": 1, "seed": 1, "stop": "x", "n": 1},
        "return_token_ids": true,
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3i64..300).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "user",
            "assistant",
            "text",
            "image_url",
            "data:image/png;base64,AAAA",
            IMAGE,
            "<|image_pad|>",
            "<|im_end|>",
            "pocket",
            "auto",
            "none"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((any_key(), inner), 0..6).prop_map(|pairs| Map::from_iter(pairs).into()),
        ]
    })
}

/// Names that the parsers know, and others.
fn any_key() -> impl Strategy<Value = String> {
    const KNOWN: [&str; 18] = [
        "role",
        "content",
        "type",
        "text",
        "image_url",
        "url",
        "messages",
        "stop",
        "n",
        "seed",
        "logprobs",
        "stream_options",
        "include_usage",
        "sampling_params",
        "token_ids",
        "content_parts",
        "max_tokens",
        "logit_bias",
    ];
    prop_oneof![4 => prop::sample::select(&KNOWN[..]).prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}

/// A body with some of its values replaced, removed or renamed.
fn mutated(body: Value) -> impl Strategy<Value = Value> {
    let change = (any::<prop::sample::Index>(), any_json(), 0..4u8);
    prop::collection::vec(change, 1..4).prop_map(move |changes| {
        let mut body = body.clone();
        for (at, value, kind) in changes {
            let pointers = pointers(&body);
            let pointer = &pointers[at.index(pointers.len())];
            match kind {
                0 => remove(&mut body, pointer),
                _ => {
                    if let Some(place) = body.pointer_mut(pointer) {
                        *place = value;
                    }
                }
            }
        }
        body
    })
}

fn pointers(value: &Value) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(map) => {
            map.iter().map(|(key, one)| (key.replace('~', "~0").replace('/', "~1"), one)).collect()
        }
        Value::Array(values) => values.iter().enumerate().map(|(at, one)| (at.to_string(), one)).collect(),
        _ => vec![],
    };
    let below = inner
        .into_iter()
        .flat_map(|(key, one)| pointers(one).into_iter().map(move |pointer| format!("/{key}{pointer}")));
    std::iter::once(String::new()).chain(below).collect()
}

fn remove(body: &mut Value, pointer: &str) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(map)) = body.pointer_mut(parent) {
        map.remove(key);
    }
}

/// Parses a body both ways, and makes a prompt of what is legal.
fn check(body: &[u8]) {
    let (model, limits) = (pocket(), Limits::default());
    let refused = |error: &ApiError| {
        assert!([400, 404].contains(&error.status.as_u16()), "{error:?}");
        assert!(!error.message.is_empty() && error.message.len() < 2000, "{}", error.message);
    };
    let grids = |count: usize| vec![Grid { height: 2, width: 2 }; count];
    match chat::parse(body, model, &limits) {
        Ok(request) => {
            if let Err(error) = of_messages(model, &request.messages, &grids(request.images.len()), true) {
                refused(&error);
            }
        }
        Err(error) => refused(&error),
    }
    match generate::parse(body, model, &limits) {
        Ok(request) => {
            let _ = of_tokens(model, &request.tokens, &grids(request.images.len()));
        }
        Err(error) => refused(&error),
    }
}

#[test]
fn the_bodies_that_are_mutated_are_legal() {
    let (model, limits) = (pocket(), Limits::default());
    let chat = chat::parse(chat_body().to_string().as_bytes(), model, &limits).unwrap();
    assert_eq!((chat.messages.len(), chat.images.len(), chat.params.choices), (4, 2, 2));
    assert_eq!((chat.params.max_tokens, chat.params.logprobs), (Some(8), Some(3)));
    assert!(chat.output.stream.is_some_and(|stream| stream.include_usage));
    assert!(chat.output.token_ids && chat.output.tokens_as_ids);
    let prompt = of_messages(model, &chat.messages, &[Grid { height: 2, width: 4 }; 2], true).unwrap();
    assert_eq!(prompt.images.iter().map(|image| image.length).collect::<Vec<_>>(), [2, 2]);
    let tokens = generate::parse(token_body().to_string().as_bytes(), model, &limits).unwrap();
    assert_eq!((tokens.tokens.len(), tokens.images.len(), tokens.with_text), (5, 1, true));
    assert_eq!(
        of_tokens(model, &tokens.tokens, &[Grid { height: 4, width: 2 }]).unwrap().tokens,
        [3, 7, 5, 5, 8, 9]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn mutated_chat_bodies_are_parsed_or_refused(body in mutated(chat_body())) {
        check(body.to_string().as_bytes());
    }

    #[test]
    fn mutated_token_bodies_are_parsed_or_refused(body in mutated(token_body())) {
        check(body.to_string().as_bytes());
    }

    #[test]
    fn any_json_is_parsed_or_refused(body in any_json()) {
        check(body.to_string().as_bytes());
    }

    #[test]
    fn damaged_bytes_are_parsed_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        tokens in any::<bool>(),
    ) {
        let mut bytes = if tokens { token_body() } else { chat_body() }.to_string().into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cut.index(3) == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        check(&bytes);
    }

    /// What streams give out piece by piece is the whole text, cut where it must be.
    #[test]
    fn streamed_text_is_the_whole_text(
        text in "[a-d \u{e9}\u{1F600}\\n]{0,24}",
        stop in prop::collection::vec("[a-d \u{e9}]{1,3}", 0..3),
        extra in prop::collection::vec(20u32..1200, 0..6),
    ) {
        let tokenizer = &pocket().tokenizer;
        let mut tokens = tokenizer.encode(&text).unwrap();
        tokens.extend(extra);
        let whole = tokenizer.decode(&tokens, true).unwrap();
        let mut builder = TextBuilder::new(Arc::clone(tokenizer), true, stop.clone());
        let mut streamed = String::new();
        let mut stopped = false;
        for &token in &tokens {
            stopped = builder.push(token).unwrap();
            streamed.push_str(&builder.give_out(stopped));
            if stopped {
                break;
            }
        }
        if !stopped {
            builder.finish().unwrap();
            streamed.push_str(&builder.give_out(true));
        }
        prop_assert_eq!(&streamed, builder.text());
        let end = stop.iter().filter_map(|stop| whole.find(stop.as_str())).min();
        if builder.stopped_by().is_some() {
            // a stop string that is seen first may end behind the beginning of another
            prop_assert!(whole.starts_with(&streamed) && end.is_some_and(|end| streamed.len() >= end));
        } else {
            prop_assert_eq!((&streamed, end), (&whole, None));
        }
    }
}

#[test]
fn errors_name_the_field_and_what_was_expected() {
    let (model, limits) = (pocket(), Limits { images: 1, ..Limits::default() });
    let with = |changes: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        for (key, value) in changes.as_object().unwrap() {
            body[key] = value.clone();
        }
        chat::parse(body.to_string().as_bytes(), model, &limits).map(|_| ())
    };
    for harmless in [
        json!({}),
        json!({"user": "me", "frequency_penalty": 0, "tools": [], "response_format": {"type": "text"}}),
        json!({"logit_bias": {"5": -100}, "top_k": -1, "repetition_penalty": 1.0, "temperature": 0}),
        json!({"mm_processor_kwargs": {"max_pixels": 1_003_520}, "logprobs": false, "tools": null}),
    ] {
        assert_eq!(with(harmless.clone()), Ok(()), "{harmless}");
    }
    let image = json!({"type": "image_url", "image_url": {"url": IMAGE}});
    for (changes, param, message) in [
        (
            json!({"temperature": "hot"}),
            "temperature",
            "temperature is \"hot\": expected a number from 0 to 100",
        ),
        (
            json!({"temperature": 0.001}),
            "temperature",
            "temperature is 0.001: expected 0 for the most likely token, or a number from 0.01",
        ),
        (json!({"top_p": 0}), "top_p", "top_p is 0: expected a number above 0"),
        (json!({"n": 0}), "n", "n is 0: expected a number from 1 to 256"),
        (json!({"max_tokens": 0}), "max_tokens", "max_tokens is 0: expected at least 1"),
        (
            json!({"stop": ["a", ""]}),
            "stop",
            "stop is an array of 2: expected a text, or up to 16 of them, each of 1 to 1024 bytes",
        ),
        (json!({"seed": 1.5}), "seed", "seed is 1.5: expected a whole number"),
        (json!({"tools": [{}]}), "tools", "tools is an array of 1, which is not supported: expected none"),
        (json!({"min_p": 0.1}), "min_p", "min_p is 0.1, which is not supported: expected 0"),
        (
            json!({"logit_bias": {"9": -100}}),
            "logit_bias",
            "logit_bias is an object: expected none, or -100 for tokens that are never sampled here: roles, images, ids without text",
        ),
        (
            json!({"guided_json": {}}),
            "guided_json",
            "guided_json is not a field of this server: leave it out",
        ),
        (
            json!({"top_logprobs": 2}),
            "top_logprobs",
            "top_logprobs is 2: expected \"logprobs\": true beside it",
        ),
        (
            json!({"logprobs": true, "top_logprobs": 21}),
            "top_logprobs",
            "21 alternatives for every token: expected at most 20",
        ),
        (json!({"messages": []}), "messages", "messages is an array of 0: expected an array of messages"),
        (
            json!({"messages": [{"role": "tool", "content": "x"}]}),
            "messages[0].role",
            "messages[0].role is \"tool\": expected \"system\", \"user\" or \"assistant\"",
        ),
        (
            json!({"messages": [{"role": "user"}]}),
            "messages[0].content",
            "messages[0].content is missing: expected a text or an array of parts",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "video"}]}]}),
            "messages[0].content[0].type",
            "messages[0].content[0].type is \"video\": expected \"text\" or \"image_url\"",
        ),
        (
            json!({"messages": [{"role": "user", "content": [image, image]}]}),
            "messages",
            "2 images: expected at most 1",
        ),
        (
            json!({"mm_processor_kwargs": {"max_pixels": 5}}),
            "mm_processor_kwargs.max_pixels",
            "mm_processor_kwargs.max_pixels is 5: expected 1003520, as this server was started",
        ),
    ] {
        let error = with(changes).unwrap_err();
        assert_eq!((error.param.as_deref(), error.message.as_str()), (Some(param), message));
        assert_eq!(error.status.as_u16(), 400);
    }
    let error = with(json!({"model": "gpt-4o"})).unwrap_err();
    assert_eq!((error.status.as_u16(), error.code), (404, Some("model_not_found")));
    let body = br#"{"messages": [{"role": "user", "content": "<|image_pad|>"}]}"#;
    let request = chat::parse(body, model, &limits).unwrap();
    let error = of_messages(model, &request.messages, &[], true).unwrap_err();
    assert!(error.message.starts_with("the conversation has 1 image placeholders for 0 images"), "{error}");
}
