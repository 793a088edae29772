//! Generated and unseen tasks: they follow from their names, differ from all others, and can be solved.

use arpo_core::task::Task;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::policies::{Scripted, run_episode};
use arpo_env::tasks::generated::{MAX_GENERATED, UNSEEN_TASKS, find};
use arpo_env::tasks::{Split, Suite, is_same_task};
use std::collections::{BTreeMap, BTreeSet};

const MAX_STEPS: usize = 40;

/// As many as the preset `quick` trains on.
const MANY: u64 = 4096;

fn is_any_of(task: &Task, others: &[Task]) -> bool {
    others.iter().any(|other| is_same_task(other, task))
}

#[test]
fn the_oracle_solves_them() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        // a stride that no number of templates divides, so that each has its turn, and some far out
        let numbers = (0..MANY).step_by(13).chain(MAX_GENERATED - 70..MAX_GENERATED);
        let generated = numbers.map(|number| suite.generated_task(number));
        for (seed, task) in generated.chain(suite.unseen_tasks().iter().cloned()).enumerate() {
            let seed = seed as u64 % 3;
            let result =
                run_episode(&mut environment, &task, seed, &mut Scripted::oracle(), MAX_STEPS).unwrap();
            assert!(result.score > 0.999, "{} with seed {seed}: {:#?}", task.id, result.actions);
        }
    }
}

#[test]
fn no_task_is_of_two_kinds() {
    for suite in Suite::ALL {
        let unseen = suite.unseen_tasks();
        let listed: Vec<Task> = suite.all_tasks().cloned().collect();
        let mut names: BTreeSet<String> = listed.iter().map(|task| task.id.to_string()).collect();
        for (index, task) in unseen.iter().enumerate() {
            assert!(names.insert(task.id.to_string()), "{} twice", task.id);
            assert!(!is_any_of(task, &listed), "{} is listed", task.id);
            assert!(!is_any_of(task, &unseen[..index]), "{} is another unseen one", task.id);
        }
        for number in 0..MANY {
            let task = suite.generated_task(number);
            assert!(names.insert(task.id.to_string()), "{} twice", task.id);
            assert!(!is_any_of(&task, &listed), "{} is listed", task.id);
            assert!(!is_any_of(&task, unseen), "{} is unseen", task.id);
        }
    }
}

#[test]
fn templates_take_turns() {
    for suite in Suite::ALL {
        let templates = suite.templates();
        for (number, template) in (0..).zip(templates.iter().cycle()).take(2 * templates.len()) {
            let name = suite.generated_name(number);
            assert_eq!(suite.template_of(&name).as_ref(), Some(template));
            assert_eq!(suite.generated_task(number).id.as_str(), name);
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for task in suite.unseen_tasks() {
            *counts.entry(suite.template_of(task.id.as_str()).unwrap()).or_default() += 1;
        }
        assert_eq!(suite.unseen_tasks().len(), UNSEEN_TASKS);
        assert_eq!(counts.len(), templates.len());
        assert!(counts.values().all(|count| (1..=2).contains(count)), "{counts:?}");
        for task in suite.tasks(Split::Train) {
            assert!(suite.template_of(task.id.as_str()).is_some(), "{}", task.id);
        }
        for task in suite.tasks(Split::HeldOut) {
            assert_eq!(suite.template_of(task.id.as_str()), None, "{}", task.id);
        }
    }
}

#[test]
fn a_name_is_enough() {
    for suite in Suite::ALL {
        let generated = [0, 1, 34, 4095, 999_999, 1_000_000, MAX_GENERATED - 1];
        for task in generated.map(|number| suite.generated_task(number)).iter().chain(suite.unseen_tasks()) {
            assert_eq!(find(task.id.as_str()), Some((suite, task.clone())));
        }
    }
    for wrong in [
        "pocket-files-rename-0",
        "pocket-files-rename-g000000", // the turn of another template
        "pocket-settings-open-g0",
        "pocket-settings-open-g+00000",
        "pocket-settings-open-g281474976710656",
        "pocket-settings-open-u000064",
        "pocket-mail-open-u000000", // a held-out template
        "mail-g000000",
        "-g",
        "",
    ] {
        assert_eq!(find(wrong), None, "{wrong}");
    }
}

/// The sets of a run on few templates: only of these, only what the run does not know, as many as there are.
#[test]
fn unseen_tasks_of_some_templates() {
    let suite = Suite::Pocket;
    let of = |name: &'static str| suite.unseen_tasks_of(move |template| template == name, |_| false);
    let renames = of("files-rename");
    assert_eq!(renames.len(), UNSEEN_TASKS);
    assert!(renames.iter().all(|task| suite.template_of(task.id.as_str()).unwrap() == "files-rename"));
    let all = suite.unseen_tasks().iter();
    let of_all: Vec<&Task> = all.filter(|task| task.id.as_str().contains("files-rename-u")).collect();
    assert!(!of_all.is_empty() && of_all.iter().all(|task| renames.contains(task)));
    // four applications, with and without a message over them
    let opens = of("settings-open");
    assert!((4..16).contains(&opens.len()), "{}", opens.len());
    let known = renames[3].clone();
    let others =
        suite.unseen_tasks_of(|template| template == "files-rename", |task| is_same_task(task, &known));
    assert!(others.len() >= UNSEEN_TASKS - 1 && !is_any_of(&known, &others));
    assert!(suite.unseen_tasks_of(|_| false, |_| false).is_empty());
}

/// Pins the tasks themselves: other ones under the same names would silently change every documented run and every
/// resumed checkpoint.
#[test]
fn they_stay_as_they_are() {
    let digest = |tasks: &mut dyn Iterator<Item = Task>| {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in tasks.flat_map(|task| serde_json::to_vec(&task).unwrap()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash
    };
    let digests = Suite::ALL.map(|suite| {
        let generated = &mut (0..200).map(|number| suite.generated_task(number));
        (digest(generated), digest(&mut suite.unseen_tasks().iter().cloned()))
    });
    let expected = [
        (10_357_898_237_434_682_578, 8_815_921_344_495_066_720),
        (13_894_605_043_593_419_408, 17_197_080_714_988_352_686),
    ];
    assert_eq!(digests, expected);
}
