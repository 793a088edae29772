//! Metrics in the text format of Prometheus.

use crate::worker::WorkerStatus;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Upper bounds of the histograms' buckets, in seconds.
const BUCKETS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// What has been served so far.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By route and status.
    responses: Mutex<BTreeMap<(&'static str, u16), u64>>,
    prompt_tokens: AtomicU64,
    response_tokens: AtomicU64,
    disconnected: AtomicU64,
    first_token: Mutex<Histogram>,
    completed: Mutex<Histogram>,
}

#[derive(Debug, Default)]
struct Histogram {
    counts: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn add(&mut self, seconds: f64) {
        for (count, bound) in self.counts.iter_mut().zip(BUCKETS) {
            *count += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.sum += seconds;
    }

    fn write(&self, text: &mut String, name: &str, help: &str) {
        header(text, name, "histogram", help);
        for (count, bound) in self.counts.iter().zip(BUCKETS) {
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(text, "{name}_sum {}\n{name}_count {}", self.sum, self.count);
    }
}

impl Metrics {
    /// A response was begun.
    pub(crate) fn response(&self, route: &'static str, status: u16) {
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        *responses.entry((route, status)).or_default() += 1;
    }

    /// A prompt was accepted.
    pub(crate) fn prompt(&self, tokens: usize) {
        self.prompt_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// A token of a request that began then; the first of its choice or a later one.
    pub(crate) fn token(&self, began: Instant, first: bool) {
        self.response_tokens.fetch_add(1, Ordering::Relaxed);
        if first {
            add(&self.first_token, began);
        }
    }

    /// All choices of a request are complete.
    pub(crate) fn completed(&self, began: Instant) {
        add(&self.completed, began);
    }

    /// A client went away before its response was complete.
    pub(crate) fn disconnected(&self) {
        self.disconnected.fetch_add(1, Ordering::Relaxed);
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self, status: &WorkerStatus) -> String {
        let mut text = String::new();
        let name = "arpo_serve_responses_total";
        header(&mut text, name, "counter", "Responses by route and status");
        for ((route, status), count) in self.responses.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = writeln!(text, "{name}{{route=\"{route}\",status=\"{status}\"}} {count}");
        }
        let WorkerStatus { load, counts, failed_passes } = status;
        let gauges = [
            ("requests_running", load.running, "Choices in the batch"),
            ("requests_waiting", load.waiting, "Choices that wait for a place in the batch"),
            ("cache_pages", load.pages, "Pages of the KV cache"),
            ("cache_pages_in_use", load.leased_pages, "Pages of running choices"),
        ];
        for (name, value, help) in gauges {
            single(&mut text, name, "gauge", help, value as u64);
        }
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = [
            ("prompt_tokens_total", of(&self.prompt_tokens), "Tokens of accepted prompts"),
            ("response_tokens_total", of(&self.response_tokens), "Tokens of responses"),
            ("disconnected_total", of(&self.disconnected), "Requests whose client went away"),
            ("passes_total", counts.passes, "Forward passes"),
            ("computed_tokens_total", counts.computed, "Tokens computed"),
            ("prefix_cache_hits_total", counts.cache_hits, "Prompt tokens found in the cache"),
            ("preempted_total", counts.preempted, "Choices preempted for lack of pages"),
            ("failed_passes_total", *failed_passes, "Forward passes that failed"),
        ];
        for (name, value, help) in counters {
            single(&mut text, name, "counter", help, value);
        }
        let histograms = [
            (
                &self.first_token,
                "arpo_serve_time_to_first_token_seconds",
                "From the request to the first token",
            ),
            (&self.completed, "arpo_serve_request_seconds", "From the request to its last token"),
        ];
        for (histogram, name, help) in histograms {
            histogram.lock().unwrap_or_else(PoisonError::into_inner).write(&mut text, name, help);
        }
        if let Some(bytes) = resident_bytes() {
            header(&mut text, "process_resident_memory_bytes", "gauge", "Resident memory");
            let _ = writeln!(text, "process_resident_memory_bytes {bytes}");
        }
        text
    }
}

fn add(histogram: &Mutex<Histogram>, began: Instant) {
    histogram.lock().unwrap_or_else(PoisonError::into_inner).add(began.elapsed().as_secs_f64());
}

fn header(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn single(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    let name = format!("arpo_serve_{name}");
    header(text, &name, kind, help);
    let _ = writeln!(text, "{name} {value}");
}

/// Resident memory; `None` if the system does not report it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}
