//! Screen recordings, made by ffmpeg where the guest has it.

use super::response::{HttpResponse, OpenFile};
use super::{HandlerResult, Shared, with_x};
use crate::command::Command;
use crate::command::run::{self, ProcessContext};
use axum::extract::State;
use axum::http::StatusCode;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Child;
use tokio::sync::Mutex;

/// ffmpeg finishes the file when it is interrupted.
const END_LIMIT: Duration = Duration::from_secs(15);
/// If ffmpeg has not failed by then, it works.
const START_LIMIT: Duration = Duration::from_secs(2);

/// The recording in progress.
pub struct Recording {
    path: PathBuf,
    running: Mutex<Option<Child>>,
}

impl Default for Recording {
    fn default() -> Self {
        Self { path: "/tmp/recording.mp4".into(), running: Mutex::new(None) }
    }
}

/// The command line of ffmpeg.
fn ffmpeg_command(display: &str, (width, height): (u16, u16), path: &Path) -> Command {
    let line =
        format!("ffmpeg -y -f x11grab -draw_mouse 1 -s {width}x{height} -i {display} -c:v libx264 -r 30");
    let words = line.split(' ').map(str::to_owned);
    Command::Words(words.chain([path.to_string_lossy().into_owned()]).collect())
}

/// `/start_recording`.
pub async fn start(State(guest): Shared) -> HandlerResult {
    let recording = &guest.recording;
    let mut running = recording.running.lock().await;
    if let Some(child) = running.as_mut()
        && child.try_wait().is_ok_and(|status| status.is_none())
    {
        return Ok(HttpResponse::failure(StatusCode::BAD_REQUEST, "Recording is already in progress."));
    }
    let size = with_x(&guest, |guest| guest.capture.with(|capture| capture.connection().size())).await?;
    // an old recording must not be taken for this one
    let _ = tokio::fs::remove_file(&recording.path).await;
    let variables = guest.variables();
    let context = ProcessContext { variables: &variables, folder: None };
    let started = run::start(&ffmpeg_command(&guest.display, size, &recording.path), context);
    let failed = |problem: String| {
        let message = format!("Failed to start recording. {problem}");
        HttpResponse::failure(StatusCode::INTERNAL_SERVER_ERROR, message)
    };
    let mut child = started.map_err(|error| failed(error.to_string()))?;
    if guest.is_verified()
        && let Ok(Ok(status)) = tokio::time::timeout(START_LIMIT, child.wait()).await
    {
        return Err(failed(format!("ffmpeg ended at once: {status}")));
    }
    *running = Some(child);
    let message = serde_json::json!({"status": "success", "message": "Started recording successfully."});
    Ok(HttpResponse::json(message))
}

/// `/end_recording`: the recording.
pub async fn end(State(guest): Shared) -> HandlerResult {
    let recording = &guest.recording;
    let Some(mut child) = recording.running.lock().await.take() else {
        return Ok(HttpResponse::failure(StatusCode::BAD_REQUEST, "No recording in progress to stop."));
    };
    run::end(&mut child, Signal::INT, END_LIMIT).await.map_err(HttpResponse::uncaught)?;
    match OpenFile::open(&recording.path).await {
        Ok(file) => Ok(HttpResponse::File(file)),
        Err(_) if guest.is_verified() => {
            let message = "Recording failed. The output file is missing or empty.";
            Ok(HttpResponse::failure(StatusCode::INTERNAL_SERVER_ERROR, message))
        }
        Err(_) => Ok(HttpResponse::Page(StatusCode::NOT_FOUND, "Recording failed".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ffmpeg_gets_the_arguments_of_osworld() {
        let command = ffmpeg_command(":0", (1920, 1080), Path::new("/tmp/recording.mp4"));
        let message =
            "ffmpeg -y -f x11grab -draw_mouse 1 -s 1920x1080 -i :0 -c:v libx264 -r 30 /tmp/recording.mp4";
        assert_eq!(command.joined(), message);
    }
}
