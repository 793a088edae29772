//! Requests to Google: each with a deadline and a limit of its response, and tried again where that can do no harm.

use super::GoogleError;
use serde_json::Value;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Timeout of a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Timeout of one attempt: all tries fit into a set-up's deadline.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(25);
/// The same with the content of a file.
const FILE_ATTEMPT_LIMIT: Duration = Duration::from_mins(2);
/// Attempts of a request that may be repeated.
const TRIES: u32 = 3;

/// Limit of a response that is no file.
pub(super) const TEXT_LIMIT_BYTES: u64 = 16 << 20;

/// What is sent, and how.
pub(super) enum Payload<'a> {
    Get,
    /// A GET of a file's content.
    GetFile,
    Delete,
    /// A POST without a body.
    Post,
    PostForm(&'a [(&'a str, &'a str)]),
    /// A POST that makes no file yet.
    PostJson(&'a Value),
    /// A POST that makes a file or folder.
    Create(&'a Value),
    /// A file's content.
    Put(&'a [u8]),
}

impl Payload<'_> {
    /// A file that is created twice is there twice; everything else may be asked again.
    fn may_repeat(&self) -> bool {
        match self {
            Self::Get | Self::GetFile | Self::Delete | Self::Post | Self::PostForm(_) | Self::PostJson(_) => {
                true
            }
            Self::Create(_) | Self::Put(_) => false,
        }
    }

    fn attempt_limit(&self) -> Duration {
        if matches!(self, Self::GetFile | Self::Put(_)) { FILE_ATTEMPT_LIMIT } else { ATTEMPT_LIMIT }
    }
}

/// A request.
pub(super) struct Request<'a> {
    /// What it is for, in messages.
    pub(super) call: &'a str,
    pub(super) url: &'a str,
    /// The bearer token.
    pub(super) token: Option<&'a str>,
    pub(super) payload: Payload<'a>,
    pub(super) limit_bytes: u64,
}

/// A response, whatever its status.
pub(super) struct Response {
    pub(super) status: u16,
    /// The header `Location`.
    pub(super) location: Option<String>,
    pub(super) body: Vec<u8>,
}

impl Response {
    /// Whether Google asks for patience.
    fn is_busy(&self) -> bool {
        // rateLimitExceeded, userRateLimitExceeded and dailyLimitExceeded
        let is_limited = || {
            let body = String::from_utf8_lossy(&self.body);
            body.contains("ateLimitExceeded") || body.contains("dailyLimitExceeded")
        };
        self.status == 429 || self.status >= 500 || (self.status == 403 && is_limited())
    }

    /// What Google says is wrong: its message, or the beginning of its response.
    pub(super) fn problem(&self) -> String {
        let value: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let message = value["error"]["message"].as_str();
        // the server of tokens has one code and a description
        let message =
            message.or_else(|| value["error_description"].as_str()).or_else(|| value["error"].as_str());
        message.map_or_else(|| String::from_utf8_lossy(&self.body).chars().take(200).collect(), str::to_owned)
    }

    /// The body of a success; else an error.
    pub(super) fn accepted(self, call: &str) -> Result<Vec<u8>, GoogleError> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let (call, status, problem) = (call.to_owned(), self.status, self.problem());
        Err(if self.is_busy() {
            GoogleError::Busy { call, status, problem }
        } else {
            GoogleError::Refused { call, status, problem }
        })
    }
}

enum AttemptError {
    NoResponse(String),
    TooLarge,
}

/// Sends requests.
pub(super) struct Client {
    agent: ureq::Agent,
    /// Between attempts.
    pause: Duration,
}

