//! Films of the screen, made by ffmpeg where the guest has it.

use super::answer::{Answer, OpenFile};
use super::{Answered, Shared, with_x};
use crate::command::Command;
use crate::command::run::{self, Surroundings};
use axum::extract::State;
use axum::http::StatusCode;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Child;
use tokio::sync::Mutex;

/// ffmpeg writes the end of a film when it is interrupted.
const END_LIMIT: Duration = Duration::from_secs(15);
/// By then ffmpeg has failed or will not.
const START_LIMIT: Duration = Duration::from_secs(2);

/// The film that is being made.
pub struct Recording {
    path: PathBuf,
    running: Mutex<Option<Child>>,
}

impl Default for Recording {
    fn default() -> Self {
        Self { path: "/tmp/recording.mp4".into(), running: Mutex::new(None) }
    }
}

/// What ffmpeg is told.
fn film(display: &str, (width, height): (u16, u16), path: &Path) -> Command {
    let line =
        format!("ffmpeg -y -f x11grab -draw_mouse 1 -s {width}x{height} -i {display} -c:v libx264 -r 30");
    let words = line.split(' ').map(str::to_owned);
    Command::Words(words.chain([path.to_string_lossy().into_owned()]).collect())
}

/// `/start_recording`.
pub async fn start(State(guest): Shared) -> Answered {
    let recording = &guest.recording;
    let mut running = recording.running.lock().await;
    if let Some(child) = running.as_mut()
        && child.try_wait().is_ok_and(|status| status.is_none())
    {
        return Ok(Answer::failure(StatusCode::BAD_REQUEST, "Recording is already in progress."));
    }
    let size = with_x(&guest, |guest| guest.capture.with(|capture| capture.connection().size())).await?;
    // a film of another time must not be taken for this one
    let _ = tokio::fs::remove_file(&recording.path).await;
    let variables = guest.variables();
    let surroundings = Surroundings { variables: &variables, folder: None };
    let started = run::start(&film(&guest.display, size, &recording.path), surroundings);
    let failed = |problem: String| {
        let said = format!("Failed to start recording. {problem}");
        Answer::failure(StatusCode::INTERNAL_SERVER_ERROR, said)
    };
    let mut child = started.map_err(|error| failed(error.to_string()))?;
    if guest.is_verified()
        && let Ok(Ok(status)) = tokio::time::timeout(START_LIMIT, child.wait()).await
    {
        return Err(failed(format!("ffmpeg ended at once: {status}")));
    }
    *running = Some(child);
    let said = serde_json::json!({"status": "success", "message": "Started recording successfully."});
    Ok(Answer::json(said))
}

/// `/end_recording`: the film.
pub async fn end(State(guest): Shared) -> Answered {
    let recording = &guest.recording;
    let Some(mut child) = recording.running.lock().await.take() else {
        return Ok(Answer::failure(StatusCode::BAD_REQUEST, "No recording in progress to stop."));
    };
    run::end(&mut child, Signal::INT, END_LIMIT).await.map_err(Answer::uncaught)?;
    match OpenFile::open(&recording.path).await {
        Ok(film) => Ok(Answer::File(film)),
        Err(_) if guest.is_verified() => {
            let said = "Recording failed. The output file is missing or empty.";
            Ok(Answer::failure(StatusCode::INTERNAL_SERVER_ERROR, said))
        }
        Err(_) => Ok(Answer::Page(StatusCode::NOT_FOUND, "Recording failed".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ffmpeg_is_told_what_osworld_tells_it() {
        let command = film(":0", (1920, 1080), Path::new("/tmp/recording.mp4"));
        let said =
            "ffmpeg -y -f x11grab -draw_mouse 1 -s 1920x1080 -i :0 -c:v libx264 -r 30 /tmp/recording.mp4";
        assert_eq!(command.said(), said);
    }
}
