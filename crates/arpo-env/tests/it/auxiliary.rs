//! Tasks for supervised training: auxiliary templates, invented names, other wordings.

use crate::{later, scene};
use arpo_core::task::Task;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::policies::{Scripted, run_episode};
use arpo_env::tasks::invented::DICTIONARIES;
use arpo_env::tasks::vocabulary::{pocket_words, words_of};
use arpo_env::tasks::{Suite, Variation};
use serde_json::json;
use std::collections::BTreeSet;

const MAX_STEPS: usize = 40;

/// As many actions as a demonstration holds.
const LONGEST_DEMONSTRATION: usize = 16;

/// A variation of every kind.
fn variation(index: u64) -> Variation {
    Variation {
        dictionary: (!index.is_multiple_of(3)).then_some((index * 7 % u64::from(DICTIONARIES)) as u16),
        reworded: index % 2 == 1,
    }
}

/// Tasks of each of these templates in variations.
fn tasks(suite: Suite, templates: Vec<String>, count: u64) -> impl Iterator<Item = (u64, Task)> {
    templates.into_iter().flat_map(move |template| {
        (0..count).map(move |index| {
            (index, suite.varied_task_of(&template, index, variation(index)).expect("a template's own name"))
        })
    })
}

fn all_templates(suite: Suite) -> Vec<String> {
    [suite.templates(), suite.auxiliary_templates()].concat()
}

#[test]
fn the_oracle_solves_every_template_with_listed_and_invented_names() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        for (index, task) in tasks(suite, all_templates(suite), 12) {
            let result =
                run_episode(&mut environment, &task, index, &mut Scripted::oracle(), MAX_STEPS).unwrap();
            assert!(result.score > 0.999, "{} {}: {:#?}", task.id, task.instruction, result.actions);
            let length = result.actions.len();
            assert!(length <= LONGEST_DEMONSTRATION, "{} takes {length} actions", task.id);
        }
    }
}

/// Pairs of training templates, every third one.
fn composed_tasks(suite: Suite) -> impl Iterator<Item = (u64, Task)> {
    let names = suite.templates();
    let count = names.len() * names.len();
    (0..count).step_by(3).filter_map(move |pair| {
        let both = [names[pair / names.len()].as_str(), names[pair % names.len()].as_str()];
        // a multiple of three would never get an invented name
        let index = pair as u64 / 3;
        Some((index, suite.composed_task_of(both, index, variation(index))?))
    })
}

#[test]
fn the_oracle_solves_two_tasks_in_one() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        let (mut count, mut short) = (0, 0);
        for (index, task) in composed_tasks(suite) {
            let result =
                run_episode(&mut environment, &task, index, &mut Scripted::oracle(), MAX_STEPS).unwrap();
            assert!(result.score > 0.999, "{} {}: {:#?}", task.id, task.instruction, result.actions);
            count += 1;
            short += usize::from(result.actions.len() <= LONGEST_DEMONSTRATION);
        }
        assert!(count > 150 && short * 4 > count * 3, "{short} of {count} can be demonstrated");
    }
}

#[test]
fn no_composed_task_is_partly_done_at_the_start() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        // rows that are to be sorted may be in order already
        let unsorted = |(_, task): &(u64, Task)| !task.id.as_str().contains("sheet-sort");
        for (index, task) in composed_tasks(suite).filter(unsorted).step_by(4) {
            environment.reset(&task, index, later()).unwrap();
            let score = environment.evaluate(later()).unwrap();
            assert!(score < 0.001, "{}: {score}", task.id);
        }
    }
}

#[test]
fn pairs_that_are_held_out_are_never_made() {
    let suite = Suite::Pocket;
    let made = |first, second| suite.composed_task_of([first, second], 0, Variation::default());
    assert!(made("player-volume", "player-play").is_none());
    assert!(made("player-play", "player-volume").is_none());
    assert!(made("settings-missing-setting", "files-delete").is_none(), "infeasible");
    assert!(made("settings-open", "files-delete").is_none(), "done on the way");
    let task = made("player-volume", "files-delete").unwrap();
    assert!(task.instruction.starts_with("set Volume to ") && task.instruction.contains(" and delete "));
}

#[test]
fn no_auxiliary_task_is_done_at_the_start() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        for (index, task) in tasks(suite, suite.auxiliary_templates(), 4) {
            environment.reset(&task, index, later()).unwrap();
            let score = environment.evaluate(later()).unwrap();
            assert!(score < 0.001, "{}: {score}", task.id);
        }
    }
}

#[test]
fn reworded_instructions_keep_their_names() {
    let suite = Suite::Pocket;
    for template in all_templates(suite) {
        for index in 0..20 {
            let [plain, reworded] = [false, true].map(|reworded| {
                let variation = Variation { dictionary: None, reworded };
                suite.varied_task_of(&template, index, variation).unwrap()
            });
            assert!(!reworded.instruction.contains(['{', '}']), "{}", reworded.instruction);
            // another seed is taken where the plain task is listed; tasks that cannot be done do not show it in their goal
            let is_feasible = plain.evaluator.get("infeasible").is_none();
            if is_feasible && plain.evaluator == reworded.evaluator {
                let named = |text: &str| -> Vec<String> {
                    let is_name = |word: &&str| word.starts_with(|first: char| !first.is_lowercase());
                    text.split(' ').filter(is_name).map(str::to_owned).collect()
                };
                assert_eq!(named(&plain.instruction), named(&reworded.instruction));
            }
        }
    }
}

/// With invented names, no name of the task or of the world around it is one of the lists.
#[test]
fn invented_worlds_have_no_listed_names() {
    let suite = Suite::Pocket;
    let known: BTreeSet<String> = pocket_words().into_iter().collect();
    let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
    for number in [0, 100, DICTIONARIES - 1] {
        let variation = Variation { dictionary: Some(number), reworded: false };
        let task = suite.varied_task_of("files-rename", 3, variation).unwrap();
        environment.reset(&task, 5, later()).unwrap();
        let world = &environment.desktop().unwrap().world;
        let names = world.files.keys().chain(&world.folders).chain(world.mail.keys()).chain(&world.products);
        let mut count = 0;
        for word in names.flat_map(|name| words_of(name)) {
            assert!(!known.contains(word), "{word} is listed");
            count += 1;
        }
        assert!(count > 10, "{count} names");
    }
}

#[test]
fn without_a_variation_a_training_template_makes_its_further_tasks() {
    for suite in Suite::ALL {
        for template in suite.templates() {
            let further = suite.further_task_of(&template, 77).unwrap();
            let varied = suite.varied_task_of(&template, 77, Variation::default()).unwrap();
            assert!(arpo_env::tasks::is_same_task(&further, &varied), "{template}");
        }
        assert!(suite.varied_task_of("files-open", 0, Variation::default()).is_none());
    }
}

#[test]
fn an_unknown_dictionary_is_an_error_of_the_task() {
    let mut environment = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
    let task = scene(json!([{"type": "world", "name": {"invented": DICTIONARIES}}]));
    let error = environment.reset(&task, 0, later()).unwrap_err().to_string();
    assert!(error.contains("there is no dictionary 272: expected 0 to 271"), "{error}");
}
