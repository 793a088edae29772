//! The sets of tasks of `--part`, and the success on each.

use crate::Failure;
use arpo_core::config::Config;
use arpo_core::statistics::Success;
use arpo_core::task::Task;
use arpo_suite::task_lists;
use arpo_train::trainer::evaluation::{TaskScores, overall};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of `--part`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// The training tasks of the configuration, or `evaluation.tasks` of them; 64 of generated ones
    Train,
    /// Other tasks from the same templates, never trained on
    Unseen,
    /// Tasks from other templates, never trained on
    HeldOut,
    /// All three
    All,
}

/// Sets of tasks with their names.
pub(super) type TaskSets = Vec<(&'static str, Vec<Arc<Task>>)>;

/// The selected sets. A task's random seeds follow from its index, so the unseen tasks come last: the seeds of the others
/// do not depend on them.
pub(super) fn of(part: Part, config: &Config) -> Result<TaskSets, Failure> {
    let mut sets = vec![];
    if matches!(part, Part::Train | Part::All) {
        sets.push(("train", task_lists::evaluated_training_tasks(config).map_err(Failure::usage)?));
    }
    if matches!(part, Part::HeldOut | Part::All) {
        sets.push(("held-out", task_lists::held_out_tasks(config).map_err(Failure::usage)?));
    }
    if matches!(part, Part::Unseen | Part::All) {
        let unseen = task_lists::unseen_tasks(config).map_err(Failure::usage)?;
        if unseen.is_empty() && part == Part::Unseen {
            return Err(Failure::usage(
                "--part unseen: tasks of `tasks.files` have no known templates to generate others from; expected train or \
                 held-out",
            ));
        }
        sets.push(("unseen", unseen));
    }
    sets.retain(|(_, tasks)| !tasks.is_empty());
    Ok(sets)
}

/// Success by set; the scores must be in the order of the tasks.
pub(super) fn success(sets: &TaskSets, scores: &[TaskScores]) -> BTreeMap<&'static str, Success> {
    let mut rest = scores;
    let part = |(name, tasks): &(&'static str, Vec<Arc<Task>>)| {
        let (part, others) = rest.split_at(tasks.len());
        rest = others;
        (*name, overall(part))
    };
    sets.iter().map(part).collect()
}
