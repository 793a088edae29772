//! Collected episodes read back from a run folder, with their screenshots.

use super::RunError;
use super::durable::entries;
use super::screens::ScreenStore;
use crate::screens::Screens;
use arpo_core::trajectory::Trajectory;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The episodes of a folder in the order they were collected. Needs no lock and changes nothing.
pub fn read(run: &Path) -> Result<(Vec<Trajectory>, Screens), RunError> {
    let folder = run.join("episodes");
    let store = ScreenStore::new(&run.join("screens"));
    let (mut trajectories, mut screens) = (vec![], Screens::default());
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
                let screenshot = &step.observation.screenshot;
                if screens.get(&screenshot.digest).is_none() {
                    screens.insert(screenshot.digest.clone(), Arc::new(store.get(screenshot)?));
                }
            }
            trajectories.push(trajectory);
        }
    }
    if trajectories.is_empty() {
        return Err(RunError::file(&folder, "no episodes: expected what `arpo rollout` writes"));
    }
    Ok((trajectories, screens))
}
