//! What a run remembers besides the weights: enough to go on as if it had never stopped.

use crate::TrainError;
use crate::collect::CollectReport;
use crate::learn::Updates;
use crate::lesson::{LessonReport, Sample};
use crate::run::screens::ScreenStore;
use crate::screens::Screens;
use arpo_core::effort::Effort;
use arpo_core::replay::ReplayBuffer;
use arpo_core::sampler::TaskSampler;
use arpo_core::statistics::Success;
use arpo_core::task::TaskId;
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use arpo_env::faults::Fault;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// What a run remembers.
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
    /// Tasks drawn for iterations to come, which are being played or whose desktops get ready.
    #[serde(default)]
    pub planned: VecDeque<PlannedTasks>,
    /// Tasks that an endless run has drawn.
    #[serde(default)]
    pub visits: u64,
    /// What tasks took.
    pub effort: Effort,
    /// Stored successes.
    pub replay: ReplayBuffer,
    /// Where the next line of metrics begins.
    pub metrics: u64,
    /// Evaluations so far.
    pub evaluations: Evaluations,
    /// Episodes played.
    pub episodes: usize,
    /// Episodes that a desktop's failure ended.
    pub environment_errors: usize,
    /// The iteration that the run was stopped in, if its episodes were all played.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Box<Unfinished>>,
}

/// An iteration whose episodes are played, and of whose updates or evaluation something is left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unfinished {
    /// What it learns from.
    pub samples: Vec<Sample>,
    /// Its updates, as far as they are made.
    pub updates: Updates,
    /// How its samples came about.
    pub lesson: LessonReport,
    /// How its episodes were collected.
    pub collected: CollectReport,
    /// Mean score of each task that was played.
    pub tasks: BTreeMap<String, f64>,
    /// Policy versions between the sampler's weights and the learner's, before the updates.
    pub staleness: u64,
    /// Faults played on purpose while its episodes were collected.
    pub faults: BTreeMap<Fault, u64>,
    /// Time until its episodes were played.
    pub collect_seconds: f64,
    /// Time spent on its updates.
    pub learn_seconds: f64,
}

/// The tasks of an iteration to come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedTasks {
    /// Whose.
    pub iteration: u64,
    /// In the order of their groups.
    pub tasks: Vec<TaskId>,
}

/// The evaluations that are told of in the end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluations {
    /// How many there were.
    pub count: u64,
    /// The first.
    pub first: Vec<(String, Success)>,
    /// The last.
    pub last: Vec<(String, Success)>,
    /// The one with the highest success on the first of its sets, and the iterations before it.
    pub best: Option<(u64, Vec<(String, Success)>)>,
}

impl Evaluations {
    /// Remembers an evaluation; true if none before was better.
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
    /// At the beginning.
    pub fn new(tasks: impl IntoIterator<Item = TaskId>, seed: u64) -> Self {
        Self {
            iteration: 0,
            updates: 0,
            skipped: 0,
            sampler: TaskSampler::new(tasks, seed),
            planned: VecDeque::new(),
            visits: 0,
            effort: Effort::default(),
            replay: ReplayBuffer::default(),
            metrics: 0,
            evaluations: Evaluations::default(),
            episodes: 0,
            environment_errors: 0,
            unfinished: None,
        }
    }

    /// The weights' version: one more with every iteration.
    pub fn version(&self) -> PolicyVersion {
        PolicyVersion(self.iteration)
    }

    /// The trajectories it holds: stored successes, and what an unfinished iteration learns from.
    pub fn stored(&self) -> impl Iterator<Item = &Trajectory> {
        let samples = self.unfinished.iter().flat_map(|unfinished| &unfinished.samples);
        self.replay.iter().chain(samples.map(|sample| &sample.member.trajectory)).map(Arc::as_ref)
    }

    /// Puts the screenshots of its trajectories where a checkpoint finds them; their digests.
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
