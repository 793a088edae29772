//! What a run tells whoever watches: the command line shows it, scripts read it as JSON, one object per line.

use crate::collect::{DesktopFailure, FailureKind};
use arpo_core::statistics::Success;
use arpo_core::task::TaskId;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// The run begins or goes on.
    RunStarted(RunStarted),
    /// Episodes are being played.
    CollectProgress(CollectProgress),
    /// A desktop failed, or a task cannot be played.
    DesktopFailed(DesktopFailure),
    /// An iteration is over.
    IterationDone(IterationDone),
    /// Something a person should know: a damaged checkpoint, a desktop given up.
    Notice(Notice),
    /// The run is over.
    RunEnded(RunEnded),
}

/// How a run begins.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RunStarted {
    /// Its folder.
    pub folder: PathBuf,
    /// Iterations done before, if it goes on.
    pub resumed_at: Option<u64>,
    /// Iterations in all.
    pub iterations: u64,
    /// In words: the method and what makes this run one of its kind.
    pub method: String,
    /// Numbers learnt.
    pub parameters: u64,
    /// Where it computes.
    pub device: String,
    /// Tasks to train on; 0 if every visit has a new one.
    pub tasks: usize,
    /// Desktops at once.
    pub desktops: usize,
    /// Names every draw.
    pub seed: u64,
}

/// How far the episodes of an iteration are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CollectProgress {
    /// The iteration, from 1.
    pub iteration: u64,
    /// Episodes under way.
    pub running: usize,
    /// Episodes that have ended.
    pub finished: usize,
    /// Episodes to be played.
    pub total: usize,
    /// Of the finished ones, those that succeeded.
    pub successes: usize,
    /// Failures of desktops, by kind.
    pub failures: BTreeMap<FailureKind, u64>,
}

/// What came of an iteration.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct IterationDone {
    /// From 1.
    pub iteration: u64,
    /// Iterations in all.
    pub of: u64,
    /// It took.
    pub seconds: f64,
    /// Of those, until its episodes were played.
    pub collect_seconds: f64,
    /// Mean score of its fresh episodes.
    pub success: f64,
    /// Mean reward of what was trained on.
    pub reward: f64,
    /// Mean entropy of the policy at the agent's tokens.
    pub entropy: f64,
    /// Distance to the reference or the policy before, as the metrics have it.
    pub kl: f64,
    /// Before clipping; none if no update was made.
    pub gradient_norm: Option<f64>,
    /// Fresh episodes.
    pub episodes: usize,
    /// Groups with something to learn from, and all.
    pub informative: (usize, usize),
    /// Stored successes that took the place of failures.
    pub replayed: usize,
    /// Episodes that a desktop's failure ended.
    pub environment_errors: usize,
    /// If it was time for one.
    pub evaluation: Option<Evaluation>,
    /// If one was written.
    pub checkpoint: Option<PathBuf>,
}

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Evaluation {
    /// By the name of a set of tasks: training, unseen, held out. The first is the one that the best is chosen by.
    #[serde(serialize_with = "as_map")]
    pub suites: Vec<(String, Success)>,
    /// No evaluation before was better.
    pub best: bool,
    /// Its episodes that a desktop's failure ended.
    pub lost: usize,
}

/// One line for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// The line.
    pub message: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RunEnded {
    /// Iterations done, those before a resume included.
    pub iterations: u64,
    /// Iterations wanted.
    pub of: u64,
    /// Since this process began.
    pub seconds: f64,
    /// It was asked to stop.
    pub interrupted: bool,
    /// The first evaluation of the run, by set of tasks.
    #[serde(serialize_with = "as_map")]
    pub first: Vec<(String, Success)>,
    /// The last.
    #[serde(serialize_with = "as_map")]
    pub last: Vec<(String, Success)>,
    /// The best.
    pub best: Option<Best>,
    /// Episodes played.
    pub episodes: usize,
    /// Episodes that a desktop's failure ended.
    pub environment_errors: usize,
    /// Tasks that could not be set up or judged.
    pub unplayable: Vec<TaskId>,
    /// What was written: what it is, and where.
    #[serde(serialize_with = "as_map")]
    pub written: Vec<(String, PathBuf)>,
}

/// The best evaluation of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Best {
    /// After which it was made.
    pub iteration: u64,
    /// By set of tasks.
    #[serde(serialize_with = "as_map")]
    pub suites: Vec<(String, Success)>,
}

/// Pairs as a JSON object, in their order.
fn as_map<T: Serialize, S: Serializer>(pairs: &[(String, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}
