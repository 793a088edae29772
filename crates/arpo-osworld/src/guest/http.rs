//! The client of OSWorld's server in a guest: plain HTTP, every call with a deadline, tried three times.

use super::cdp::Cdp;
use super::{Browser, Command, Guest, Output, Window};
use crate::error::GuestError;
use base64::Engine;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Where a guest listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    /// OSWorld's server.
    pub server: u16,
    /// The browser's debugging port.
    pub chromium: u16,
    /// VLC's web interface.
    pub vlc: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self { server: 5000, chromium: 9222, vlc: 8080 }
    }
}

/// Timeouts and retries of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Timeout of a connection.
    pub connect: Duration,
    /// Timeout of a quick call.
    pub quick: Duration,
    /// Timeout of a command; the server itself kills one after 120 s.
    pub command: Duration,
    /// Timeout of sending or opening a file.
    pub slow: Duration,
    /// Attempts of a call without a response.
    pub tries: u32,
    /// Between tries.
    pub interval: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            quick: Duration::from_mins(1),
            command: Duration::from_mins(3),
            slow: Duration::from_mins(10),
            tries: 3,
            interval: Duration::from_secs(5),
        }
    }
}

/// A guest over HTTP.
pub struct HttpGuest {
    agent: ureq::Agent,
    host: String,
    ports: Ports,
    retry: RetryPolicy,
    token: Option<String>,
    browser: Cdp,
    /// Calls and pauses end by then.
    deadline: Option<Instant>,
    /// Why the guest is silent, if somebody knows; asked before a call is tried again.
    why_silent: Option<Box<dyn Fn() -> Option<String> + Send + Sync>>,
    file_limit_bytes: u64,
}

/// Limit of a response that is no file: recordings are the largest.
const RESPONSE_LIMIT_BYTES: u64 = 1 << 30;
/// Limit of a file of the guest unless a task allows more: it is judged in this program's memory, beside those of all
/// other desktops.
pub const FILE_LIMIT_BYTES: u64 = 64 << 20;

/// Why a request has no usable response.
enum SendError {
    NoResponse(String),
    TooLarge { limit_bytes: u64 },
}

/// A response.
struct HttpResponse {
    status: u16,
    body: Vec<u8>,
}

