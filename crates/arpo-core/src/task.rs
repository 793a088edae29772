//! A task: the instruction, the set-up of the desktop, and the evaluator of the final state.
//!
//! Set-up and evaluator stay JSON: only the environment that runs the task interprets them.

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
    /// What the user asks for.
    pub instruction: String,
    /// The application or domain of the task, for tables and curves.
    #[serde(default)]
    pub application: String,
    /// Steps that prepare the desktop, in the environment's own format.
    #[serde(default, rename = "config")]
    pub setup: serde_json::Value,
    /// How the final state is evaluated, in the environment's own format.
    #[serde(default)]
    pub evaluator: serde_json::Value,
}
