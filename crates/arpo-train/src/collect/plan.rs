//! What is to be collected: groups of episodes of the same task, with others that may take the place of lost ones.

use crate::episode::EpisodePlan;
use arpo_core::random::{Purpose, stream};
use arpo_core::task::Task;
use arpo_core::trajectory::EpisodeId;
use rand::Rng;
use std::sync::Arc;

/// A group to play.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupPlan {
    /// What is asked.
    pub task: Arc<Task>,
    /// The group.
    pub episodes: Vec<EpisodePlan>,
    /// Played in the place of episodes whose desktop failed, in order, while there are any.
    pub spares: Vec<EpisodePlan>,
}

/// What the plans of an iteration have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// Of the run.
    pub seed: u64,
    /// Part of every episode's name and seeds.
    pub iteration: u64,
    /// Episodes of a group.
    pub group_size: usize,
    /// Spares of a group.
    pub refills: usize,
    /// Turns of an episode at most.
    pub max_steps: usize,
}

impl GroupPlan {
    /// The `number`-th group of an iteration. Each episode has a world and words of its own, decided by the run's seed,
    /// the iteration, the group's number and its own.
    pub fn new(task: Arc<Task>, number: usize, options: &PlanOptions) -> Self {
        let plan = |index: usize| {
            let place = ((number as u64) << 32) | index as u64;
            let draw = |purpose| stream(options.seed, purpose, options.iteration, place).next_u64();
            EpisodePlan {
                id: EpisodeId::new(options.iteration, &task.id, index),
                task: Arc::clone(&task),
                world_seed: draw(Purpose::Environment),
                sampling_seed: draw(Purpose::Sampling),
                max_steps: options.max_steps,
            }
        };
        let all = options.group_size + options.refills;
        Self {
            episodes: (0..options.group_size).map(plan).collect(),
            spares: (options.group_size..all).map(plan).collect(),
            task,
        }
    }
}
