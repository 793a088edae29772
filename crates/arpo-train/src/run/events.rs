//! The events of a run: shown by the command line, or written as JSON, one object per line.

use crate::collect::{DesktopFailure, FailureKind};
use arpo_core::statistics::Success;
use arpo_core::task::TaskId;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// The run starts or resumes.
    RunStarted(RunStarted),
    /// Episodes are being collected.
    CollectProgress(CollectProgress),
    /// A desktop failed, or a task cannot be set up or evaluated.
    DesktopFailed(DesktopFailure),
    /// An iteration is over.
    IterationDone(IterationDone),
    /// A message for the user: a damaged checkpoint, for example.
    Notice(Notice),
    /// The run is over.
    RunEnded(RunEnded),
}

/// The start of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RunStarted {
    /// Its folder.
    pub folder: PathBuf,
    /// Iterations already done, if it resumes.
    pub resumed_at: Option<u64>,
    /// Iterations in all.
    pub iterations: u64,
    /// The method, as text.
    pub method: String,
    /// Trained parameters.
    pub parameters: u64,
    /// Where it computes.
    pub device: String,
    /// Tasks to train on; 0 if every visit has a new one.
    pub tasks: usize,
    /// Parallel desktops.
    pub desktops: usize,
    /// Random seed.
    pub seed: u64,
}

/// Progress of the episodes of an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CollectProgress {
    /// The iteration, from 1.
    pub iteration: u64,
    /// Active episodes.
    pub running: usize,
    /// Episodes that have ended.
    pub finished: usize,
    /// Planned episodes.
    pub total: usize,
    /// Of the finished ones, those that succeeded.
    pub successes: usize,
    /// Failures of desktops, by kind.
    pub failures: BTreeMap<FailureKind, u64>,
}

/// The result of an iteration.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct IterationDone {
    /// From 1.
    pub iteration: u64,
    /// Iterations in all.
    pub of: u64,
    /// Its duration.
    pub seconds: f64,
    /// The part of it until its episodes were collected.
    pub collect_seconds: f64,
    /// Mean score of its fresh episodes.
    pub success: f64,
    /// Mean reward of its fresh episodes.
    pub reward: f64,
    /// Mean entropy of the policy at the agent's tokens.
    pub entropy: f64,
    /// KL divergence from the policy before the updates, as `loss/kl` in the metrics.
    pub kl: f64,
    /// Before clipping; `None` if no update was made.
    pub gradient_norm: Option<f64>,
    /// Fresh episodes.
    pub episodes: usize,
    /// Informative groups, and all groups.
    pub informative: (usize, usize),
    /// Informative groups per second of collecting and learning.
    pub informative_per_second: f64,
    /// Failures replaced by stored successes.
    pub replayed: usize,
    /// Episodes that a desktop's failure ended.
    pub environment_errors: usize,
    /// The evaluation after it, if one was due.
    pub evaluation: Option<Evaluation>,
    /// The checkpoint after it, if one was written.
    pub checkpoint: Option<PathBuf>,
}

/// The result of an evaluation.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Evaluation {
    /// Success by set of tasks: training, unseen, held out. The first one selects the best model.
    #[serde(serialize_with = "as_map")]
    pub suites: Vec<(String, Success)>,
    /// No earlier evaluation was better.
    pub best: bool,
    /// Its episodes that a desktop's failure ended.
    pub lost: usize,
}

/// A message for the user, one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// The line.
    pub message: String,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RunEnded {
    /// Iterations done, including those before a resume.
    pub iterations: u64,
    /// Iterations configured.
    pub of: u64,
    /// Since this process started.
    pub seconds: f64,
    /// It was stopped on request.
    pub interrupted: bool,
    /// The first evaluation of the run, by set of tasks.
    #[serde(serialize_with = "as_map")]
    pub first: Vec<(String, Success)>,
    /// The last.
    #[serde(serialize_with = "as_map")]
    pub last: Vec<(String, Success)>,
    /// The best.
    pub best: Option<Best>,
    /// Completed episodes.
    pub episodes: usize,
    /// Episodes that a desktop's failure ended.
    pub environment_errors: usize,
    /// Tasks that could not be set up or evaluated.
    pub unplayable: Vec<TaskId>,
    /// Descriptions and paths of the files written.
    #[serde(serialize_with = "as_map")]
    pub written: Vec<(String, PathBuf)>,
}

/// The best evaluation of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Best {
    /// The iteration after which it was made.
    pub iteration: u64,
    /// By set of tasks.
    #[serde(serialize_with = "as_map")]
    pub suites: Vec<(String, Success)>,
}

/// Pairs as a JSON object, in their order.
fn as_map<T: Serialize, S: Serializer>(pairs: &[(String, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}
