//! Opening a file with whatever the desktop opens it with.
//!
//! The older of OSWorld's servers starts that and is done. "Verified" waits until a window shows the file and brings it
//! to the front, and takes a path without a file as the name of a program.

use super::body::JsonBody;
use super::response::HttpResponse;
use super::{Guest, HandlerResult, Shared, home, with_x};
use crate::command::run::{self, ProcessContext};
use crate::command::words::expanded;
use crate::command::{Command, is_in_path};
use crate::x11::windows::showing;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;
use std::env;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WINDOW_LIMIT: Duration = Duration::from_mins(30);
const WINDOW_POLL: Duration = Duration::from_secs(1);

/// `/setup/open_file`.
pub async fn open_file(State(guest): Shared, JsonBody(request): JsonBody) -> HandlerResult {
    let Some(path) = request.get("path").and_then(Value::as_str).filter(|path| !path.is_empty()) else {
        return Ok(HttpResponse::Text(StatusCode::BAD_REQUEST, "Path not supplied!".into()));
    };
    let path = expanded(path, &home(), |name| env::var(name).ok());
    let is_there = Path::new(&path).exists();
    let is_program = guest.is_verified() && is_in_path(&path, &env::var("PATH").unwrap_or_default());
    if !is_there && !is_program {
        return Ok(HttpResponse::Text(StatusCode::NOT_FOUND, format!("File not found: {path}")));
    }
    let words = if is_there { vec!["xdg-open".to_owned(), path.clone()] } else { vec![path.clone()] };
    let variables = guest.variables();
    let context = ProcessContext { variables: &variables, folder: None };
    if let Err(error) = run::launch(&Command::Words(words), context) {
        return Ok(HttpResponse::Text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("Failed to open {path}. Error: {error}"),
        ));
    }
    if guest.is_verified() && !is_shown(&guest, &path).await? {
        let message =
            format!("Failed to open {path}. Error: window not found in {} seconds", WINDOW_LIMIT.as_secs());
        return Ok(HttpResponse::Text(StatusCode::INTERNAL_SERVER_ERROR, message));
    }
    Ok(HttpResponse::text("File opened successfully"))
}

/// Waits for a window with the file's name and brings it to the front.
async fn is_shown(guest: &Arc<Guest>, path: &str) -> Result<bool, HttpResponse> {
    let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| path.to_owned());
    let start = Instant::now();
    while start.elapsed() < WINDOW_LIMIT {
        let name = name.clone();
        let found = with_x(guest, move |guest| {
            guest.windows.with(|windows| {
                let clients = windows.list()?;
                showing(&clients, &name).map(|client| windows.activate(client)).transpose()
            })
        });
        if found.await?.is_some() {
            return Ok(true);
        }
        tokio::time::sleep(WINDOW_POLL).await;
    }
    Ok(false)
}
