//! Clients that go away at any moment leave nothing behind: no running request, no page of the cache, no memory.
//!
//! A program of its own, because it measures the memory of its process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "it/fixture.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod fixture;

use arpo_serve::Limits;
use fixture::{DEADLINE, Fixture, body};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const CLIENTS: u32 = 16;
const REQUESTS: u32 = 1000;
const WARM_UP: u32 = 300;
const PLACES: usize = 256;

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap() / 1024.0
}

/// Sends a request and goes away: before the body is complete, at once, after a while, in the middle of the response, or at
/// its end.
fn visit(fixture: &Fixture, number: u32) {
    // no random numbers: the timing of the machine is random enough
    let kind = number.wrapping_mul(2_654_435_761) >> 8;
    let more = json!({"stream": kind.is_multiple_of(2), "n": 1 + kind % 3, "max_tokens": 20, "ignore_eos": true, "seed": number});
    let text = body(kind % 5, &more).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        text.len()
    );
    let mut stream = TcpStream::connect(fixture.background.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let sent = if kind.is_multiple_of(11) { text.len() / 2 } else { text.len() };
    stream.write_all(&text.as_bytes()[..sent]).unwrap();
    match (kind / 11) % 5 {
        0 => {}
        1 => std::thread::sleep(Duration::from_millis(u64::from(kind % 40))),
        2 => drop(stream.read(&mut [0; 64])),
        3 if sent == text.len() => drop(stream.take(u64::from(kind % 5000)).read_to_end(&mut Vec::new())),
        _ if sent == text.len() => drop(stream.read_to_end(&mut Vec::new())),
        _ => {}
    }
}

fn visits(fixture: &Fixture, from: u32, count: u32) {
    let next = AtomicU32::new(from);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= from + count {
                        return;
                    }
                    visit(fixture, number);
                }
            });
        }
    });
    fixture.wait_until_idle(PLACES);
}

#[test]
fn a_thousand_disconnects_leave_nothing_behind() {
    let fixture = Fixture::with(Limits { choices: PLACES, ..Limits::default() }, None);
    // caches and the allocator's pools fill up
    visits(&fixture, 0, WARM_UP);
    let before = resident_mib();
    visits(&fixture, WARM_UP, REQUESTS);
    let after = resident_mib();
    println!("resident {before:.1} MiB, after {REQUESTS} more requests {after:.1} MiB");
    assert!(after < before + 32.0, "{before} MiB became {after} MiB");
    let (_, metrics) = fixture.get("/metrics", None);
    let count = |name: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    assert!(count("arpo_serve_disconnected_total ") > 50.0, "{metrics}");
    assert!(count("arpo_serve_request_seconds_count ") > 50.0, "{metrics}");
    assert_eq!(
        (count("arpo_serve_failed_passes_total "), count("arpo_serve_cache_pages_in_use ")),
        (0.0, 0.0)
    );
    // and it still answers
    let response = fixture.chat(&body(1, &json!({"temperature": 0})));
    assert!(response["choices"][0]["message"]["content"].is_string());
}
