//! Collected episodes in a run folder: `episodes/iteration-000007.jsonl`, one line per episode, and their screenshots in
//! `episodes/screens`, where nothing is evicted.

use super::RunError;
use super::durable::{entries, make_folder, write_file};
use super::screens::ScreenStore;
use crate::episode::CompletedEpisode;
use crate::screens::Screens;
use arpo_core::trajectory::Trajectory;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes the episodes of an iteration, replacing a file that an interrupted run may have written.
pub fn write<'a>(
    run: &Path,
    iteration: u64,
    episodes: impl IntoIterator<Item = &'a CompletedEpisode>,
) -> Result<PathBuf, RunError> {
    let folder = run.join("episodes");
    make_folder(&folder)?;
    let store = ScreenStore::new(&folder.join("screens"));
    let path = file(run, iteration);
    let mut lines = Vec::new();
    for CompletedEpisode { trajectory, screens, .. } in episodes {
        for (step, screen) in trajectory.steps.iter().zip(screens) {
            store.put_encoded(&step.observation.screenshot.digest, &screen.image, screen.png.as_deref())?;
        }
        serde_json::to_writer(&mut lines, trajectory)
            .map_err(|error| RunError::file(&path, format!("an episode cannot be written: {error}")))?;
        lines.push(b'\n');
    }
    write_file(&path, &lines)?;
    Ok(path)
}

/// Whether the episodes of an iteration have been written.
pub fn is_written(run: &Path, iteration: u64) -> bool {
    file(run, iteration).is_file()
}

fn file(run: &Path, iteration: u64) -> PathBuf {
    run.join("episodes").join(format!("iteration-{iteration:06}.jsonl"))
}

/// The episodes of a run folder in the order they were collected. Needs no lock and changes nothing.
pub fn read(run: &Path) -> Result<(Vec<Trajectory>, Screens), RunError> {
    let folder = run.join("episodes");
    // screenshots are read on demand: a folder may hold more than fits into memory
    let store = Arc::new(ScreenStore::new(&folder.join("screens")));
    let mut trajectories = vec![];
    for path in entries(&folder)? {
        if path.extension().is_none_or(|ending| ending != "jsonl") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(RunError::io(&path, "read"))?;
        for (number, line) in text.lines().enumerate() {
            let wrong = |problem: String| RunError::file(&path, format!("line {}: {problem}", number + 1));
            let trajectory: Trajectory =
                serde_json::from_str(line).map_err(|error| wrong(format!("not an episode: {error}")))?;
            trajectory.check().map_err(|error| wrong(error.to_string()))?;
            for step in &trajectory.steps {
                let path = store.path(&step.observation.screenshot.digest)?;
                if !path.is_file() {
                    return Err(wrong(format!("its screenshot {} does not exist", path.display())));
                }
            }
            trajectories.push(trajectory);
        }
    }
    if trajectories.is_empty() {
        return Err(RunError::file(&folder, "no episodes: expected files written by `arpo rollout`"));
    }
    Ok((trajectories, Screens::with_store(store, 0)))
}
