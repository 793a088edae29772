//! How a cluster is: what the hub of a running trainer tells whoever asks and has the token.

use serde::{Deserialize, Serialize};

/// The hosts, workers and desktops of a run at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterStatus {
    /// How long the trainer has been listening.
    pub seconds: f64,
    /// How many desktops the run wants.
    pub wanted: usize,
    /// Workers that were lost so far.
    pub lost_workers: u64,
    /// By name, also those without a worker at present.
    pub hosts: Vec<HostStatus>,
    /// All that are connected or may come back.
    pub workers: Vec<WorkerStatus>,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostStatus {
    /// Its name.
    pub host: String,
    /// The share of its desktops' time that they were in calls, from the beginning.
    pub utilisation: f64,
    /// Failures of its desktops and workers.
    pub failures: u64,
    /// Bytes of its screens.
    pub received: u64,
    /// The last of the failures.
    pub last_failure: Option<String>,
    /// How often it was quarantined.
    pub quarantines: u32,
    /// For how long it gets no desktops.
    pub quarantined_seconds: Option<f64>,
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerStatus {
    /// Its host.
    pub host: String,
    /// Its process number.
    pub process: u32,
    /// Most desktops.
    pub capacity: usize,
    /// For how long its connection has been lost.
    pub lost_seconds: Option<f64>,
    /// Its desktops.
    pub desktops: Vec<DesktopStatus>,
}

/// A desktop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesktopStatus {
    /// The slot of the trainer that it is for.
    pub slot: usize,
    /// The task of its last reset.
    pub task: Option<String>,
    /// The call that is being carried out, and since when; `None` between calls.
    pub call: Option<(String, f64)>,
}
