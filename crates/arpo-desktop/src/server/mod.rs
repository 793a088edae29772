//! OSWorld's HTTP interface: routes and authorisation.
//!
//! | to change | look in |
//! |---|---|
//! | the shapes of responses | [`response`] |
//! | how bodies of requests are read | [`body`] |
//! | commands and scripts | [`commands`] |
//! | screenshots, sizes, windows, wallpaper | [`desktop`] |
//! | files and folders | [`files`] |
//! | opening files | [`open`] |
//! | the accessibility tree, text of terminals | [`accessibility`] |
//! | screen recordings | [`recording`] |

pub mod accessibility;
pub mod body;
pub mod commands;
pub mod desktop;
pub mod files;
pub mod open;
pub mod recording;
pub mod response;

use crate::session;
use crate::x11::capture::Capture;
use crate::x11::input::InputDriver;
use crate::x11::windows::Windows;
use crate::x11::{LazyConnection, XError};
use arpo_core::generation::Generation;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use recording::Recording;
use response::HttpResponse;
use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state that handlers share.
pub struct Guest {
    generation: Generation,
    display: String,
    token: Option<String>,
    is_ready: AtomicBool,
    capture: LazyConnection<Capture>,
    input: LazyConnection<InputDriver>,
    windows: LazyConnection<Windows>,
    recording: Recording,
}

/// The argument of a handler.
pub type Shared = State<Arc<Guest>>;

/// The result of a handler; both sides are responses.
pub type HandlerResult = Result<HttpResponse, HttpResponse>;

impl Guest {
    /// A guest on a display, which need not be there yet.
    pub fn new(generation: Generation, display: &str, token: Option<String>) -> Self {
        Self {
            generation,
            display: display.to_owned(),
            token,
            is_ready: AtomicBool::new(false),
            capture: LazyConnection::new(display, Capture::open),
            input: LazyConnection::new(display, InputDriver::open),
            windows: LazyConnection::new(display, Windows::open),
            recording: Recording::default(),
        }
    }

    /// Starts answering requests.
    pub fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    fn is_verified(&self) -> bool {
        self.generation == Generation::Verified
    }

    /// Environment variables of commands. Read each time: a session publishes its bus when it has one.
    fn variables(&self) -> Vec<(String, String)> {
        session::variables(&self.display)
    }

    fn is_authorised(&self, request: &Request) -> bool {
        let Some(token) = &self.token else { return true };
        let given = request.headers().get(header::AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
        let given = given.and_then(|given| given.strip_prefix(b"Bearer "));
        given.is_some_and(|given| is_same(given, token.as_bytes()))
    }
}

/// Compares two secrets in constant time.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

/// The home of the user that this process runs as.
fn home() -> String {
    env::var("HOME").unwrap_or_else(|_| "/".into())
}

/// Runs blocking work on a thread for it.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HttpResponse> {
    tokio::task::spawn_blocking(work).await.map_err(HttpResponse::uncaught)
}

/// The same for work with the X server.
async fn with_x<T: Send + 'static>(
    guest: &Arc<Guest>,
    work: impl FnOnce(&Guest) -> Result<T, XError> + Send + 'static,
) -> Result<T, HttpResponse> {
    let guest = Arc::clone(guest);
    Ok(run_blocking(move || work(&guest)).await??)
}

/// Every route of OSWorld's server.
pub fn router(guest: Arc<Guest>) -> Router {
    let mut router = Router::new()
        .route("/execute", post(commands::execute))
        .route("/setup/execute", post(commands::execute))
        .route("/setup/launch", post(commands::launch))
        .route("/screenshot", get(desktop::screenshot))
        .route("/screen_size", post(desktop::screen_size))
        .route("/window_size", post(desktop::window_size))
        .route("/cursor_position", get(desktop::cursor_position))
        .route("/platform", get(desktop::platform))
        .route("/wallpaper", post(desktop::wallpaper))
        .route("/setup/change_wallpaper", post(desktop::change_wallpaper))
        .route("/setup/activate_window", post(desktop::activate_window))
        .route("/setup/close_window", post(desktop::close_window))
        .route("/terminal", get(accessibility::terminal))
        .route("/accessibility", get(accessibility::accessibility))
        .route("/desktop_path", post(files::desktop_path))
        .route("/list_directory", post(files::list_directory))
        .route("/file", post(files::file))
        .route("/setup/upload", post(files::upload))
        .route("/setup/download_file", post(files::download_file))
        .route("/setup/open_file", post(open::open_file))
        .route("/start_recording", post(recording::start))
        .route("/end_recording", post(recording::end));
    if guest.is_verified() {
        router = router
            .route("/execute_with_verification", post(commands::execute_with_verification))
            .route("/setup/execute_with_verification", post(commands::execute_with_verification))
            .route("/run_python", post(commands::run_python))
            .route("/run_bash_script", post(commands::run_bash_script));
    }
    router
        .fallback(async || not_found())
        .method_not_allowed_fallback(async || {
            let message = "The method is not allowed for the requested URL.";
            HttpResponse::Page(StatusCode::METHOD_NOT_ALLOWED, message.into())
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&guest), gate))
        // files of any size are uploaded
        .layer(DefaultBodyLimit::disable())
        .with_state(guest)
}

fn not_found() -> HttpResponse {
    let message = "The requested URL was not found on the server. If you entered the URL manually please check your \
                spelling and try again.";
    HttpResponse::Page(StatusCode::NOT_FOUND, message.into())
}

/// Rejects requests without the token, and all requests until the display is ready.
async fn gate(State(guest): Shared, request: Request, next: Next) -> Response {
    if !guest.is_authorised(&request) {
        return HttpResponse::failure(StatusCode::UNAUTHORIZED, "a bearer token is required").into_response();
    }
    if !guest.is_ready.load(Ordering::Acquire) {
        let message = format!("the display {} is not ready yet", guest.display);
        return HttpResponse::failure(StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_the_same_only_as_a_whole() {
        assert!(is_same(b"secret", b"secret"));
        for other in ["", "secre", "secret1", "Secret"] {
            assert!(!is_same(b"secret", other.as_bytes()), "{other}");
        }
    }
}
