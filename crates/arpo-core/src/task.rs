//! A task: what the agent is asked to do, how the desktop is prepared for it, how the end is judged.
//!
//! Set-up and evaluator stay the JSON they came as: only the environment that runs the task understands them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a task, unique in its suite.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(String);

impl TaskId {
    /// A task's name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One task, in the shape of OSWorld's task files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique in its suite.
    pub id: TaskId,
    /// What the user asks for, in their words.
    pub instruction: String,
    /// The application or domain the task belongs to, for tables and curves.
    #[serde(default)]
    pub application: String,
    /// Steps that prepare the desktop, in the environment's own vocabulary.
    #[serde(default, rename = "config")]
    pub setup: serde_json::Value,
    /// How the final state is judged, in the environment's own vocabulary.
    #[serde(default)]
    pub evaluator: serde_json::Value,
}
