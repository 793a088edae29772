//! Which keys may change when a run resumes: those that do not affect its results. Other changes are made only on
//! request; every change is recorded in the folder.

use super::folder::ConfigChange;
use super::{RunError, RunFolder};
use serde_json::json;
use std::fs::File;
use std::io::Write;

/// Keys, and sections with a trailing `.`, that may change when a run resumes: its length, how often it is saved,
/// desktops and hosts, deadlines, memory, ranks, what it logs.
const MAY_CHANGE: [&str; 36] = [
    "iterations",
    "checkpoints.",
    "cluster.",
    "collect.desktops",
    "collect.running",
    "collect.start_seconds",
    "collect.reset_seconds",
    "collect.step_seconds",
    "collect.evaluate_seconds",
    "collect.back_off_seconds",
    "collect.quarantine_after",
    "learn.",
    "model.gpu",
    "logging.",
    "model.memory_gib",
    "model.activation_gib",
    "model.cache_gib",
    "model.micro_batch_tokens",
    "optimiser.moments",
    "replay.screens_gib",
    "rollout.",
    "osworld.tasks",
    "osworld.settings",
    "osworld.vm_disk",
    "osworld.running",
    "osworld.token",
    "osworld.spares",
    "osworld.memory_gib",
    "osworld.processors",
    "osworld.processes",
    "osworld.cache",
    "osworld.mirror",
    "osworld.offline",
    "chat.servers",
    "chat.key_variable",
    "chat.limit_seconds",
];

/// Whether a key may change when a run resumes.
pub fn may_change(key: &str) -> bool {
    MAY_CHANGE.iter().any(|&known| key == known || (known.ends_with('.') && key.starts_with(known)))
}

impl ConfigChange {
    /// For the user: `key = new, was old`.
    pub fn description(&self) -> String {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
        format!("`{}` = {}, was {}", self.key, shown(&self.is), shown(&self.was))
    }
}

impl RunFolder {
    /// Appends changes to `changes.jsonl`, one line each, with the number of iterations done before them.
    pub fn write_changes(&self, iteration: u64, changes: &[ConfigChange]) -> Result<(), RunError> {
        if changes.is_empty() {
            return Ok(());
        }
        let path = self.path().join("changes.jsonl");
        let mut file =
            File::options().create(true).append(true).open(&path).map_err(RunError::io(&path, "opened"))?;
        for ConfigChange { key, was, is } in changes {
            let line = json!({"iteration": iteration, "key": key, "was": was, "is": is});
            writeln!(file, "{line}").map_err(RunError::io(&path, "written"))?;
        }
        file.sync_all().map_err(RunError::io(&path, "written"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::config::Config;

    /// A renamed key must not silently become one that prevents resuming.
    #[test]
    fn every_key_is_one_of_the_configuration() {
        let config: toml::Table = Config::default().to_toml().parse().unwrap();
        for key in MAY_CHANGE {
            let found = match key.trim_end_matches('.').split_once('.') {
                Some((section, key)) => config[section].get(key).is_some(),
                None => config.contains_key(key.trim_end_matches('.')),
            };
            assert!(found, "{key}");
        }
    }

    #[test]
    fn keys_that_affect_results_may_not_change() {
        assert!(may_change("iterations") && may_change("checkpoints.keep") && may_change("collect.desktops"));
        for key in ["seed", "collect.tasks", "collect.order", "optimiser.learning_rate", "model.base"] {
            assert!(!may_change(key), "{key}");
        }
    }
}
