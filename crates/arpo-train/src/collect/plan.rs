//! Which episodes are collected: groups of episodes of the same task, with refills for lost ones. All random choices that
//! an episode depends on are made here, from the run's seed.

use crate::episode::EpisodePlan;
use arpo_core::random::{Purpose, stream};
use arpo_core::task::Task;
use arpo_core::trajectory::EpisodeId;
use rand::Rng;
use std::sync::Arc;

/// A group to collect.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupPlan {
    /// The task of all its episodes.
    pub task: Arc<Task>,
    /// Its episodes.
    pub episodes: Vec<EpisodePlan>,
    /// Replacements for episodes whose desktop fails, used in order.
    pub refills: Vec<EpisodePlan>,
}

/// The worlds (a desktop's distractors, positions and looks) of the members of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worlds {
    /// The same world for all, drawn from `of`: rewards differ only by what the agent did.
    Shared {
        /// How many worlds a task has.
        of: u64,
    },
    /// The `of` worlds of the task in turn.
    InTurn {
        /// How many worlds a task has.
        of: u64,
    },
    /// A different world for each.
    Own,
}

/// The size of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSize {
    /// Episodes.
    pub episodes: usize,
    /// Refills for those whose desktop fails.
    pub refills: usize,
    /// Most turns of an episode.
    pub max_steps: usize,
    /// Index of the first episode in episode ids: a task may have several groups in one iteration.
    pub first_index: usize,
}

impl GroupSize {
    /// The first group of a task.
    pub fn new(episodes: usize, refills: usize, max_steps: usize) -> Self {
        Self { episodes, refills, max_steps, first_index: 0 }
    }
}

/// Plans groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planner {
    /// Seed of the run.
    pub seed: u64,
    /// The iteration, or an evaluation's number: part of every episode's id and seeds.
    pub step: u64,
    /// The worlds of the members of a group.
    pub worlds: Worlds,
    /// Faults are injected.
    pub faulty: bool,
}

impl Planner {
    /// The group with this number among those of the step.
    pub fn group(&self, task: &Arc<Task>, number: u64, size: GroupSize) -> GroupPlan {
        let draw = |purpose, index| stream(self.seed, purpose, self.step, index).next_u64();
        let shared = draw(Purpose::Environment, number);
        let episode = |index: usize| {
            let member = number << 32 | index as u64;
            let sampling_seed = draw(Purpose::Sampling, member);
            let world_seed = match self.worlds {
                Worlds::Shared { of } => self.world_seed(shared % of, sampling_seed),
                Worlds::InTurn { of } => self.world_seed(index as u64 % of, sampling_seed),
                Worlds::Own => draw(Purpose::Environment, member),
            };
            EpisodePlan {
                id: EpisodeId::new(self.step, &task.id, size.first_index + index),
                task: Arc::clone(task),
                world_seed,
                sampling_seed,
                max_steps: size.max_steps,
                hint: None,
            }
        };
        let all = size.episodes + size.refills;
        GroupPlan {
            task: Arc::clone(task),
            episodes: (0..size.episodes).map(episode).collect(),
            refills: (size.episodes..all).map(episode).collect(),
        }
    }

    /// Faults are drawn anew for every episode: if faults are injected, the upper half of the seed distinguishes episodes
    /// of the same world (see `FaultyDesktop`).
    fn world_seed(&self, world: u64, sampling_seed: u64) -> u64 {
        world & EpisodePlan::WORLD | if self.faulty { sampling_seed & !EpisodePlan::WORLD } else { 0 }
    }
}
