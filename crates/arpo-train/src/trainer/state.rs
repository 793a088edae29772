//! What a run remembers besides the weights: enough to go on as if it had never stopped.

use crate::TrainError;
use crate::run::screens::ScreenStore;
use crate::screens::Screens;
use arpo_core::effort::Effort;
use arpo_core::replay::ReplayBuffer;
use arpo_core::sampler::TaskSampler;
use arpo_core::statistics::Success;
use arpo_core::task::TaskId;
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
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
    /// The one with the highest success on the training tasks, and the iterations before it.
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
            effort: Effort::default(),
            replay: ReplayBuffer::default(),
            metrics: 0,
            evaluations: Evaluations::default(),
            episodes: 0,
            environment_errors: 0,
        }
    }

    /// The weights' version: one more with every iteration.
    pub fn version(&self) -> PolicyVersion {
        PolicyVersion(self.iteration)
    }

    /// The stored trajectories.
    pub fn stored(&self) -> impl Iterator<Item = &Trajectory> {
        self.replay.iter().map(Arc::as_ref)
    }

    /// Puts the screenshots of the stored trajectories where a checkpoint finds them; their digests.
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
