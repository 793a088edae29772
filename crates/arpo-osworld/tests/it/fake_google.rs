//! A Google of this test: it issues access tokens, and its Drive answers queries from a table.

use crate::server::{Answer, serve_by};
use arpo_osworld::google::{Accounts, Services};
use arpo_osworld::text::url::unquote;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// The settings of Drive as task files name them.
pub(crate) const SETTINGS: &str = "evaluation_examples/settings/googledrive/settings.yml";
/// The refresh token that it accepts.
pub(crate) const GOOD: &str = "good";
/// Files of one response.
const PAGE: usize = 2;

pub(crate) struct FakeGoogle {
    requests: Arc<Mutex<Vec<String>>>,
    settings: TempDir,
    accounts: Accounts,
}

/// How a request fails.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Status(u16),
    /// A 403 that asks for patience.
    RateLimit,
    /// A connection that ends without a response.
    Dropped,
}

/// Faults that may be over the next time.
pub(crate) const PASSING: [Fault; 4] =
    [Fault::Status(503), Fault::Status(429), Fault::RateLimit, Fault::Dropped];

impl Fault {
    fn answer(self) -> Answer {
        match self {
            Self::Status(status) => refusal(status, "of this test"),
            Self::RateLimit => {
                let reasons = json!([{"domain": "usageLimits", "reason": "rateLimitExceeded"}]);
                let error = json!({"errors": reasons, "code": 403, "message": "Rate Limit Exceeded"});
                Answer::new(403, json!({"error": error}).to_string())
            }
            Self::Dropped => Answer::none(),
        }
    }
}

/// A file with content, or with another type a folder or a document of Google's own.
pub(crate) fn file(id: &str, kind: Option<&str>) -> Value {
    match kind {
        None => json!({"id": id, "title": id, "mimeType": "application/pdf", "downloadUrl": "https://x"}),
        Some(kind) => {
            json!({"id": id, "title": id, "mimeType": format!("application/vnd.google-apps.{kind}")})
        }
    }
}

impl FakeGoogle {
    /// A Drive in which these queries find something, and an account whose settings have this refresh token.
    pub(crate) fn new(refresh_token: &str, found: &[(&str, Vec<Value>)]) -> Self {
        Self::start(refresh_token, found, |_| None)
    }

    /// The same where the first requests that begin with a text fail.
    pub(crate) fn failing(
        found: &[(&str, Vec<Value>)],
        beginning: &'static str,
        fault: Fault,
        times: usize,
    ) -> Self {
        let left = Cell::new(times);
        Self::start(GOOD, found, move |request| {
            let fails = request.starts_with(beginning) && left.get() > 0;
            fails.then(|| {
                left.set(left.get() - 1);
                fault.answer()
            })
        })
    }

    fn start(
        refresh_token: &str,
        found: &[(&str, Vec<Value>)],
        fault: impl Fn(&str) -> Option<Answer> + Send + 'static,
    ) -> Self {
        let found: BTreeMap<String, Vec<Value>> =
            found.iter().map(|(query, files)| ((*query).to_owned(), files.clone())).collect();
        let (port, requests) =
            serve_by(move |request| fault(request).unwrap_or_else(|| respond(request, &found)));
        let settings = tempfile::tempdir().unwrap();
        write_settings(settings.path(), refresh_token, &format!("http://127.0.0.1:{port}/token"));
        let services = Services {
            drive: format!("http://127.0.0.1:{port}/drive/v2"),
            upload: format!("http://127.0.0.1:{port}/upload/drive/v2"),
            pause: Duration::from_millis(1),
        };
        let accounts = Accounts::new(settings.path()).with_services(services);
        Self { requests, settings, accounts }
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(crate) fn folder(&self) -> &Path {
        self.settings.path()
    }

    /// Method, decoded address and body of each request, without what every list asks for.
    pub(crate) fn calls(&self) -> Vec<String> {
        let shown = |request: &String| {
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let line = head.lines().next().unwrap();
            let line = line.strip_suffix(" HTTP/1.1").unwrap();
            let line = line.split("&maxResults=").next().unwrap();
            format!("{} {body}", unquote(line)).trim_end().to_owned()
        };
        self.requests.lock().unwrap().iter().map(shown).collect()
    }

    /// How many requests begin with a text.
    pub(crate) fn count(&self, beginning: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|request| request.starts_with(beginning)).count()
    }
}

