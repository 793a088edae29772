//! Experience replay: a stored success is injected into a group of the same task in which every rollout failed, so that
//! the group has a learning signal.
//!
//! The rule is the paper's, with the released code's thresholds as options: a group has failed when the population standard
//! deviation of its scores and their mean are both low; then stored successes replace members. Other groups do not change.
//! A group is checked before its own successes are stored. Only fresh trajectories are stored, and the oldest are evicted
//! first.

use crate::loss::LossConfig;
use crate::loss::policy::Behaviour;
use crate::reward::RewardConfig;
use crate::task::TaskId;
use crate::trajectory::{EpisodeId, PolicyVersion, Trajectory, TrajectoryError};
use rand::Rng;
use rand::seq::{IndexedRandom, index};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Experience replay: when stored successes are trained on again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayConfig {
    /// Switches replay on. Without it nothing is stored or injected: plain GRPO.
    pub enabled: bool,
    /// Maximum number of successes stored per task; the oldest is evicted first.
    #[schemars(range(min = 1, max = 100_000))]
    pub capacity: usize,
    /// A group has failed if the mean of its scores is below this and `fail_std_below` holds.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub fail_mean_below: f64,
    /// A group has failed if the population standard deviation of its scores is below this and `fail_mean_below` holds.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub fail_std_below: f64,
    /// Which members of a failed group are replaced.
    pub slot: ReplaySlot,
    /// How many members of a failed group are replaced (the paper: 1). At least one member always stays.
    #[schemars(range(min = 1, max = 1024))]
    pub injections: usize,
    /// Successes more than this many policy versions old are not injected. 0 for no limit, as in the paper.
    pub max_age: u64,
    /// Truncated importance sampling: a replayed token has the weight min(exp(old - stored), this), where stored is the
    /// log-probability it was sampled with. 0 switches it off, as in the paper.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub importance_truncation: f64,
    /// Seeding: a folder that `arpo rollout` has written, with or without `--hint`. Its successes of tasks that the run trains on
    /// fill the buffer before the first iteration. Empty for an empty buffer.
    pub seed_from: String,
    /// Memory for screenshots of stored successes, in GiB; the rest is read from the run folder when needed.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub screens_gib: f64,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            capacity: 8,
            fail_mean_below: 0.2,
            fail_std_below: 0.05,
            slot: ReplaySlot::First,
            injections: 1,
            max_age: 0,
            importance_truncation: 0.0,
            seed_from: String::new(),
            screens_gib: 4.0,
        }
    }
}

/// Which members of a failed group are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplaySlot {
    /// The first, as in the released code.
    First,
    /// Random members.
    Random,
}

/// Where a member of a group comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Origin {
    /// Collected for this group.
    Fresh {},
    /// A stored success.
    Replayed {
        /// Policy versions between its collection and now.
        age: u64,
    },
}

/// One trajectory of a group, ready to be trained on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The episode.
    pub trajectory: Arc<Trajectory>,
    /// Where it comes from.
    pub origin: Origin,
}

impl Member {
    /// The correction for tokens that were sampled by another policy than the one before the update: fresh tokens if
    /// `loss.importance_truncation` is set, replayed ones if `replay.importance_truncation` is.
    pub fn behaviour(&self, loss: &LossConfig, replay: &ReplayConfig) -> Option<Behaviour<'_>> {
        let truncation = match self.origin {
            Origin::Fresh {} => loss.importance_truncation,
            Origin::Replayed { .. } => replay.importance_truncation,
        };
        (truncation > 0.0).then(|| Behaviour { logp: &self.trajectory.sampler_logp, truncation })
    }
}

/// What happened to a group, for the metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplayReport {
    /// The group counts as failed.
    pub all_failed: bool,
    /// What was injected.
    pub injected: Vec<Injection>,
    /// How many of its trajectories were stored.
    pub stored: usize,
    /// How many older ones were evicted.
    pub evicted: usize,
}

/// One injected trajectory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    /// The index of the replaced member.
    pub slot: usize,
    /// The stored episode.
    pub episode: EpisodeId,
    /// Policy versions between its collection and now.
    pub age: u64,
}

/// Stored successes by task. Saved in every checkpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayBuffer {
    successes: BTreeMap<TaskId, VecDeque<Arc<Trajectory>>>,
}

/// A stored buffer that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// A trajectory is inconsistent.
    #[error("replay buffer: {0}")]
    Trajectory(#[from] TrajectoryError),
    /// A trajectory is stored under another task's name.
    #[error("replay buffer: episode {episode} of task {found} is stored under task {expected}")]
    WrongTask {
        /// The episode.
        episode: EpisodeId,
        /// Its task.
        found: TaskId,
        /// The task it is stored under.
        expected: TaskId,
    },
}

/// Whether a group counts as failed.
pub fn all_failed(scores: &[f64], config: &ReplayConfig) -> bool {
    if scores.is_empty() {
        return false;
    }
    let count = scores.len() as f64;
    let mean = scores.iter().sum::<f64>() / count;
    let variance = scores.iter().map(|score| (score - mean).powi(2)).sum::<f64>() / count;
    variance.sqrt() < config.fail_std_below && mean < config.fail_mean_below
}

