//! Seeding: the replay buffer of a new run is filled with the successes that `arpo rollout` collected, guided by hints or
//! not, before the first iteration.
//!
//! Their tokens have the context of an ordinary episode. Their stored log-probabilities are those they were sampled with,
//! under the hint if there was one, which is what importance weights (`replay.importance_truncation`) must divide by; the
//! old log-probabilities, which ratios start at, are recomputed for every replayed episode. They have the age of the base
//! model's episodes, for `replay.max_age`. Tasks that the run does not train on are left out: nothing would ever be injected for them.

use super::state::RunState;
use crate::TrainError;
use crate::run::{RunFolder, episodes};
use arpo_core::config::{Config, Layer, resolve};
use arpo_core::reward::RewardConfig;
use arpo_core::task::TaskId;
use arpo_core::trajectory::Trajectory;
use std::collections::HashSet;
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
    let (trained, left_out) = of_tasks(trajectories, state.sampler.tasks(), &config.reward);
    let stored = state.replay.seed(trained.into_iter().map(Arc::new), &config.replay, &config.reward);
    if stored == 0 {
        return Err(wrong(name, &format!("none of its {count} episodes is a success of a training task")));
    }
    let screens = episodes::screens(from);
    for step in state.replay.iter().flat_map(|trajectory| &trajectory.steps) {
        // those that are missing were found when the episodes were read
        folder.screens().copy_from(&screens, &step.observation.screenshot.digest)?;
    }
    let others = match left_out {
        0 => String::new(),
        count => format!("; {count} of tasks that this run does not train on are left out"),
    };
    Ok(Some(format!("the replay buffer begins with {stored} successes of {name}{others}")))
}

/// The episodes of these tasks, and how many successes of other tasks there are.
fn of_tasks(episodes: Vec<Trajectory>, tasks: &[TaskId], reward: &RewardConfig) -> (Vec<Trajectory>, usize) {
    let tasks: HashSet<&TaskId> = tasks.iter().collect();
    let (trained, others): (Vec<_>, Vec<_>) =
        episodes.into_iter().partition(|episode| tasks.contains(&episode.task));
    let is_success =
        |episode: &&Trajectory| episode.outcome.is_trainable() && reward.is_success(episode.score);
    let left_out = others.iter().filter(is_success).count();
    (trained, left_out)
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

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::trajectory::Outcome;

    #[test]
    fn successes_of_tasks_that_the_run_does_not_visit_are_left_out_and_counted() {
        let episode = |task: &str, score: f64, outcome: Outcome| Trajectory {
            outcome,
            ..Trajectory::without_turns(0, &TaskId::new(task), 0, score)
        };
        let finished = Outcome::Finished {};
        let episodes = vec![
            episode("a", 1.0, finished.clone()),
            episode("b", 1.0, finished.clone()),
            episode("a", 0.0, finished.clone()),
            episode("c", 1.0, finished.clone()),
            episode("c", 0.0, finished),
        ];
        let visited = ["a", "d"].map(TaskId::new);
        let (trained, left_out) = of_tasks(episodes, &visited, &RewardConfig::default());
        assert_eq!(trained.iter().map(|one| one.task.as_str()).collect::<Vec<_>>(), ["a", "a"]);
        assert_eq!(left_out, 2, "failures are not worth a word");
    }
}
