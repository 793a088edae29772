//! An episode as it is stored, read leniently: what is missing or unknown is left out, and token ids are not read at all.

use crate::run::index::Ending;
use serde::Deserialize;
use serde_json::Value;

/// A line of a file of episodes.
#[derive(Debug, Clone, Deserialize)]
pub struct StoredEpisode {
    /// Its name.
    pub id: String,
    /// Its task.
    pub task: String,
    /// The weights that acted.
    #[serde(default)]
    pub policy_version: u64,
    /// Its turns.
    #[serde(default)]
    pub steps: Vec<StoredStep>,
    /// For every trained token, the log-probability it was sampled with.
    #[serde(default)]
    pub sampler_logp: Vec<f64>,
    /// The evaluator's score.
    #[serde(default)]
    pub score: f64,
    /// How it ended.
    #[serde(default)]
    pub outcome: Value,
}

/// A turn.
#[derive(Debug, Clone, Deserialize)]
pub struct StoredStep {
    /// What the agent saw.
    pub observation: StoredObservation,
    /// What it wrote.
    #[serde(default)]
    pub response: String,
    /// What that meant.
    #[serde(default)]
    pub actions: Vec<Value>,
    /// Its trained tokens.
    #[serde(default)]
    pub span: StoredSpan,
}

/// What the agent saw.
#[derive(Debug, Clone, Deserialize)]
pub struct StoredObservation {
    /// The screen.
    pub screenshot: StoredScreen,
}

/// A screenshot by its digest.
#[derive(Debug, Clone, Deserialize)]
pub struct StoredScreen {
    /// Its name.
    pub digest: String,
    /// In pixels.
    #[serde(default)]
    pub width: u32,
    /// In pixels.
    #[serde(default)]
    pub height: u32,
}

/// A range of tokens.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct StoredSpan {
    /// First position.
    pub start: usize,
    /// One past the last.
    pub end: usize,
}

impl StoredSpan {
    /// Number of tokens.
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl StoredEpisode {
    /// How it ended, and why, if it was a failure.
    pub fn ending(&self) -> (Ending, Option<&str>) {
        let ending = serde_json::from_value(self.outcome["type"].clone()).unwrap_or_default();
        (ending, self.outcome["reason"].as_str())
    }
}
