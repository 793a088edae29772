//! The screen: screenshot, size, windows, pointer, wallpaper.

use super::body::{FormBody, JsonBody};
use super::response::{HttpResponse, OpenFile};
use super::{Guest, HandlerResult, Shared, home, with_x};
use crate::command::run::{self, ProcessContext};
use crate::command::words::expanded;
use crate::command::{Command, is_true};
use crate::x11::XError;
use crate::x11::windows::{Client, WindowSelector, Windows};
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SETTINGS_LIMIT: Duration = Duration::from_secs(20);
const WALLPAPER: [&str; 2] = ["org.gnome.desktop.background", "picture-uri"];

/// `/screenshot`: the screen with the pointer, as a PNG.
pub async fn screenshot(State(guest): Shared) -> HandlerResult {
    let png = with_x(&guest, |guest| {
        let screenshot = guest.capture.with(crate::x11::capture::Capture::screen_with_pointer)?;
        Ok(screenshot.png())
    });
    Ok(HttpResponse::Bytes("image/png", png.await?))
}

/// `/screen_size`.
pub async fn screen_size(State(guest): Shared) -> HandlerResult {
    let size = with_x(&guest, |guest| guest.capture.with(|capture| capture.connection().size()));
    let (width, height) = size.await?;
    Ok(HttpResponse::json(json!({"width": width, "height": height})))
}

/// `/cursor_position`: a pair.
pub async fn cursor_position(State(guest): Shared) -> HandlerResult {
    let position = with_x(&guest, |guest| guest.capture.with(|capture| capture.connection().pointer()));
    let (x, y) = position.await?;
    Ok(HttpResponse::json(json!([x, y])))
}

/// `/platform`.
pub async fn platform() -> HttpResponse {
    HttpResponse::text("Linux")
}

/// `/window_size`: of the first window of a class. Without one OSWorld's server fails in its framework.
pub async fn window_size(State(guest): Shared, form: FormBody) -> HandlerResult {
    let Some(name) = form.get("app_class_name").map(str::to_lowercase) else {
        return Ok(HttpResponse::error(StatusCode::BAD_REQUEST, "app_class_name is required"));
    };
    let size = with_x(&guest, move |guest| {
        guest.windows.with(|windows| {
            let clients = windows.list()?;
            let is_meant = |client: &&Client| {
                [&client.instance, &client.class].into_iter().any(|part| part.to_lowercase() == name)
            };
            clients.iter().find(is_meant).map(|client| windows.size(client)).transpose()
        })
    });
    match size.await? {
        Some((width, height)) => Ok(HttpResponse::json(json!({"width": width, "height": height}))),
        None => Ok(HttpResponse::uncaught("no window of this class")),
    }
}

/// `/setup/activate_window`: reports success even without such a window.
pub async fn activate_window(State(guest): Shared, JsonBody(request): JsonBody) -> HandlerResult {
    on_window(&guest, &request, Windows::activate).await?;
    Ok(HttpResponse::text("Window activated successfully"))
}

/// `/setup/close_window`: likewise.
pub async fn close_window(State(guest): Shared, JsonBody(request): JsonBody) -> HandlerResult {
    on_window(&guest, &request, Windows::close).await?;
    Ok(HttpResponse::text("Window closed successfully."))
}

async fn on_window(
    guest: &Arc<Guest>,
    request: &Value,
    action: fn(&Windows, &Client) -> Result<(), XError>,
) -> Result<(), HttpResponse> {
    let Some(name) = request.get("window_name").and_then(Value::as_str).filter(|name| !name.is_empty())
    else {
        return Err(HttpResponse::Text(StatusCode::BAD_REQUEST, "window_name required".into()));
    };
    let flag = |name: &str| request.get(name).is_some_and(is_true);
    let wanted = WindowSelector { name: name.to_owned(), strict: flag("strict"), by_class: flag("by_class") };
    let done = with_x(guest, move |guest| {
        guest.windows.with(|windows| {
            let clients = windows.list()?;
            wanted.find(&clients).map_or(Ok(()), |client| action(windows, client))
        })
    });
    done.await
}

/// `/wallpaper`: the file that GNOME's settings name.
pub async fn wallpaper(State(guest): Shared) -> HandlerResult {
    let get = ["gsettings", "get", WALLPAPER[0], WALLPAPER[1]];
    let path = settings(&guest, &get).await.map_err(HttpResponse::uncaught)?;
    let Some(path) = path.map(|path| wallpaper_path(&path)) else {
        return Ok(HttpResponse::Page(StatusCode::NOT_FOUND, "there is no wallpaper".into()));
    };
    OpenFile::open(Path::new(&path)).await.map(HttpResponse::File).map_err(HttpResponse::uncaught)
}

fn wallpaper_path(setting: &str) -> String {
    setting.trim().replace("file://", "").replace('\'', "")
}

/// `/setup/change_wallpaper`.
pub async fn change_wallpaper(State(guest): Shared, JsonBody(request): JsonBody) -> HandlerResult {
    let Some(path) = request.get("path").and_then(Value::as_str).filter(|path| !path.is_empty()) else {
        return Ok(HttpResponse::Text(StatusCode::BAD_REQUEST, "Path not supplied!".into()));
    };
    let path = PathBuf::from(expanded(path, &home(), |name| env::var(name).ok()));
    if !path.exists() {
        return Ok(HttpResponse::Text(StatusCode::NOT_FOUND, format!("File not found: {}", path.display())));
    }
    let uri = format!("file://{}", path.display());
    let set = ["gsettings", "set", WALLPAPER[0], WALLPAPER[1], &uri];
    match settings(&guest, &set).await {
        Ok(_) => Ok(HttpResponse::text("Wallpaper changed successfully")),
        Err(problem) => {
            let message = format!("Failed to change wallpaper. Error: {problem}");
            Ok(HttpResponse::Text(StatusCode::INTERNAL_SERVER_ERROR, message))
        }
    }
}

/// The output of `gsettings`; none if it fails.
async fn settings(guest: &Guest, words: &[&str]) -> Result<Option<String>, String> {
    let command = Command::Words(words.iter().map(|word| (*word).to_owned()).collect());
    let variables = guest.variables();
    let run = run::run(&command, ProcessContext { variables: &variables, folder: None }, SETTINGS_LIMIT);
    let finished = run.await.map_err(|error| error.to_string())?;
    Ok((finished.code == 0).then_some(finished.output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wallpaper_is_named_by_a_uri() {
        assert_eq!(wallpaper_path("'file:///usr/share/a b.png'\n"), "/usr/share/a b.png");
    }
}
