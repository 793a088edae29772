//! The state of a run besides the weights: enough to resume as if it had never stopped.

use crate::TrainError;
use crate::batch::{BatchReport, Sample};
use crate::collect::CollectReport;
use crate::run::episodes::store::Resumed;
use crate::run::screens::ScreenStore;
use crate::screens::Screens;
use crate::updates::Updates;
use arpo_core::effort::Effort;
use arpo_core::replay::ReplayBuffer;
use arpo_core::statistics::Success;
use arpo_core::task::TaskId;
use arpo_core::task_sampler::TaskSampler;
use arpo_core::template_history::TemplateHistory;
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use arpo_env::faults::Fault;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// Iterations done.
    pub iteration: u64,
    /// Updates made.
    pub updates: u64,
    /// Updates that were skipped.
    pub skipped: u64,
    /// Which tasks come next.
    pub sampler: TaskSampler,
    /// Tasks drawn for later iterations, which are being collected or prepared.
    #[serde(default)]
    pub planned: VecDeque<PlannedTasks>,
    /// Tasks that an endless run has drawn.
    #[serde(default)]
    pub visits: u64,
    /// Successes and episode lengths by task.
    pub effort: Effort,
    /// Successes by template, for `task_sampling.history = "template"`.
    #[serde(default, skip_serializing_if = "TemplateHistory::is_empty")]
    pub templates: TemplateHistory,
    /// Stored successes.
    pub replay: ReplayBuffer,
    /// Where the next line of metrics begins.
    pub metrics: u64,
    /// Evaluations so far.
    pub evaluations: Evaluations,
    /// Completed episodes.
    pub episodes: usize,
    /// Episodes that a desktop's failure ended.
    pub environment_errors: usize,
    /// The iteration in which the run was stopped, if all its episodes were collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Box<IterationInProgress>>,
}

/// An iteration whose episodes are collected but whose updates or evaluation are not complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IterationInProgress {
    /// The configuration that it was planned with, as TOML; `None` in states of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_with: Option<String>,
    /// Its training batch.
    pub samples: Vec<Sample>,
    /// The progress of its updates.
    pub updates: Updates,
    /// Statistics of its batch.
    pub batch: BatchReport,
    /// Statistics of its collection.
    pub collected: CollectReport,
    /// Mean score of each collected task.
    pub tasks: BTreeMap<String, f64>,
    /// Policy versions between the sampler's weights and the learner's, before the updates.
    pub staleness: u64,
    /// Faults injected while its episodes were collected.
    pub faults: BTreeMap<Fault, u64>,
    /// Time until its episodes were collected.
    pub collect_seconds: f64,
    /// Time spent on its updates.
    pub learn_seconds: f64,
}

/// The tasks of a later iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedTasks {
    /// The iteration.
    pub iteration: u64,
    /// In the order of their groups.
    pub tasks: Vec<TaskId>,
}

/// The evaluations reported at the end of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluations {
    /// Number of evaluations.
    pub count: u64,
    /// The first.
    pub first: Vec<(String, Success)>,
    /// The last.
    pub last: Vec<(String, Success)>,
    /// The one with the highest success on the first of its sets, and the iterations done before it.
    pub best: Option<(u64, Vec<(String, Success)>)>,
}

impl Evaluations {
    /// Records an evaluation; true if it is the best so far.
    pub fn record(&mut self, iteration: u64, found: &[(String, Success)]) -> bool {
        let mean = |found: &[(String, Success)]| found.first().map_or(0.0, |(_, success)| success.mean);
        if self.count == 0 {
            self.first = found.to_vec();
        }
        self.count += 1;
        self.last = found.to_vec();
        let better = self.best.as_ref().is_none_or(|(_, best)| mean(found) > mean(best));
        if better {
            self.best = Some((iteration, found.to_vec()));
        }
        better
    }
}

impl RunState {
    /// The initial state.
    pub fn new(tasks: impl IntoIterator<Item = TaskId>, seed: u64) -> Self {
        Self {
            iteration: 0,
            updates: 0,
            skipped: 0,
            sampler: TaskSampler::new(tasks, seed),
            planned: VecDeque::new(),
            visits: 0,
            effort: Effort::default(),
            templates: TemplateHistory::default(),
            replay: ReplayBuffer::default(),
            metrics: 0,
            evaluations: Evaluations::default(),
            episodes: 0,
            environment_errors: 0,
            unfinished: None,
        }
    }

    /// The version of the weights: the number of iterations done.
    pub fn version(&self) -> PolicyVersion {
        PolicyVersion(self.iteration)
    }

    /// Where a run in this state resumes; `None` if nothing has been done yet.
    pub fn resumed(&self) -> Option<Resumed> {
        let resumed = Resumed { iteration: self.iteration, unfinished: self.unfinished.is_some() };
        (self.evaluations.count > 0 || resumed.collected() > 0).then_some(resumed)
    }

    /// The trajectories it holds: stored successes, and the batch of an unfinished iteration.
    pub fn stored(&self) -> impl Iterator<Item = &Trajectory> {
        let samples = self.unfinished.iter().flat_map(|unfinished| &unfinished.samples);
        self.replay.iter().chain(samples.map(|sample| &sample.member.trajectory)).map(Arc::as_ref)
    }

    /// Puts the screenshots of its trajectories into the store; returns their digests.
    pub fn save_screens(
        &self,
        screens: &Screens,
        store: &ScreenStore,
    ) -> Result<BTreeSet<String>, TrainError> {
        let mut digests = BTreeSet::new();
        for step in self.stored().flat_map(|trajectory| &trajectory.steps) {
            let digest = &step.observation.screenshot.digest;
            if digests.insert(digest.clone()) {
                screens.put(digest, store)?;
            }
        }
        Ok(digests)
    }
}
