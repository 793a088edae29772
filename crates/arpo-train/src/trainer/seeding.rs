//! Seeding: the replay buffer of a new run is filled with the successes that `arpo rollout` collected, guided by hints or
//! not, before the first iteration.
//!
//! Their tokens have the context of an ordinary episode. Their stored log-probabilities are those they were sampled with,
//! under the hint if there was one, which is what importance weights (`replay.importance_truncation`) must divide by; the
//! old log-probabilities, which ratios start at, are recomputed for every replayed episode. They have the age of the base
//! model's episodes, for `replay.max_age`.

use super::state::RunState;
use super::task_sets::TaskSets;
use crate::TrainError;
use crate::run::{RunFolder, episodes};
use arpo_core::config::{Config, Layer, resolve};
use std::path::Path;
use std::sync::Arc;

/// What only `arpo rollout` writes beside its episodes.
const ROLLOUTS: &str = "rollouts.json";

/// Checks that `replay.seed_from`, if it is set, is a folder of episodes that this configuration can train on.
pub(super) fn check(config: &Config) -> Result<(), TrainError> {
    let name = config.replay.seed_from.as_str();
    if name.is_empty() {
        Ok(())
    } else {
        check_agent(Path::new(name), config).map_err(|problem| wrong(name, &problem))
    }
}

fn wrong(name: &str, problem: &str) -> TrainError {
    TrainError::Configuration(format!("`replay.seed_from` = {name:?}: {problem}"))
}

/// Fills the buffer of a new run from `replay.seed_from`, if it is set; returns a notice for the user.
pub(super) fn seed(
    state: &mut RunState,
    tasks: &TaskSets,
    folder: &RunFolder,
    config: &Config,
) -> Result<Option<String>, TrainError> {
    let name = config.replay.seed_from.as_str();
    if name.is_empty() {
        return Ok(None);
    }
    check(config)?;
    let from = Path::new(name);
    let (trajectories, _) = episodes::read(from).map_err(|error| {
        wrong(name, &format!("{error}; rollouts with a hint keep only successes, of which there may be none"))
    })?;
    let count = trajectories.len();
    let trained = trajectories.into_iter().filter(|one| tasks.get(&one.task).is_some()).map(Arc::new);
    let stored = state.replay.seed(trained, &config.replay, &config.reward);
    if stored == 0 {
        return Err(wrong(name, &format!("none of its {count} episodes is a success of a training task")));
    }
    let screens = episodes::screens(from);
    for step in state.replay.iter().flat_map(|trajectory| &trajectory.steps) {
        // those that are missing were found when the episodes were read
        folder.screens().copy_from(&screens, &step.observation.screenshot.digest)?;
    }
    Ok(Some(format!("the replay buffer begins with {stored} successes of {name}")))
}

/// Episodes of an agent that is prompted in another way would be trained in a context in which it never acts.
fn check_agent(from: &Path, config: &Config) -> Result<(), String> {
    let path = from.join("config.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| {
        format!("{} cannot be read: {error}; expected a folder written by `arpo rollout`", path.display())
    })?;
    let theirs = Layer::toml("config.toml", &text).and_then(|layer| resolve(&[layer]));
    let theirs = theirs.map_err(|error| format!("{}: {error}", path.display()))?;
    if theirs.agent != config.agent {
        return Err("its episodes were collected with another `[agent]` section: expected the same".into());
    }
    if theirs.model.base != config.model.base {
        return Err(format!(
            "its episodes were sampled from {:?}, and their tokens are that model's: expected `model.base` = {:?}",
            theirs.model.base, config.model.base
        ));
    }
    // a training run's episodes have the versions and ids of that run
    if !from.join(ROLLOUTS).exists() {
        return Err(format!("has no {ROLLOUTS}: expected a folder written by `arpo rollout`"));
    }
    Ok(())
}
