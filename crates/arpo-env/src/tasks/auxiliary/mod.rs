//! Auxiliary templates: tasks for supervised training only, neither trained on by reinforcement nor held out. They show
//! what the training templates leave out, such as two goals in one instruction, folders that are deleted and messages
//! in other folders, so that an agent meets the widgets and words of the applications in other tasks than those it is
//! judged by.

mod composed;
mod devices;
mod files;
mod office;

use super::{
    FURTHER_SEEDS, FURTHER_SEEDS_APART, Split, Suite, TaskBuilder, Template, Variation, template_name,
    template_seed,
};
use crate::world::App;
use arpo_core::task::Task;

/// Seeds that are tried for a task that is not listed. Of a template with few variants, nearly all of them listed, one seed
/// in eight makes another task.
const TRIES: u64 = 1024;

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
    /// that name, or if it makes listed tasks only. It is no listed task, and one of an auxiliary template has neither the
    /// instruction nor the goal of a held-out task.
    pub fn varied_task_of(self, name: &str, index: u64, variation: Variation) -> Option<Task> {
        let named = |template: &&Template| template_name(template) == name;
        let training = Split::Train.templates().into_iter().find(named);
        let template = training.or_else(|| templates().find(named))?;
        let id = format!("{}-{name}-varied-{index}", self.key());
        let make = |retry: u64| {
            let seed = FURTHER_SEEDS + index.wrapping_mul(FURTHER_SEEDS_APART) + retry;
            let seed = template_seed(template, seed);
            TaskBuilder::build(template, self == Self::Pocket, false, seed, id.clone(), variation)
        };
        // the instructions and goals of training tasks are not excluded: a template with few names would be left with one
        let held_out: &[Task] = if training.is_some() { &[] } else { self.tasks(Split::HeldOut) };
        let is_known = |task: &Task| {
            self.is_listed(task) || held_out.iter().any(|held_out| asks_the_same(held_out, task))
        };
        (0..TRIES).map(make).find(|task| !is_known(task))
    }
}

/// Whether two tasks have the same instruction or the same goal. That nothing can be done is no goal.
fn asks_the_same(one: &Task, other: &Task) -> bool {
    let is_feasible = other.evaluator.get("infeasible").is_none();
    one.instruction == other.instruction || is_feasible && one.evaluator == other.evaluator
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::invented::dictionary;
    use crate::tasks::vocabulary::words_of;
    use crate::tasks::words::{Words, words};
    use std::collections::BTreeSet;

    /// An instruction with `_` for every name and number, which leaves the phrase.
    fn phrase(instruction: &str, words: &Words) -> String {
        let mut names: Vec<&str> = [
            words.folders,
            words.files,
            words.texts,
            words.people,
            words.subjects,
            words.songs,
            words.products,
            words.missing,
        ]
        .concat();
        names.extend(words.people.iter().filter_map(|person| person.split('@').next()));
        names.extend(words.switches.iter().map(|(_, name)| name));
        names.extend(words.levels.iter().map(|(_, name, _)| name));
        for (_, name, options, _) in words.choices {
            names.push(name);
            names.extend(*options);
        }
        // a name may begin with another one
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let without_names = names.iter().fold(instruction.to_owned(), |text, name| text.replace(*name, "_"));
        let mut phrase = String::new();
        for character in without_names.chars() {
            match character {
                '0'..='9' if phrase.ends_with('_') => {}
                '0'..='9' => phrase.push('_'),
                other => phrase.push(other),
            }
        }
        phrase
    }

    fn phrases<'a>(
        templates: impl IntoIterator<Item = &'a Template>,
        suite: Suite,
        held_out: bool,
    ) -> BTreeSet<String> {
        let pocket = suite == Suite::Pocket;
        let mut phrases = BTreeSet::new();
        for template in templates {
            for seed in 0..64 {
                let variation = Variation { dictionary: None, reworded: seed % 2 == 1 && !held_out };
                let task = TaskBuilder::build(template, pocket, held_out, seed, String::new(), variation);
                phrases.insert(phrase(&task.instruction, words(pocket)));
            }
        }
        phrases
    }

    #[test]
    fn no_template_has_the_name_of_another_kind() {
        let kinds = [Split::Train.templates(), Split::HeldOut.templates(), templates().collect()];
        let names: Vec<String> = kinds.into_iter().flatten().map(template_name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }

    #[test]
    fn auxiliary_templates_have_no_phrase_that_only_held_out_ones_have() {
        for suite in Suite::ALL {
            let training = phrases(Split::Train.templates(), suite, false);
            let held_out = phrases(Split::HeldOut.templates(), suite, true);
            let auxiliary = phrases(templates(), suite, false);
            for reserved in held_out.difference(&training) {
                let taught = auxiliary.iter().find(|phrase| phrase.contains(reserved.as_str()));
                assert_eq!(taught, None, "held out: {reserved}");
            }
        }
    }

    #[test]
    fn composed_tasks_have_no_phrase_that_only_held_out_ones_have() {
        for suite in Suite::ALL {
            let pocket = suite == Suite::Pocket;
            let training = phrases(Split::Train.templates(), suite, false);
            let held_out = phrases(Split::HeldOut.templates(), suite, true);
            let reserved: Vec<&String> = held_out.difference(&training).collect();
            let names = suite.templates();
            let mut count = 0;
            for (first, second) in
                names.iter().flat_map(|first| names.iter().map(move |second| (first, second)))
            {
                for index in 0..4 {
                    let invented = (index >= 2).then_some(index as u16);
                    let drawn_from = invented.map_or(words(pocket), |number| {
                        dictionary(pocket, number).expect("there is a dictionary of this number")
                    });
                    let variation = Variation { dictionary: invented, reworded: index % 2 == 1 };
                    let Some(task) = suite.composed_task_of([first, second], index, variation) else {
                        continue;
                    };
                    let phrase = phrase(&task.instruction, drawn_from);
                    let taught = reserved.iter().find(|reserved| phrase.contains(reserved.as_str()));
                    assert_eq!(taught, None, "{phrase}");
                    count += 1;
                }
            }
            assert!(count > 1600, "{count} composed tasks");
        }
    }

    #[test]
    fn auxiliary_templates_have_no_word_that_only_held_out_ones_have() {
        let all_words = |phrases: BTreeSet<String>| -> BTreeSet<String> {
            phrases.iter().flat_map(|phrase| words_of(phrase)).map(str::to_owned).collect()
        };
        let suite = Suite::Pocket;
        let training = all_words(phrases(Split::Train.templates(), suite, false));
        let held_out = all_words(phrases(Split::HeldOut.templates(), suite, true));
        let auxiliary = all_words(phrases(templates(), suite, false));
        let reserved: BTreeSet<String> = held_out.difference(&training).cloned().collect();
        for word in ["drop", "save", "Bike", "Van", "Top"] {
            assert!(reserved.contains(word), "{word} is missing in {reserved:?}");
        }
        assert_eq!(reserved.intersection(&auxiliary).next(), None);
    }

    #[test]
    fn names_are_drawn_evenly_although_listed_tasks_are_left_out() {
        let suite = Suite::Pocket;
        for template in ["mail-delete-sent", "mail-archive-missing"] {
            let asked: BTreeSet<String> = (0..40)
                .map(|index| suite.varied_task_of(template, index, Variation::default()).unwrap().instruction)
                .collect();
            // two thirds of the subjects are for training
            assert_eq!(asked.len(), 5, "{asked:?}");
        }
    }
}
