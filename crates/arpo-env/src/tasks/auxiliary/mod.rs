//! Auxiliary templates: tasks for supervised training only, neither trained on by reinforcement nor held out. They show
//! what the training templates leave out, such as two goals in one instruction, folders that are deleted and messages
//! in other folders, so that an agent meets the widgets and words of the applications in other tasks than those it is
//! judged by.

mod devices;
mod files;
mod office;

use super::{FURTHER_SEEDS, Split, Suite, TaskBuilder, Template, Variation, template_name, template_seed};
use crate::world::App;
use arpo_core::task::Task;

/// Seeds that are tried for a task that is not listed.
const RETRIES: u64 = 64;

const fn template(name: &'static str, app: App, make: fn(&mut TaskBuilder)) -> Template {
    Template { name, app, make }
}

fn templates() -> impl Iterator<Item = &'static Template> {
    [devices::TEMPLATES, files::TEMPLATES, office::TEMPLATES].into_iter().flatten()
}

impl Suite {
    /// Names of the auxiliary templates: `files-delete-folder`.
    pub fn auxiliary_templates(self) -> Vec<String> {
        templates().map(template_name).collect()
    }

    /// The `index`-th task of a training or an auxiliary template for supervised training; none if there is no template of
    /// that name, or if it makes listed tasks only. It is no listed task, and one of an auxiliary template has neither instruction nor goal of a listed one.
    pub fn varied_task_of(self, name: &str, index: u64, variation: Variation) -> Option<Task> {
        let named = |template: &&Template| template_name(template) == name;
        let training = Split::Train.templates().into_iter().find(named);
        let template = training.or_else(|| templates().find(named))?;
        let id = format!("{}-{name}-varied-{index}", self.key());
        let make = |retry: u64| {
            let seed = FURTHER_SEEDS + index.wrapping_mul(RETRIES) + retry;
            let seed = template_seed(template, seed);
            TaskBuilder::build(template, self == Self::Pocket, false, seed, id.clone(), variation)
        };
        let is_known = |task: &Task| match training {
            Some(_) => self.is_listed(task),
            None => self.all_tasks().any(|listed| asks_the_same(listed, task)),
        };
        (0..RETRIES).map(make).find(|task| !is_known(task))
    }
}

/// Whether two tasks have the same instruction or the same goal. That nothing can be done is no goal.
fn asks_the_same(one: &Task, other: &Task) -> bool {
    let is_feasible = other.evaluator.get("infeasible").is_none();
    one.instruction == other.instruction || is_feasible && one.evaluator == other.evaluator
}