impl Client {
    pub(super) fn new(pause: Duration) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = config.timeout_connect(Some(CONNECT_LIMIT)).build().new_agent();
        Self { agent, pause }
    }

    pub(super) fn send(&self, request: &Request<'_>, deadline: Instant) -> Result<Response, GoogleError> {
        let call = || request.call.to_owned();
        let left = || deadline.saturating_duration_since(Instant::now());
        let tries = if request.payload.may_repeat() { TRIES } else { 1 };
        let mut attempt = 1;
        loop {
            let limit = request.payload.attempt_limit().min(left());
            if limit.is_zero() {
                return Err(GoogleError::Late { call: call() });
            }
            let problem = match self.attempt(request, limit) {
                Ok(response) if attempt < tries && response.is_busy() => None,
                Ok(response) => return Ok(response),
                Err(AttemptError::TooLarge) => {
                    return Err(GoogleError::TooLarge { call: call(), limit_bytes: request.limit_bytes });
                }
                Err(AttemptError::NoResponse(problem)) => Some(problem),
            };
            if let Some(problem) = problem.filter(|_| attempt >= tries && !left().is_zero()) {
                return Err(GoogleError::Unreachable { call: call(), problem });
            }
            attempt += 1;
            std::thread::sleep(self.pause.min(left()));
        }
    }

    fn attempt(&self, request: &Request<'_>, limit: Duration) -> Result<Response, AttemptError> {
        let no_response = |error: ureq::Error| AttemptError::NoResponse(error.to_string());
        let url = request.url;
        let bearer = request.token.map(|token| format!("Bearer {token}"));
        let sent = match &request.payload {
            Payload::Get | Payload::GetFile | Payload::Delete => {
                let is_delete = matches!(request.payload, Payload::Delete);
                let plain = if is_delete { self.agent.delete(url) } else { self.agent.get(url) };
                let limited = configured(plain, url, limit);
                match &bearer {
                    Some(bearer) => limited.header("Authorization", bearer).call(),
                    None => limited.call(),
                }
            }
            with_body => {
                let is_put = matches!(with_body, Payload::Put(_));
                let plain = if is_put { self.agent.put(url) } else { self.agent.post(url) };
                let limited = configured(plain, url, limit);
                let limited = match &bearer {
                    Some(bearer) => limited.header("Authorization", bearer),
                    None => limited,
                };
                match with_body {
                    Payload::PostForm(fields) => limited.send_form(fields.iter().copied()),
                    Payload::PostJson(value) | Payload::Create(value) => {
                        limited.header("Content-Type", "application/json").send(value.to_string())
                    }
                    Payload::Put(content) => limited.send(*content),
                    Payload::Post | Payload::Get | Payload::GetFile | Payload::Delete => limited.send_empty(),
                }
            }
        };
        let mut response = sent.map_err(no_response)?;
        let status = response.status().as_u16();
        let location = response.headers().get("location");
        let location = location.and_then(|value| value.to_str().ok()).map(str::to_owned);
        if response.body().content_length().is_some_and(|length| length > request.limit_bytes) {
            return Err(AttemptError::TooLarge);
        }
        // one byte more, so that a file of exactly the limit is read
        match response.body_mut().with_config().limit(request.limit_bytes.saturating_add(1)).read_to_vec() {
            Ok(body) if body.len() as u64 <= request.limit_bytes => Ok(Response { status, location, body }),
            Ok(_) | Err(ureq::Error::BodyExceedsLimit(_)) => Err(AttemptError::TooLarge),
            Err(error) => Err(no_response(error)),
        }
    }
}

/// A request with its timeout. A proxy of the environment is for other hosts only.
fn configured<Any>(
    request: ureq::RequestBuilder<Any>,
    url: &str,
    limit: Duration,
) -> ureq::RequestBuilder<Any> {
    let config = request.config().timeout_global(Some(limit));
    if is_of_this_host(url) { config.proxy(None).build() } else { config.build() }
}

fn is_of_this_host(url: &str) -> bool {
    let Ok(url) = url.parse::<ureq::http::Uri>() else { return false };
    let host = url.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_need_no_proxy() {
        for url in ["http://127.0.0.1:8080/token", "http://localhost/a", "http://[::1]:5000/a"] {
            assert!(is_of_this_host(url), "{url}");
        }
        for url in ["https://www.googleapis.com/drive/v2", "http://192.168.0.1/a", "/token"] {
            assert!(!is_of_this_host(url), "{url}");
        }
    }

    #[test]
    fn every_try_without_a_file_fits_into_the_usual_reset() {
        let longest = (Payload::Get.attempt_limit() + Duration::from_secs(2)) * TRIES;
        assert!(longest < Duration::from_mins(2), "{longest:?}");
        assert!(Payload::GetFile.attempt_limit() > Payload::Get.attempt_limit());
    }
}