/// The body of a request.
pub(super) enum Body<'a> {
    None,
    Json(Value),
    Form(&'a [(&'a str, &'a str)]),
    Bytes(&'a str, Vec<u8>),
}

impl HttpGuest {
    /// A guest at a host. A token, where the guest requires one, is sent as a bearer token.
    pub fn new(host: &str, ports: Ports, retry: RetryPolicy, token: Option<String>) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
        let agent = config.timeout_connect(Some(retry.connect)).build().new_agent();
        let browser = Cdp::new(host, ports.chromium);
        let (deadline, why_silent, file_limit_bytes) = (None, None, FILE_LIMIT_BYTES);
        let host = host.to_owned();
        Self { agent, host, ports, retry, token, browser, deadline, why_silent, file_limit_bytes }
    }

    /// Asks this why the guest is silent before a call without a response is tried again; a reason ends the call.
    #[must_use]
    pub fn asking(self, why_silent: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { why_silent: Some(Box::new(why_silent)), ..self }
    }

    /// Sets the limit of a file of the guest.
    pub fn set_file_limit(&mut self, bytes: u64) {
        self.file_limit_bytes = bytes;
    }

    /// Sets the deadline of all following calls.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// A duration, cut off at the deadline.
    fn within(&self, time: Duration) -> Duration {
        self.deadline.map_or(time, |deadline| time.min(deadline.saturating_duration_since(Instant::now())))
    }

    /// A call, retried while there is no response. A command is sent only once: it may have run.
    fn call(
        &self,
        path: &str,
        body: &Body<'_>,
        limit: Duration,
        tries: u32,
    ) -> Result<HttpResponse, GuestError> {
        let mut last = String::new();
        for attempt in 0..tries.max(1) {
            if attempt > 0 {
                self.pause(self.retry.interval);
            }
            match self.send(path, body, limit) {
                Ok(response) => return Ok(response),
                Err(SendError::TooLarge { limit_bytes }) => {
                    return Err(GuestError::TooLarge { call: described(path, body), limit_bytes });
                }
                Err(SendError::NoResponse(problem)) => last = problem,
            }
            if let Some(why) = self.why_silent.as_ref().and_then(|why_silent| why_silent()) {
                last = why;
                break;
            }
        }
        Err(GuestError::Unreachable { call: path.to_owned(), problem: last })
    }

    fn send(&self, path: &str, body: &Body<'_>, limit: Duration) -> Result<HttpResponse, SendError> {
        let no_response = |error: ureq::Error| SendError::NoResponse(error.to_string());
        let limit = self.within(limit);
        if limit.is_zero() {
            return Err(SendError::NoResponse("the deadline has passed".into()));
        }
        let url = format!("http://{}:{}{path}", self.host, self.ports.server);
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let sent = match body {
            Body::None => {
                let request = self.agent.get(&url).config().timeout_global(Some(limit)).build();
                match &bearer {
                    Some(bearer) => request.header("Authorization", bearer).call(),
                    None => request.call(),
                }
            }
            with_body => {
                let request = self.agent.post(&url).config().timeout_global(Some(limit)).build();
                let request = match &bearer {
                    Some(bearer) => request.header("Authorization", bearer),
                    None => request,
                };
                match with_body {
                    Body::Json(value) => {
                        request.header("Content-Type", "application/json").send(value.to_string())
                    }
                    Body::Form(fields) => request.send_form(fields.iter().copied()),
                    Body::Bytes(kind, bytes) => request.header("Content-Type", *kind).send(bytes.as_slice()),
                    Body::None => request.send_empty(),
                }
            }
        };
        let mut response = sent.map_err(no_response)?;
        let status = response.status().as_u16();
        let limit_bytes = if FILES.contains(&path) { self.file_limit_bytes } else { RESPONSE_LIMIT_BYTES };
        // said beforehand, nothing of it is read
        if response.body().content_length().is_some_and(|length| length > limit_bytes) {
            return Err(SendError::TooLarge { limit_bytes });
        }
        // one byte more, so that a file of exactly the limit is read
        match response.body_mut().with_config().limit(limit_bytes.saturating_add(1)).read_to_vec() {
            Ok(body) if body.len() as u64 <= limit_bytes => Ok(HttpResponse { status, body }),
            Ok(_) | Err(ureq::Error::BodyExceedsLimit(_)) => Err(SendError::TooLarge { limit_bytes }),
            Err(error) => Err(no_response(error)),
        }
    }

    fn query(&self, path: &str, body: &Body<'_>) -> Result<Option<Vec<u8>>, GuestError> {
        let response = self.call(path, body, self.retry.quick, self.retry.tries)?;
        Ok((response.status == 200).then_some(response.body))
    }

    /// A call whose response must have status 200.
    pub(super) fn require(&self, path: &str, body: &Body<'_>) -> Result<Vec<u8>, GuestError> {
        let response = self.call(path, body, self.retry.quick, self.retry.tries)?;
        if response.status == 200 { Ok(response.body) } else { Err(refused(path, &response)) }
    }

    fn json(&self, path: &str, body: &Body<'_>) -> Result<Option<Value>, GuestError> {
        Ok(self.query(path, body)?.and_then(|body| serde_json::from_slice(&body).ok()))
    }

    /// A request to do something: a refusal is an error with the server's message.
    fn perform(&self, path: &str, body: &Body<'_>, limit: Duration) -> Result<(), GuestError> {
        let response = self.call(path, body, limit, self.retry.tries)?;
        if response.status == 200 {
            return Ok(());
        }
        Err(refused(path, &response))
    }

    fn perform_on_window(&self, path: &str, window: &Window) -> Result<(), GuestError> {
        let body = json!({"window_name": window.name, "strict": window.strict, "by_class": window.by_class});
        self.perform(path, &Body::Json(body), self.retry.quick)
    }
}

/// The call that returns a file.
const FILE: &str = "/file";
/// The call that returns the wallpaper, which is a file that an agent may choose.
const WALLPAPER: &str = "/wallpaper";
/// Calls that return files of the guest, which are bounded as files are.
const FILES: [&str; 2] = [FILE, WALLPAPER];

/// A call in a message: a file by its name.
fn described(path: &str, body: &Body<'_>) -> String {
    match body {
        Body::Form([(_, value)]) => format!("{path} {value}"),
        _ => path.to_owned(),
    }
}

fn refused(path: &str, response: &HttpResponse) -> GuestError {
    let body = String::from_utf8_lossy(&response.body).chars().take(500).collect();
    GuestError::Refused { call: path.to_owned(), status: response.status, body }
}

impl Guest for HttpGuest {
    fn run(&self, command: &Command) -> Result<Option<Output>, GuestError> {
        let response = self.call("/execute", &Body::Json(command.body()), self.retry.command, 1)?;
        if response.status != 200 {
            return Ok(None);
        }
        let value: Value = serde_json::from_slice(&response.body).map_err(|error| {
            GuestError::Unreachable { call: "/execute".into(), problem: error.to_string() }
        })?;
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        Ok(Some(Output {
            stdout: text("output"),
            stderr: text("error"),
            returncode: value["returncode"].as_i64().unwrap_or(0),
        }))
    }

