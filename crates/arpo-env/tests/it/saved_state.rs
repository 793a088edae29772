//! A saved episode continues exactly as the original would have, whatever was open, focused or half typed.

use crate::later;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::oracle::Oracle;
use arpo_env::policies::Scripted;
use arpo_env::tasks::Suite;

/// Runs two desktops, the second restored from JSON before every step.
fn continues_exactly(suite: Suite, policy: impl Fn(u64) -> Scripted, every: usize, steps: usize) {
    let mut original = EmbeddedDesktop::new(suite.screen()).unwrap();
    let mut restored = EmbeddedDesktop::new(suite.screen()).unwrap();
    for (seed, task) in suite.all_tasks().enumerate().step_by(every) {
        let seed = seed as u64;
        let mut policy = policy(seed);
        original.reset(task, seed, later()).unwrap();
        for step in 0..steps {
            let saved = serde_json::to_string(&original.save().unwrap()).unwrap();
            let screen = restored.restore(serde_json::from_str(&saved).unwrap()).unwrap();
            assert!(screen == original.screen().unwrap(), "{} before step {step}", task.id);
            let action = policy.next_action(&original);
            let stepped = original.step(&action, later()).unwrap();
            let again = restored.step(&action, later()).unwrap();
            assert!(stepped == again, "{} after step {step}, {action:?}", task.id);
            assert_eq!(original.save(), restored.save(), "{} after step {step}", task.id);
            if stepped.terminated {
                break;
            }
        }
    }
}

#[test]
fn under_the_oracle() {
    for suite in Suite::ALL {
        continues_exactly(suite, |seed| Scripted::Oracle(Oracle::with_detours(seed, 0.2)), 9, 30);
    }
}

#[test]
fn under_random_actions() {
    for suite in Suite::ALL {
        continues_exactly(suite, Scripted::random, 16, 25);
    }
}