impl ReplayBuffer {
    /// The stored successes of a task, oldest first.
    pub fn successes(&self, task: &TaskId) -> impl ExactSizeIterator<Item = &Arc<Trajectory>> {
        const NONE: &VecDeque<Arc<Trajectory>> = &VecDeque::new();
        self.successes.get(task).unwrap_or(NONE).iter()
    }

    /// All stored trajectories, by task, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Trajectory>> {
        self.successes.values().flatten()
    }

    /// Number of stored trajectories, over all tasks.
    pub fn len(&self) -> usize {
        self.successes.values().map(VecDeque::len).sum()
    }

    /// True if nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What may be injected into a failed group of a task.
    pub fn candidates(
        &self,
        task: &TaskId,
        now: PolicyVersion,
        config: &ReplayConfig,
    ) -> Vec<&Arc<Trajectory>> {
        let young = |stored: &&Arc<Trajectory>| config.max_age == 0 || age(stored, now) <= config.max_age;
        self.successes(task).filter(young).collect()
    }

    /// Takes the fresh rollouts of one task, returns the group to train on, and stores the successes.
    /// Rollouts that an environment error ended are left out of the group.
    pub fn exchange(
        &mut self,
        task: &TaskId,
        rollouts: Vec<Arc<Trajectory>>,
        now: PolicyVersion,
        config: &ReplayConfig,
        reward: &RewardConfig,
        random: &mut impl Rng,
    ) -> (Vec<Member>, ReplayReport) {
        let fresh: Vec<_> = rollouts.into_iter().filter(|rollout| rollout.outcome.is_trainable()).collect();
        let mut report = ReplayReport::default();
        let mut group: Vec<Member> = fresh
            .iter()
            .map(|trajectory| Member { trajectory: Arc::clone(trajectory), origin: Origin::Fresh {} })
            .collect();
        if !config.enabled {
            return (group, report);
        }
        let scores: Vec<f64> = fresh.iter().map(|trajectory| trajectory.score).collect();
        report.all_failed = all_failed(&scores, config);
        if report.all_failed {
            report.injected = self.inject(&mut group, task, now, config, random);
        }
        (report.stored, report.evicted) = self.store(task, fresh, config, reward);
        (group, report)
    }

    /// Stores the successes among episodes that were collected before the run, oldest first; returns how many are stored.
    pub fn seed(
        &mut self,
        episodes: impl IntoIterator<Item = Arc<Trajectory>>,
        config: &ReplayConfig,
        reward: &RewardConfig,
    ) -> usize {
        for episode in episodes.into_iter().filter(|episode| episode.outcome.is_trainable()) {
            let task = episode.task.clone();
            self.store(&task, vec![episode], config, reward);
        }
        self.len()
    }

    /// Validates a buffer read from a file.
    pub fn check(&self) -> Result<(), ReplayError> {
        for (task, stored) in &self.successes {
            for trajectory in stored {
                trajectory.check()?;
                if &trajectory.task != task {
                    let (episode, found) = (trajectory.id.clone(), trajectory.task.clone());
                    return Err(ReplayError::WrongTask { episode, found, expected: task.clone() });
                }
            }
        }
        Ok(())
    }

    fn inject(
        &self,
        group: &mut [Member],
        task: &TaskId,
        now: PolicyVersion,
        config: &ReplayConfig,
        random: &mut impl Rng,
    ) -> Vec<Injection> {
        let candidates = self.candidates(task, now, config);
        let count = config.injections.min(candidates.len()).min(group.len() - 1);
        let drawn: Vec<Arc<Trajectory>> =
            candidates.sample(random, count).map(|&trajectory| Arc::clone(trajectory)).collect();
        let slots = match config.slot {
            ReplaySlot::First => (0..count).collect(),
            ReplaySlot::Random => index::sample(random, group.len(), count).into_vec(),
        };
        let put = |(slot, trajectory): (usize, Arc<Trajectory>)| {
            let (episode, age) = (trajectory.id.clone(), age(&trajectory, now));
            group[slot] = Member { trajectory, origin: Origin::Replayed { age } };
            Injection { slot, episode, age }
        };
        slots.into_iter().zip(drawn).map(put).collect()
    }

    fn store(
        &mut self,
        task: &TaskId,
        fresh: Vec<Arc<Trajectory>>,
        config: &ReplayConfig,
        reward: &RewardConfig,
    ) -> (usize, usize) {
        let successes: Vec<_> =
            fresh.into_iter().filter(|rollout| reward.is_success(rollout.score)).collect();
        if successes.is_empty() {
            return (0, 0);
        }
        let stored = successes.len();
        let kept = self.successes.entry(task.clone()).or_default();
        kept.extend(successes);
        let evicted = kept.len().saturating_sub(config.capacity);
        kept.drain(..evicted);
        (stored, evicted)
    }
}

fn age(stored: &Trajectory, now: PolicyVersion) -> u64 {
    now.0.saturating_sub(stored.policy_version.0)
}
