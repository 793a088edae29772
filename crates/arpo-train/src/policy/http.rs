//! Requests to inference servers: JSON in and out, each with a deadline, and what went wrong in one line.

use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Characters of a server's message that are shown.
const SHOWN: usize = 300;

/// What went wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    /// No connection, or no whole answer before the deadline.
    Unreachable(String),
    /// The server has no place for it now (429, 503), and may have said when to come back.
    Busy {
        /// `Retry-After`.
        after: Option<Duration>,
        /// The server's message.
        message: String,
    },
    /// Any other status.
    Refused {
        /// The status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// An answer that is not what was asked for.
    Garbled(String),
}

impl Problem {
    /// The server itself failed: not the request's fault.
    pub(super) fn is_the_servers(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Garbled(_) => true,
            Self::Busy { .. } => false,
            Self::Refused { status, .. } => *status >= 500 || *status == 408,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(message) | Self::Garbled(message) => f.write_str(message),
            Self::Busy { message, .. } => write!(f, "too many requests: {message}"),
            Self::Refused { status, message } => write!(f, "status {status}: {message}"),
        }
    }
}

/// A client, with the key that servers may need.
#[derive(Debug, Clone)]
pub(super) struct Http {
    agent: ureq::Agent,
    key: Option<String>,
}

impl Http {
    /// Sends this key as a bearer token.
    pub(super) fn new(key: Option<String>) -> Self {
        // a proxy is for the outside world, not for the servers of a run
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
        // vLLM closes idle connections after 5 s: one that is closed just now is no failure of the server
        let agent = config.max_idle_age(Duration::from_secs(2)).build().new_agent();
        Self { agent, key }
    }

    /// The answer to a GET.
    pub(super) fn get(&self, url: &str, limit: Duration) -> Result<Value, Problem> {
        let mut request = self.agent.get(url).config().timeout_global(Some(limit)).build();
        if let Some(key) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        answer(request.call())
    }

    /// The answer to a POST; without a body if `body` is null.
    pub(super) fn post(&self, url: &str, body: &Value, limit: Duration) -> Result<Value, Problem> {
        match body {
            Value::Null => answer(self.posting(url, limit).send_empty()),
            body => self.post_text(url, body.to_string(), limit),
        }
    }

    /// The answer to a POST of JSON that is already text: with screenshots in it, it is megabytes, and this is its only copy.
    pub(super) fn post_text(&self, url: &str, body: String, limit: Duration) -> Result<Value, Problem> {
        answer(self.posting(url, limit).header("Content-Type", "application/json").send(body))
    }

    fn posting(&self, url: &str, limit: Duration) -> ureq::RequestBuilder<ureq::typestate::WithBody> {
        let request = self.agent.post(url).config().timeout_global(Some(limit)).build();
        match &self.key {
            Some(key) => request.header("Authorization", format!("Bearer {key}")),
            None => request,
        }
    }
}

/// The JSON of an answer; null if it is empty.
fn answer(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Value, Problem> {
    let unreachable = |error: ureq::Error| Problem::Unreachable(error.to_string());
    let mut response = response.map_err(unreachable)?;
    let status = response.status().as_u16();
    let after = response.headers().get("Retry-After").and_then(|value| value.to_str().ok()).and_then(seconds);
    let text = response.body_mut().read_to_string().map_err(unreachable)?;
    match status {
        200..=299 if text.trim().is_empty() => Ok(Value::Null),
        200..=299 => serde_json::from_str(&text)
            .map_err(|error| Problem::Garbled(format!("no JSON ({error}): {}", one_line(&text)))),
        429 | 503 => Err(Problem::Busy { after, message: message(&text) }),
        status => Err(Problem::Refused { status, message: message(&text) }),
    }
}

/// The number of seconds in a `Retry-After`; a date there is treated as none.
fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.trim().parse().ok()?;
    // a longer one could not be added to a time
    Duration::try_from_secs_f64(seconds).ok().filter(|wait| *wait <= Duration::from_hours(24))
}

/// The message in an error's body, in the forms that servers have for it.
fn message(text: &str) -> String {
    let body: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let found = [&body["error"]["message"], &body["message"], &body["error"], &body["detail"]];
    match found.into_iter().find_map(Value::as_str) {
        Some(message) => one_line(message),
        None => one_line(text),
    }
}

/// The beginning of a text, in one line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_in_every_form() {
        for body in [
            r#"{"error": {"message": "no\nsuch model", "type": "NotFoundError"}}"#,
            r#"{"object": "error", "message": "no such model"}"#,
            r#"{"error": "no such model"}"#,
            r#"{"detail": "no such  model"}"#,
            "no such model",
        ] {
            assert_eq!(message(body), "no such model");
        }
        assert_eq!(message(&"a".repeat(1000)).len(), SHOWN);
    }

    #[test]
    fn a_date_to_come_back_at_is_no_number_of_seconds() {
        assert_eq!(seconds(" 1.5 "), Some(Duration::from_millis(1500)));
        for odd in ["Wed, 21 Oct 2015 07:28:00 GMT", "-1", "nan", "inf", ""] {
            assert_eq!(seconds(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_server_is_blamed_for_its_own_failures_only() {
        let refused = |status| Problem::Refused { status, message: String::new() };
        assert!(Problem::Unreachable(String::new()).is_the_servers() && refused(500).is_the_servers());
        assert!(!refused(400).is_the_servers() && !refused(404).is_the_servers());
        assert!(!Problem::Busy { after: None, message: String::new() }.is_the_servers());
    }
}
