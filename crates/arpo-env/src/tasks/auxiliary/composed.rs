//! Two training tasks in one instruction, for supervised training: whoever has met many pairs learns what `and` means, instead of
//! a few templates with two goals by heart. Pairs that are held out, in either order, are never made.

use super::asks_the_same;
use crate::tasks::{
    FURTHER_SEEDS, FURTHER_SEEDS_APART, Split, Suite, TaskBuilder, Variation, template_name, template_seed,
};
use crate::world::App;
use arpo_core::task::Task;

/// Pairs whose instruction would be a held-out one, or would have its words.
const HELD_OUT: [[&str; 2]; 14] = [
    ["settings-switch", "settings-level"],
    ["settings-switch", "settings-choice"],
    ["settings-two-switches", "settings-level"],
    ["settings-two-switches", "settings-choice"],
    ["settings-choice", "settings-choice"],
    ["settings-choice", "settings-level"],
    ["settings-level", "settings-level"],
    ["alarms-delete-alarm", "alarms-new-alarm"],
    ["player-play", "player-volume"],
    ["files-new-folder", "files-move"],
    ["sheet-cell", "sheet-cell"],
    ["mail-archive", "mail-archive"],
    ["mail-archive", "mail-write"],
    ["mail-reply", "mail-archive"],
];

/// Seeds that are tried for two tasks that do not get in each other's way.
const TRIES: u64 = 16;

impl Suite {
    /// The `index`-th task that asks for a task of each of two training templates; none if there is no template of a name, if
    /// the pair is held out, or if the two cannot be done in one world.
    pub fn composed_task_of(self, names: [&str; 2], index: u64, variation: Variation) -> Option<Task> {
        let is_held_out = |pair: &[&str; 2]| *pair == names || [pair[1], pair[0]] == names;
        if HELD_OUT.iter().any(is_held_out) {
            return None;
        }
        let [first, second] = names.map(|name| {
            Split::Train.templates().into_iter().find(|template| template_name(template) == name)
        });
        let templates = [first?, second?];
        // an order takes half of the actions that a demonstration may have
        if templates.iter().all(|template| template.app == App::Shop) {
            return None;
        }
        let id = format!("{}-composed-{}-and-{}-{index}", self.key(), names[0], names[1]);
        let make = |retry: u64| {
            let seed = FURTHER_SEEDS + index.wrapping_mul(FURTHER_SEEDS_APART) + retry;
            // a stream of its own for each pair
            let seed = templates.iter().fold(seed, |seed, template| template_seed(template, seed));
            TaskBuilder::build_both(templates, self == Self::Pocket, seed, id.clone(), variation)
        };
        (0..TRIES).filter_map(make).find(|task| {
            let held_out = self.tasks(Split::HeldOut);
            !held_out.iter().any(|listed| asks_the_same(listed, task))
        })
    }
}