/// Settings as in OSWorld's repository.
pub(crate) fn write_settings(folder: &Path, refresh_token: &str, token_uri: &str) {
    let tokens = json!({"client_id": "program", "client_secret": "its secret", "refresh_token": refresh_token,
        "token_uri": token_uri, "access_token": "old", "invalid": false, "_class": "OAuth2Credentials"});
    let drive = "client_config_backend: file\n\
        client_config_file: evaluation_examples/settings/googledrive/client_secrets.json\n\
        save_credentials: True\nsave_credentials_backend: file\n\
        save_credentials_file: evaluation_examples/settings/googledrive/credentials.json\n\
        get_refresh_token: True\noauth_scope:\n  - https://www.googleapis.com/auth/drive\n";
    for (name, content) in [
        (
            "google/settings.json",
            r#"{"email": "somebody@example.org", "password": "a \"secret\""}"#.to_owned(),
        ),
        ("googledrive/settings.yml", drive.to_owned()),
        ("googledrive/credentials.json", tokens.to_string()),
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

fn refusal(status: u16, message: &str) -> Answer {
    Answer::new(status, json!({"error": {"code": status, "message": message}}).to_string())
}

fn respond(request: &str, found: &BTreeMap<String, Vec<Value>>) -> Answer {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let json = |value: Value| Answer::new(200, value.to_string());
    match (method, path) {
        ("POST", "/token") if body.ends_with(&format!("refresh_token={GOOD}")) => {
            json(json!({"access_token": "fresh", "expires_in": 3599}))
        }
        ("POST", "/token") => Answer::new(
            400,
            json!({"error": "invalid_grant", "error_description": "Token has been expired or revoked."})
                .to_string(),
        ),
        ("PUT", "/session") => json(json!({"id": "uploaded"})),
        _ if !head.to_lowercase().contains("authorization: bearer fresh") => refusal(401, "Login Required."),
        ("GET", path) if path.starts_with("/drive/v2/files?q=") => {
            let query = unquote(path.split(['=', '&']).nth(1).unwrap());
            if query.contains("wrong") {
                return refusal(400, "Invalid query");
            }
            let from = path.split_once("pageToken=").map_or(0, |(_, page)| page.parse::<usize>().unwrap());
            let files = found.get(&query).map_or(&[][..], Vec::as_slice);
            let items = &files[from..files.len().min(from + PAGE)];
            let next = from + PAGE < files.len();
            json(json!({"items": items, "nextPageToken": next.then(|| (from + PAGE).to_string())}))
        }
        ("GET", "/drive/v2/files/large?alt=media") => Answer::new(200, vec![0_u8; (64 << 20) + 1]),
        ("GET", path) if path.ends_with("?alt=media") => Answer::new(200, "the content"),
        ("DELETE", "/drive/v2/files/gone") => refusal(404, "File not found: gone"),
        ("DELETE", "/drive/v2/files/locked") => refusal(403, "The user does not have sufficient permissions"),
        ("DELETE", _) => Answer::new(204, ""),
        ("POST", path) if path.ends_with("/trash") => json(json!({"id": "trashed"})),
        ("POST", "/drive/v2/files") => json(json!({"id": "made"})),
        ("POST", "/upload/drive/v2/files?uploadType=resumable") => {
            let host =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("host: ").map(str::to_owned));
            let location = Some(format!("http://{}/session", host.unwrap()));
            Answer { location, ..Answer::new(200, "") }
        }
        _ => refusal(404, "Not Found"),
    }
}
