//! OSWorld's HTTP interface: which address leads where, and who is let in.
//!
//! | to change | look in |
//! |---|---|
//! | the shapes of answers | [`answer`] |
//! | how bodies of requests are read | [`body`] |
//! | commands and scripts | [`commands`] |
//! | pictures, sizes, windows, wallpaper | [`desktop`] |
//! | files and folders | [`files`] |
//! | opening files | [`open`] |
//! | the tree of accessible things, text of terminals | [`accessibility`] |
//! | films of the screen | [`recording`] |

pub mod accessibility;
pub mod answer;
pub mod body;
pub mod commands;
pub mod desktop;
pub mod files;
pub mod open;
pub mod recording;

use crate::options::Generation;
use crate::session;
use crate::x11::capture::Capture;
use crate::x11::input::Hands;
use crate::x11::windows::Windows;
use crate::x11::{Kept, XError};
use answer::Answer;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use recording::Recording;
use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What handlers share.
pub struct Guest {
    generation: Generation,
    display: String,
    token: Option<String>,
    is_ready: AtomicBool,
    capture: Kept<Capture>,
    hands: Kept<Hands>,
    windows: Kept<Windows>,
    recording: Recording,
}

/// All that a handler is given.
pub type Shared = State<Arc<Guest>>;

/// What a handler gives back; both sides are answers.
pub type Answered = Result<Answer, Answer>;

impl Guest {
    /// A guest on a display, which need not be there yet.
    pub fn new(generation: Generation, display: &str, token: Option<String>) -> Self {
        Self {
            generation,
            display: display.to_owned(),
            token,
            is_ready: AtomicBool::new(false),
            capture: Kept::new(display, Capture::open),
            hands: Kept::new(display, Hands::open),
            windows: Kept::new(display, Windows::open),
            recording: Recording::default(),
        }
    }

    /// From now on requests are answered.
    pub fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    fn is_verified(&self) -> bool {
        self.generation == Generation::Verified
    }

    /// What commands find in their environment. Looked up each time: a session writes its bus down when it has one.
    fn variables(&self) -> Vec<(String, String)> {
        session::variables(&self.display)
    }

    fn is_let_in(&self, request: &Request) -> bool {
        let Some(token) = &self.token else { return true };
        let given = request.headers().get(header::AUTHORIZATION).map(axum::http::HeaderValue::as_bytes);
        let given = given.and_then(|given| given.strip_prefix(b"Bearer "));
        given.is_some_and(|given| is_same(given, token.as_bytes()))
    }
}

/// Compares in a time that says nothing about where two secrets differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

/// The home of the user that this process runs as.
fn home() -> String {
    env::var("HOME").unwrap_or_else(|_| "/".into())
}

/// Does something that waits, on a thread where that is allowed.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Answer> {
    tokio::task::spawn_blocking(work).await.map_err(Answer::uncaught)
}

/// The same with the X server.
async fn with_x<T: Send + 'static>(
    guest: &Arc<Guest>,
    work: impl FnOnce(&Guest) -> Result<T, XError> + Send + 'static,
) -> Result<T, Answer> {
    let guest = Arc::clone(guest);
    Ok(apart(move || work(&guest)).await??)
}

/// Every address of OSWorld's server.
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
            let said = "The method is not allowed for the requested URL.";
            Answer::Page(StatusCode::METHOD_NOT_ALLOWED, said.into())
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&guest), gate))
        // files of any size are uploaded
        .layer(DefaultBodyLimit::disable())
        .with_state(guest)
}

fn not_found() -> Answer {
    let said = "The requested URL was not found on the server. If you entered the URL manually please check your \
                spelling and try again.";
    Answer::Page(StatusCode::NOT_FOUND, said.into())
}

/// Nobody without the token gets anywhere, and nobody at all before there is a display.
async fn gate(State(guest): Shared, request: Request, next: Next) -> Response {
    if !guest.is_let_in(&request) {
        return Answer::failure(StatusCode::UNAUTHORIZED, "a bearer token is required").into_response();
    }
    if !guest.is_ready.load(Ordering::Acquire) {
        let said = format!("the display {} is not there yet", guest.display);
        return Answer::failure(StatusCode::SERVICE_UNAVAILABLE, said).into_response();
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
