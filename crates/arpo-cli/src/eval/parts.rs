//! The sets of tasks that `--part` names, and success on each.

use crate::Failure;
use arpo_core::config::Config;
use arpo_core::statistics::Success;
use arpo_core::task::Task;
use arpo_train::trainer::evaluation::{TaskScores, overall};
use arpo_train::trainer::setup;
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::sync::Arc;

/// On which tasks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Which {
    /// The tasks the configuration trains on, or `evaluation.tasks` of them
    Train,
    /// Other tasks of the same templates, never trained on
    Unseen,
    /// Tasks of other templates, never trained on
    HeldOut,
    /// All three
    All,
}

/// Sets of tasks with their names.
pub(super) type Parts = Vec<(&'static str, Vec<Arc<Task>>)>;

/// The sets that are meant. A task's draws follow from its place, so the unseen ones come last: the draws of the others
/// are what they are without them.
pub(super) fn of(which: Which, config: &Config) -> Result<Parts, Failure> {
    let mut parts = vec![];
    if matches!(which, Which::Train | Which::All) {
        parts.push(("train", setup::evaluated_training_tasks(config).map_err(Failure::usage)?));
    }
    if matches!(which, Which::HeldOut | Which::All) {
        parts.push(("held-out", setup::held_out_tasks(config)));
    }
    if matches!(which, Which::Unseen | Which::All) {
        let unseen = setup::unseen_tasks(config).map_err(Failure::usage)?;
        if unseen.is_empty() && which == Which::Unseen {
            return Err(Failure::usage(
                "--part unseen: tasks of `tasks.files` have no known templates to make others with; expected train or \
                 held-out",
            ));
        }
        parts.push(("unseen", unseen));
    }
    parts.retain(|(_, tasks)| !tasks.is_empty());
    Ok(parts)
}

/// Success by set; the scores are in the order of the tasks.
pub(super) fn success(parts: &Parts, scores: &[TaskScores]) -> BTreeMap<&'static str, Success> {
    let mut rest = scores;
    let part = |(name, tasks): &(&'static str, Vec<Arc<Task>>)| {
        let (part, others) = rest.split_at(tasks.len());
        rest = others;
        (*name, overall(part))
    };
    parts.iter().map(part).collect()
}
