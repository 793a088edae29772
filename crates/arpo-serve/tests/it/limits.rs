//! Limits, keys, and what happens to a request that exceeds them; stopping.

use crate::fixture::{DEADLINE, Fixture, body, image_part};
use arpo_serve::Limits;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";

/// Status and error of a request.
fn refused(fixture: &Fixture, body: &Value) -> (u16, Value) {
    let (status, response) = fixture.post(CHAT, body);
    assert!(status >= 400 && response["error"]["message"].is_string(), "{status} {response}");
    (status, response["error"].clone())
}

#[test]
fn limits_are_kept() {
    let limits = Limits {
        body_bytes: 200_000,
        images: 2,
        image_pixels: 10_000,
        context_tokens: 200,
        ..Limits::default()
    };
    let fixture = Fixture::with(limits, None);
    let (status, error) = refused(&fixture, &body(1, &json!({"max_tokens": 300})));
    assert_eq!((status, &error["code"]), (400, &json!("context_length_exceeded")));
    assert!(error["message"].as_str().unwrap().ends_with("expected at most 200 together"), "{error}");
    let many =
        json!({"messages": [{"role": "user", "content": [image_part(1), image_part(2), image_part(3)]}]});
    assert_eq!(refused(&fixture, &many).1["message"], "3 images: expected at most 2");
    // without a maximum a response ends with the context
    let response = fixture.chat(&body(1, &json!({"max_tokens": null, "ignore_eos": true})));
    assert_eq!(
        (&response["usage"]["total_tokens"], &response["choices"][0]["finish_reason"]),
        (&json!(200), &json!("length"))
    );
    assert_eq!(fixture.get("/nothing", None).0, 404);
    assert_eq!(fixture.get(CHAT, None).0, 405);
}

#[test]
fn a_key_is_asked_for() {
    let fixture = Fixture::with(Limits::default(), Some("secret"));
    for (key, status) in
        [(None, 401), (Some("secre"), 401), (Some("secret2"), 401), (Some(""), 401), (Some("secret"), 200)]
    {
        assert_eq!(fixture.get("/v1/models", key).0, status, "{key:?}");
        assert_eq!(fixture.get("/metrics", key).0, status, "{key:?}");
    }
    assert_eq!(fixture.get("/health", None).0, 200);
    let (status, error) = refused(&fixture, &body(1, &json!({})));
    assert_eq!((status, &error["code"]), (401, &json!("invalid_api_key")));
}

/// Raw bytes to the server; returns what comes back until it closes or says no more for a while.
fn exchange(fixture: &Fixture, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(fixture.background.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn other_media_types_and_false_lengths_are_refused() {
    let fixture = Fixture::new();
    let head = |more: &str| format!("POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n\r\n");
    let answer = exchange(&fixture, &head("Content-Length: 2"), b"{}");
    assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
    let answer =
        exchange(&fixture, &head("Content-Type: application/json\r\nContent-Length: 99999999999"), b"{}");
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let answer = exchange(
        &fixture,
        &head("Content-Type: application/json\r\nTransfer-Encoding: chunked"),
        b"2\r\n{}\r\n0\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("messages is missing"), "{answer}");
    let answer = exchange(&fixture, "nonsense\r\n\r\n", b"");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
}

/// With every place taken a request is refused at once, and told when to come again.
#[test]
fn a_full_queue_is_said_so() {
    let fixture = Fixture::with(Limits { choices: 3, context_tokens: 4000, ..Limits::default() }, None);
    let endless = json!({"max_tokens": 3500, "ignore_eos": true, "stream": true, "n": 3});
    let head = |length: usize| {
        format!(
            "POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let text = body(1, &endless).to_string();
    let mut stream = TcpStream::connect(fixture.background.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(format!("{}{text}", head(text.len())).as_bytes()).unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    let (status, error) = refused(&fixture, &body(2, &json!({})));
    assert_eq!((status, &error["type"]), (429, &json!("rate_limit_error")));
    let answer = exchange(&fixture, &head(2).replace("Host: x", "Host: x\r\nConnection: close"), b"{}");
    assert!(answer.to_lowercase().contains("retry-after: 1"), "{answer}");
    // its client goes away: the places are free again
    drop(stream);
    fixture.wait_until_idle(3);
    fixture.chat(&body(2, &json!({})));
}

/// Decoded images take many times the memory of encoded ones: requests wait for their share of it, and not for ever.
#[test]
fn decoded_images_of_all_requests_are_bounded() {
    // room for one image of 112x84 pixels
    let limits = Limits {
        images: 1,
        image_pixels: 10_000,
        decoded_bytes: 0,
        image_wait: Duration::from_millis(200),
        context_tokens: 4000,
        ..Limits::default()
    };
    let fixture = Fixture::with(limits, None);
    let endless = json!({"max_tokens": 3500, "ignore_eos": true, "stream": true, "n": 2});
    let text = body(1, &endless).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    let mut stream = TcpStream::connect(fixture.background.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    let (status, error) = refused(&fixture, &body(2, &json!({})));
    assert_eq!(status, 429);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("decoded images for 0.2 s"), "{message}");
    // one without an image waits for nothing
    fixture.chat(&json!({"messages": [{"role": "user", "content": "Open the mail."}], "max_tokens": 3}));
    drop(stream);
    fixture.wait_until_idle(256);
    fixture.chat(&body(2, &json!({})));
}

#[test]
fn a_stop_ends_open_requests_and_everything_else() {
    let mut fixture = Fixture::with(Limits { context_tokens: 6000, ..Limits::default() }, None);
    let text = body(1, &json!({"max_tokens": 5000, "ignore_eos": true})).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    let streams: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(fixture.background.address).unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    while fixture.server.load().running < 4 {
        assert!(began.elapsed() < DEADLINE);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(fixture.background.stop(), "everything has ended");
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("the server is stopping"), "{answer}");
    }
    assert!(TcpStream::connect(fixture.background.address).is_err(), "nobody listens any more");
}
