//! Wrong endings fail, for every template: nothing done, the right thing with damage beside it, the work undone
//! before it is saved, another object than the one meant.

use crate::later;
use arpo_core::action::Action;
use arpo_core::task::Task;
use arpo_env::embedded::{EmbeddedDesktop, Episode};
use arpo_env::environment::Environment;
use arpo_env::policies::{Scripted, run_episode};
use arpo_env::tasks::Suite;
use arpo_env::world::{Alarm, World};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn is_partial(task: &Task) -> bool {
    task.evaluator.get("partial").is_some()
}

type Damage = fn(&mut World);

/// What an agent might break on the way, one thing in each application.
fn damages() -> Vec<(&'static str, Damage)> {
    vec![
        ("a file is lost", |world| {
            world.files.pop_first();
        }),
        ("a file is written", |world| {
            world.files.insert("stray".into(), "x".into());
        }),
        ("a folder appears", |world| {
            world.folders.insert("stray".into());
        }),
        ("a message is lost", |world| {
            world.mail.pop_last();
        }),
        ("an alarm appears", |world| {
            world.alarms.insert("03:00".into(), Alarm { on: true });
        }),
        ("a cell is filled", |world| {
            world.sheet.insert("C5".into(), "1".into());
        }),
        ("the player's list is emptied", |world| world.player.list.clear()),
        ("a setting is lost", |world| {
            world.settings.pop_first();
        }),
    ]
}

/// The first task of every template, training and held out.
fn one_per_template(suite: Suite) -> Vec<&'static Task> {
    let mut seen = BTreeSet::new();
    let template = |task: &Task| task.id.as_str().rsplit_once('-').map(|(name, _)| name.to_owned());
    let tasks: Vec<_> = suite.all_tasks().filter(|task| seen.insert(template(task))).collect();
    assert!(tasks.len() > 45, "{} templates", tasks.len());
    tasks
}

fn score(environment: &mut EmbeddedDesktop, episode: Episode) -> f64 {
    environment.restore(episode).unwrap();
    environment.evaluate(later()).unwrap()
}

/// Extra damage fails every task, however well it was done.
#[test]
fn damage_beside_the_work_fails() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        for task in one_per_template(suite) {
            let result = run_episode(&mut environment, task, 1, &mut Scripted::oracle(), 40).unwrap();
            assert!(result.score > 0.999);
            let done = environment.save().unwrap();
            let mut failed = 0;
            for (name, damage) in damages() {
                let mut episode = done.clone();
                damage(&mut episode.desktop.world);
                let harmed = episode.desktop.world != done.desktop.world;
                let after = score(&mut environment, episode);
                let counts = harmed && after < 0.001;
                failed += usize::from(counts);
                // what a task changes itself is scored by its conditions, some of which may still hold
                assert!(counts || !harmed || after < 0.999, "{}: {name} is worth {after}", task.id);
            }
            assert!(failed >= damages().len() - 2, "{}: only {failed} kinds of damage fail", task.id);
        }
    }
}

/// A new folder and no file is not a file put away.
#[test]
fn a_file_that_is_deleted_is_not_put_away() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        let mut tried = 0;
        for task in suite.all_tasks().filter(|task| task.id.as_str().contains("sort-away")) {
            run_episode(&mut environment, task, 1, &mut Scripted::oracle(), 40).unwrap();
            let mut episode = environment.save().unwrap();
            episode.desktop.world.files.retain(|path, _| !path.contains('/'));
            assert!(score(&mut environment, episode) < 0.001, "{}", task.id);
            tried += 1;
        }
        assert!(tried > 0);
    }
}

/// A run cut off before its last action, at every step: never the full score.
#[test]
fn half_done_is_not_done() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        let feasible = |task: &&Task| task.evaluator.get("infeasible").is_none();
        for task in one_per_template(suite).into_iter().filter(feasible) {
            let result = run_episode(&mut environment, task, 2, &mut Scripted::oracle(), 40).unwrap();
            let work = &result.actions[..result.actions.len() - 1];
            for kept in 0..work.len() {
                environment.reset(task, 2, later()).unwrap();
                for action in &work[..kept] {
                    environment.step(action, later()).unwrap();
                }
                environment.step(&Action::Finished { content: None }, later()).unwrap();
                let score = environment.evaluate(later()).unwrap();
                let limit = if is_partial(task) { 0.999 } else { 0.001 };
                assert!(score < limit, "{} is worth {score} after {kept} of {} actions", task.id, work.len());
            }
        }
    }
}

/// The conditions met with another value than the one asked for.
#[test]
fn another_value_than_the_one_asked_for_fails() {
    fn other(value: &Value) -> Value {
        match value {
            Value::Bool(on) => json!(!on),
            Value::Number(number) => json!(number.as_u64().unwrap().checked_sub(1).unwrap_or(1)),
            Value::String(text) => json!(format!("{text}x")),
            Value::Object(map) => map.iter().map(|(key, inner)| (key.clone(), other(inner))).collect(),
            _ => panic!("no task asks for {value}"),
        }
    }
    // a member of a list has no value but its name
    fn has_value(condition: &Value) -> bool {
        let Some(value) = condition.get("value") else { return false };
        condition["path"].as_str().unwrap().rsplit('/').next() != value.as_str()
    }
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        for task in suite.all_tasks() {
            // a run of a task that asks for something else
            let mut wrong = task.clone();
            let conditions = wrong.evaluator.get_mut("conditions").and_then(Value::as_array_mut);
            let Some(condition) = conditions.and_then(|list| list.iter_mut().find(|one| has_value(one)))
            else {
                continue;
            };
            let value = other(&condition["value"]);
            condition["value"] = value;
            run_episode(&mut environment, &wrong, 3, &mut Scripted::oracle(), 40).unwrap();
            let mut episode = environment.save().unwrap();
            episode.task = task.clone();
            let score = score(&mut environment, episode);
            assert!(score < if is_partial(task) { 0.999 } else { 0.001 }, "{} is worth {score}", task.id);
        }
    }
}
