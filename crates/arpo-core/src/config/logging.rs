//! The section for what a run keeps for viewers and sends to trackers, beside its metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a run keeps for viewers and sends to trackers, beside its metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoggingConfig {
    /// Trackers that follow the run: `tensorboard`, `wandb`, `mlflow`. A problem with one of them is reported and never ends
    /// the run; `arpo log RUN --to ...` does the same for a run that has ended.
    pub to: Vec<String>,
    /// Disk for episodes and their screenshots, in GiB; 0 to keep none. Once it is used up, episodes of earlier iterations
    /// are removed so that those that stay are spread over the run. The newest iteration always stays.
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub episodes_gib: f64,
    /// The episodes of this many last iterations are removed only after all earlier ones.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub episodes_last: usize,
    /// Keep `status.json` and `live/` up to date: what the run and its desktops are doing now.
    pub live: bool,
    /// The project at W&B, and the experiment at MLflow.
    pub project: String,
    /// The name of the run at W&B and MLflow; empty for the name of its folder.
    pub name: String,
    /// The base URL of the MLflow server. `MLFLOW_TRACKING_TOKEN`, or `MLFLOW_TRACKING_USERNAME` and
    /// `MLFLOW_TRACKING_PASSWORD`, in the environment are sent to it.
    pub mlflow_server: String,
    /// The Python that has `wandb` installed. `WANDB_MODE=offline` and its other variables have the usual effect.
    pub python: String,
}

/// The trackers that a run can be sent to.
pub const TRACKERS: [&str; 3] = ["tensorboard", "wandb", "mlflow"];

impl Default for LoggingConfig {
    fn default() -> Self {
        Self {
            to: vec![],
            episodes_gib: 2.0,
            episodes_last: 10,
            live: true,
            project: "arpo".into(),
            name: String::new(),
            mlflow_server: "http://127.0.0.1:5000".into(),
            python: "python3".into(),
        }
    }
}

impl LoggingConfig {
    /// Only known trackers, each once, and what they need.
    pub(super) fn check(&self) -> Result<(), String> {
        for (at, name) in self.to.iter().enumerate() {
            if !TRACKERS.contains(&name.as_str()) {
                return Err(format!(
                    "`logging.to` has {name:?}: expected {}",
                    TRACKERS.map(|one| format!("{one:?}")).join(", ")
                ));
            }
            if self.to[..at].contains(name) {
                return Err(format!("`logging.to` has {name:?} twice: expected it once"));
            }
        }
        let needed = [
            ("mlflow", "mlflow_server", &self.mlflow_server),
            ("wandb", "python", &self.python),
            ("wandb", "project", &self.project),
            ("mlflow", "project", &self.project),
        ];
        for (tracker, key, value) in needed {
            if value.is_empty() && self.to.iter().any(|name| name == tracker) {
                return Err(format!("`logging.{key}` is empty: {tracker:?} in `logging.to` needs it"));
            }
        }
        let server = &self.mlflow_server;
        if !(server.is_empty() || server.starts_with("http://") || server.starts_with("https://")) {
            return Err(format!("`logging.mlflow_server` = {server:?}: expected http://... or https://..."));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trackers_are_known_and_have_what_they_need() {
        let with = |to: &[&str]| LoggingConfig {
            to: to.iter().map(|name| (*name).to_owned()).collect(),
            ..LoggingConfig::default()
        };
        assert_eq!(with(&TRACKERS).check(), Ok(()));
        let wrong = with(&["tensorbord"]).check().unwrap_err();
        assert_eq!(wrong, r#"`logging.to` has "tensorbord": expected "tensorboard", "wandb", "mlflow""#);
        assert!(with(&["wandb", "wandb"]).check().unwrap_err().contains("twice"));
        let nowhere = LoggingConfig { mlflow_server: String::new(), ..with(&["mlflow"]) };
        assert!(nowhere.check().unwrap_err().starts_with("`logging.mlflow_server` is empty"));
        assert!(LoggingConfig { to: vec![], ..nowhere }.check().is_ok());
        let odd = LoggingConfig { mlflow_server: "localhost:5000".into(), ..with(&[]) };
        assert!(odd.check().unwrap_err().contains("expected http://"));
    }
}
