//! The listed tasks: regenerated they are the same; they cover the applications; their words are known.

use crate::{later, world};
use arpo_core::task::Task;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::oracle::Oracle;
use arpo_env::tasks::vocabulary::{pocket_words, words_of};
use arpo_env::tasks::{Split, Suite, find, listing_path, parse};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[test]
fn regenerated_they_are_the_same() {
    for suite in Suite::ALL {
        for (split, count) in [(Split::Train, 128), (Split::HeldOut, 64)] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(listing_path(suite, split));
            let shipped = std::fs::read_to_string(&path).unwrap();
            assert!(shipped == suite.listing(split), "{}: run the example list_tasks", path.display());
            assert_eq!(parse(&shipped).unwrap().len(), count);
            assert_eq!(suite.tasks(split).len(), count);
        }
    }
}

#[test]
fn they_are_spread_over_the_applications_and_differ() {
    for suite in Suite::ALL {
        let mut ids = BTreeSet::new();
        for split in [Split::Train, Split::HeldOut] {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            let mut asked = BTreeSet::new();
            for task in suite.tasks(split) {
                *counts.entry(&task.application).or_default() += 1;
                assert!(asked.insert(&task.instruction), "{} asks for the same as another", task.id);
                assert!(ids.insert(&task.id), "{} twice", task.id);
                assert_eq!(find(task.id.as_str()), Some((suite, task)));
            }
            assert_eq!(counts.len(), 8, "{counts:?}");
            assert!(counts.values().all(|count| *count >= 4), "{counts:?}");
        }
    }
}

/// The name of a task's template: the id without suite and number.
fn template(task: &Task) -> String {
    let parts: Vec<&str> = task.id.as_str().split('-').collect();
    parts[1..parts.len() - 1].join("-")
}

#[test]
fn held_out_tasks_are_of_other_templates() {
    for suite in Suite::ALL {
        let trained: BTreeSet<String> = suite.tasks(Split::Train).iter().map(template).collect();
        for task in suite.tasks(Split::HeldOut) {
            assert!(!trained.contains(&template(task)), "{}", task.id);
        }
    }
}

/// The same task with another seed: another world, another order, the same meaning.
#[test]
fn seeds_change_the_world() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        for task in suite.all_tasks().step_by(7) {
            let mut images = BTreeSet::new();
            let mut worlds = BTreeSet::new();
            for seed in 0..4 {
                let screen = environment.reset(task, seed, later()).unwrap();
                images.insert(screen.image().unwrap().as_raw().clone());
                worlds.insert(world(&environment, "").unwrap().to_string());
            }
            assert_eq!(worlds.len(), 4, "{}", task.id);
            assert!(images.len() > 1 || task.setup.to_string().contains("notice"), "{}", task.id);
        }
    }
}

#[test]
fn every_word_of_the_pocket_suite_is_listed() {
    let known: BTreeSet<String> = pocket_words().into_iter().collect();
    assert!(known.len() < 300, "{} words", known.len());
    let check = |text: &str| {
        for word in words_of(text) {
            assert!(known.contains(word), "{word:?} of {text:?} is not listed");
        }
    };
    let mut environment = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
    for (seed, task) in Suite::Pocket.all_tasks().enumerate() {
        check(&task.instruction);
        let mut oracle = Oracle::with_detours(seed as u64, 0.3);
        environment.reset(task, seed as u64, later()).unwrap();
        for _ in 0..20 {
            environment.widgets().iter().for_each(|widget| check(&widget.label));
            if environment.step(&oracle.next_action(&environment), later()).unwrap().terminated {
                break;
            }
        }
    }
}
