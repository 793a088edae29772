//! The episodes of a run folder: `episodes/iteration-000007.jsonl`, `episodes/evaluation-000020.jsonl`, one line per
//! episode, their screenshots in `episodes/screens`, and an index. What the files hold: `docs/run-folder.md`.
//!
//! | to change | look in |
//! |---|---|
//! | how episodes are written, and what a resumed run removes | [`store`] |
//! | the lines of the index | [`index`] |
//! | which files go when the disk they may use is full | [`budget`] |
//! | the text, log-probability and ratio of every token | [`tokens`] |

pub mod budget;
pub mod index;
pub mod store;
pub mod tokens;

use super::RunError;
use super::durable::entries;
use super::screens::ScreenStore;
use crate::screens::Screens;
use arpo_core::trajectory::{EpisodeId, Trajectory};
use budget::Purpose;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use store::episode_file;

/// The screenshots of the episodes of a run folder.
pub(crate) fn screens(run: &Path) -> ScreenStore {
    ScreenStore::new(&run.join("episodes").join("screens"))
}

/// The episodes that a run folder holds for training, in the order they were collected: each once, however often it was
/// replayed, without evaluations and without those that a failing desktop ended. Needs no lock and changes nothing.
pub fn read(run: &Path) -> Result<(Vec<Trajectory>, Screens), RunError> {
    let folder = run.join("episodes");
    // screenshots are read on demand: a folder may hold more than fits into memory
    let store = Arc::new(screens(run));
    let mut trajectories = vec![];
    let mut known: HashSet<EpisodeId> = HashSet::new();
    for path in entries(&folder)? {
        if episode_file(&path).is_none_or(|file| file.purpose != Purpose::Training) {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(RunError::io(&path, "read"))?;
        for (number, line) in text.lines().enumerate() {
            let wrong = |problem: String| RunError::file(&path, format!("line {}: {problem}", number + 1));
            let trajectory: Trajectory =
                serde_json::from_str(line).map_err(|error| wrong(format!("not an episode: {error}")))?;
            trajectory.check().map_err(|error| wrong(error.to_string()))?;
            if !trajectory.outcome.is_trainable() || !known.insert(trajectory.id.clone()) {
                continue;
            }
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
        let problem = "no episodes: expected files written by `arpo rollout`, or by `arpo train` with `logging.episodes_gib`";
        return Err(RunError::file(&folder, problem));
    }
    Ok((trajectories, Screens::with_store(store, 0)))
}