    fn launch(&self, command: &Command) -> Result<(), GuestError> {
        self.perform("/setup/launch", &Body::Json(command.body()), self.retry.quick)
    }

    fn read_file(&self, path: &str) -> Result<Option<Vec<u8>>, GuestError> {
        self.query(FILE, &Body::Form(&[("file_path", path)]))
    }

    fn write_file(&self, path: &str, content: &[u8]) -> Result<(), GuestError> {
        let (kind, body) = multipart(path, content);
        self.perform("/setup/upload", &Body::Bytes(&kind, body), self.retry.slow)
    }

    fn open_file(&self, path: &str) -> Result<(), GuestError> {
        // Verified's server responds when the window is open, which may take long.
        self.perform("/setup/open_file", &Body::Json(json!({"path": path})), self.retry.slow * 3)
    }

    fn activate_window(&self, window: &Window) -> Result<(), GuestError> {
        self.perform_on_window("/setup/activate_window", window)
    }

    fn close_window(&self, window: &Window) -> Result<(), GuestError> {
        self.perform_on_window("/setup/close_window", window)
    }

    fn change_wallpaper(&self, path: &str) -> Result<(), GuestError> {
        self.perform("/setup/change_wallpaper", &Body::Json(json!({"path": path})), self.retry.quick)
    }

    fn accessibility_tree(&self) -> Result<Option<String>, GuestError> {
        let response = self.json("/accessibility", &Body::None)?;
        Ok(response.and_then(|value| value["AT"].as_str().map(str::to_owned)))
    }

    fn terminal_output(&self) -> Result<Option<String>, GuestError> {
        let response = self.json("/terminal", &Body::None)?;
        Ok(response.and_then(|value| value["output"].as_str().map(str::to_owned)))
    }

    fn screen_size(&self) -> Result<Option<Value>, GuestError> {
        self.json("/screen_size", &Body::Json(json!({})))
    }

    fn window_size(&self, class: &str) -> Result<Option<Value>, GuestError> {
        self.json("/window_size", &Body::Form(&[("app_class_name", class)]))
    }

    fn wallpaper(&self) -> Result<Option<Vec<u8>>, GuestError> {
        self.query(WALLPAPER, &Body::Json(json!({})))
    }

    fn desktop_path(&self) -> Result<Option<String>, GuestError> {
        let response = self.json("/desktop_path", &Body::Json(json!({})))?;
        Ok(response.and_then(|value| value["desktop_path"].as_str().map(str::to_owned)))
    }

    fn list_directory(&self, path: &str) -> Result<Option<Value>, GuestError> {
        let response = self.json("/list_directory", &Body::Json(json!({"path": path})))?;
        Ok(response.and_then(|value| value.get("directory_tree").cloned()))
    }

    /// User "" and password "password", as in OSWorld's image.
    fn vlc_status(&self) -> Result<Option<Vec<u8>>, GuestError> {
        let url = format!("http://{}:{}/requests/status.xml", self.host, self.ports.vlc);
        let lost = |problem: String| GuestError::Unreachable { call: "VLC's status".into(), problem };
        let secret = base64::engine::general_purpose::STANDARD.encode(":password");
        let limit = self.within(self.retry.quick);
        let request = self.agent.get(&url).config().timeout_global(Some(limit)).build();
        let response = request.header("Authorization", format!("Basic {secret}")).call();
        let mut response = response.map_err(|error| lost(error.to_string()))?;
        if response.status().as_u16() != 200 {
            return Ok(None);
        }
        response.body_mut().read_to_vec().map(Some).map_err(|error| lost(error.to_string()))
    }

    fn browser(&self) -> &dyn Browser {
        &self.browser
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(self.within(time));
    }
}

/// The fields `file_path` and `file_data` as a multipart form, and its content type.
fn multipart(path: &str, content: &[u8]) -> (String, Vec<u8>) {
    let mut boundary = String::from("arpo-part");
    while content.windows(boundary.len()).any(|piece| piece == boundary.as_bytes()) {
        boundary.push_str("-more");
    }
    let name = path.rsplit('/').next().unwrap_or_default().replace(['"', '\r', '\n'], "_");
    let mut body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file_path\"\r\n\r\n{path}\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"file_data\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(content);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_never_holds_its_boundary() {
        let (kind, body) = multipart("/home/user/a b.txt", b"--arpo-part--");
        assert!(kind.ends_with("boundary=arpo-part-more"));
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains("name=\"file_path\"\r\n\r\n/home/user/a b.txt\r\n"));
        assert!(text.contains("filename=\"a b.txt\""));
        assert!(text.ends_with("--arpo-part--\r\n--arpo-part-more--\r\n"));
    }
}
