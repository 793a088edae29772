//! The oracle solves every listed task; random actions do not.

use crate::later;
use arpo_core::action::Action;
use arpo_core::task::Task;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::look::ScreenOptions;
use arpo_env::oracle::Oracle;
use arpo_env::policies::{Scripted, run_episode};
use arpo_env::tasks::{Split, Suite};
use std::collections::BTreeSet;

const MAX_STEPS: usize = 40;

fn is_infeasible(task: &Task) -> bool {
    task.evaluator.get("infeasible").is_some()
}

fn solves_all(suite: Suite, options: ScreenOptions, seeds: std::ops::Range<u64>, detours: f64) {
    let mut environment = EmbeddedDesktop::new(options).unwrap();
    for (index, task) in suite.all_tasks().enumerate() {
        for seed in seeds.clone() {
            let oracle = Oracle::with_detours(seed * 1000 + index as u64, detours);
            // with detours, clicks are noisy as well
            let noise = if detours > 0.0 { 0.8 } else { 0.0 };
            let mut oracle = Scripted::Oracle(oracle.with_noise(noise));
            let result = run_episode(&mut environment, task, seed, &mut oracle, MAX_STEPS).unwrap();
            assert!(result.score > 0.999, "{} with seed {seed}: {:#?}", task.id, result.actions);
            if is_infeasible(task) {
                assert_eq!(result.actions.last(), Some(&Action::CallUser {}));
            }
        }
    }
}

#[test]
fn all_pocket_tasks() {
    solves_all(Suite::Pocket, ScreenOptions::pocket(), 0..4, 0.0);
    solves_all(Suite::Pocket, ScreenOptions::pocket(), 4..6, 0.2);
}

#[test]
fn all_pocket_tasks_on_other_screens() {
    for (width, height) in [(168, 112), (280, 196), (224, 168)] {
        solves_all(Suite::Pocket, ScreenOptions { width, height, ..ScreenOptions::pocket() }, 0..1, 0.0);
    }
}

#[test]
fn all_desktop_tasks() {
    solves_all(Suite::Desktop, ScreenOptions::desktop(640, 480), 0..2, 0.0);
    solves_all(Suite::Desktop, ScreenOptions::desktop(1280, 720), 4..5, 0.2);
}

#[test]
fn desktop_tasks_at_full_size_without_jitter() {
    let options = ScreenOptions { jitter: false, ..ScreenOptions::desktop(1920, 1080) };
    solves_all(Suite::Desktop, options, 0..1, 0.0);
}

#[test]
fn further_tasks_are_solved_and_are_none_of_the_listed() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        for index in 0..300 {
            let task = suite.further_task(index);
            let listed = suite.all_tasks().any(|listed| {
                (&listed.instruction, &listed.setup, &listed.evaluator)
                    == (&task.instruction, &task.setup, &task.evaluator)
            });
            assert!(!listed, "{}", task.id);
            let result =
                run_episode(&mut environment, &task, index, &mut Scripted::oracle(), MAX_STEPS).unwrap();
            assert!(result.score > 0.999, "{}: {:#?}", task.id, result.actions);
        }
    }
}

#[test]
fn necessary_steps_go_from_one_to_twelve() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        let mut lengths = BTreeSet::new();
        for task in suite.all_tasks().filter(|task| !is_infeasible(task)) {
            for seed in 0..5 {
                let result =
                    run_episode(&mut environment, task, seed, &mut Scripted::oracle(), MAX_STEPS).unwrap();
                lengths.insert(result.actions.len() - 1);
            }
        }
        assert_eq!(lengths, (1..=12).collect::<BTreeSet<usize>>(), "{}", suite.key());
    }
}

#[test]
fn random_actions_reach_next_to_nothing() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        let mut scores = Vec::new();
        for (index, task) in suite.all_tasks().enumerate() {
            let mut random = Scripted::random(index as u64);
            scores.push(run_episode(&mut environment, task, 0, &mut random, 15).unwrap().score);
        }
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        assert!(mean < 0.02, "{} {mean}", suite.key());
    }
}

/// What an infeasible task is worth without calling the user, and a feasible one with it: nothing.
#[test]
fn giving_up_is_right_only_where_nothing_can_be_done() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        for task in suite.all_tasks() {
            for (ending, right) in
                [(Action::CallUser {}, is_infeasible(task)), (Action::Finished { content: None }, false)]
            {
                environment.reset(task, 1, later()).unwrap();
                environment.step(&ending, later()).unwrap();
                let score = environment.evaluate(later()).unwrap();
                assert!((score - f64::from(right)).abs() < 1e-9, "{} {ending:?} {score}", task.id);
            }
        }
        let share = |split: Split| {
            let tasks = suite.tasks(split);
            tasks.iter().filter(|task| is_infeasible(task)).count() as f64 / tasks.len() as f64
        };
        for split in [Split::Train, Split::HeldOut] {
            assert!((0.07..0.14).contains(&share(split)), "{} {split:?} {}", suite.key(), share(split));
        }
    }
}
