//! The embedded desktop keeps the contract, in every profile.

use crate::later;
use arpo_core::task::{Task, TaskId};
use arpo_env::conformance::Conformance;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, Screen};
use arpo_env::look::ScreenOptions;
use arpo_env::oracle::Oracle;
use arpo_env::tasks::{Split, Suite};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn in_every_profile() {
    for (suite, options) in [
        (Suite::Pocket, ScreenOptions::pocket()),
        (Suite::Pocket, ScreenOptions { width: 280, height: 196, ..ScreenOptions::pocket() }),
        (Suite::Desktop, ScreenOptions::desktop(640, 480)),
        (Suite::Desktop, ScreenOptions::desktop(1920, 1080)),
    ] {
        let tasks = suite.tasks(Split::Train);
        for task in [0, 2, 10, 20, 24].map(|index| &tasks[index]) {
            let conformance = Conformance {
                task: task.clone(),
                other_task: suite.tasks(Split::HeldOut)[5].clone(),
                call: Duration::from_mins(1),
            };
            let result = conformance.check(|| EmbeddedDesktop::new(options.clone()).unwrap());
            assert_eq!(result, Ok(()), "{} at {}x{}", task.id, options.width, options.height);
        }
    }
}

/// Desktops in threads of one process draw the same as alone.
#[test]
fn desktops_do_not_disturb_one_another() {
    let run = |suite: Suite| -> Vec<Screen> {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        let task = &suite.tasks(Split::Train)[7];
        let mut oracle = Oracle::with_detours(5, 0.3);
        let mut screens = vec![environment.reset(task, 5, later()).unwrap()];
        for _ in 0..12 {
            let stepped = environment.step(&oracle.next_action(&environment), later()).unwrap();
            screens.push(stepped.screen);
            if stepped.terminated {
                break;
            }
        }
        screens
    };
    for suite in Suite::ALL {
        let alone = run(suite);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| run(suite))).collect();
            for thread in threads {
                assert!(thread.join().unwrap() == alone);
            }
        });
    }
}

#[test]
fn bad_tasks_and_screens_are_errors_with_messages() {
    let mut environment = EmbeddedDesktop::new(ScreenOptions::pocket()).unwrap();
    let mut refused = |setup: Value, evaluator: Value| {
        let task = Task {
            id: TaskId::new("t"),
            instruction: String::new(),
            application: String::new(),
            setup,
            evaluator,
        };
        environment.reset(&task, 0, later()).unwrap_err().to_string()
    };
    let fine = || json!({"infeasible": true});
    for (setup, evaluator, message) in [
        (json!([]), json!({}), "task t: evaluator: either conditions or \"infeasible\": true"),
        (json!([]), json!({"conditions": [{"type": "equal"}]}), "unknown variant `equal`"),
        (json!([{"type": "explode"}]), fine(), "unknown variant `explode`"),
        (json!([{"type": "open_file", "path": "nowhere"}]), fine(), "there is no file nowhere"),
        (json!([{"type": "set", "path": "/player/volume/x", "value": 1}]), fine(), "holds no names"),
        (json!([{"type": "set", "path": "/player/volume", "value": "loud"}]), fine(), "invalid type"),
    ] {
        let error = refused(setup, evaluator);
        assert!(error.contains(message), "{error}");
    }
    for (width, height) in [(160, 140), (168, 84), (0, 0), (336, 140)] {
        let options = ScreenOptions { width, height, ..ScreenOptions::pocket() };
        assert!(EmbeddedDesktop::new(options).unwrap_err().to_string().contains("a pocket screen is"));
    }
    assert!(EmbeddedDesktop::new(ScreenOptions::desktop(320, 240)).is_err());
}
