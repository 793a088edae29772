//! The replay buffer of a task, from the state in the last checkpoint. Its episodes are not read, only named.

use super::Run;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::PathBuf;

/// Larger states are not read for a page.
const MAX_BYTES: u64 = 1 << 30;

/// A stored success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredSuccess {
    /// The episode.
    pub id: String,
    /// The weights that acted.
    #[serde(default)]
    pub policy_version: u64,
    /// Its score.
    #[serde(default)]
    pub score: f64,
}

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    iteration: u64,
    #[serde(default)]
    replay: Replay,
}

#[derive(Deserialize, Default)]
struct Replay {
    #[serde(default)]
    successes: BTreeMap<String, Vec<StoredSuccess>>,
}

/// The successes that are stored for a task, and the iteration of the checkpoint that says so; `None` if no checkpoint does.
pub fn of_task(run: &Run, task: &str) -> Option<(u64, Vec<StoredSuccess>)> {
    let path = last_state(run)?;
    let file = File::open(path).ok()?;
    if file.metadata().ok()?.len() > MAX_BYTES {
        return None;
    }
    let mut state: State = serde_json::from_reader(BufReader::new(file)).ok()?;
    Some((state.iteration, state.replay.successes.remove(task).unwrap_or_default()))
}

fn last_state(run: &Run) -> Option<PathBuf> {
    let checkpoints = fs::read_dir(run.path().join("checkpoints")).ok()?;
    let states = checkpoints.flatten().map(|entry| entry.path().join("state.json"));
    states.filter(|path| path.is_file()).max()
}
