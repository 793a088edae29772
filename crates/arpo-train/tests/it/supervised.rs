//! A supervised run that is stopped while it is evaluated: it is saved, and what was evaluated is not reported.

use crate::run_folder::Temporary;
use arpo_env::tasks::Suite;
use arpo_train::TrainError;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::{RunFolder, Start};
use arpo_train::supervised::run::{Schedule, SupervisedEvent, train};
use arpo_train::supervised::{Family, Precision, Reading, SupervisedOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tch::Device;

/// Two updates on questions and one on episodes.
const UPDATES: u64 = 3;

/// Trains, and requests a stop this long after the last update; returns the result and how often the run was evaluated.
fn trained(
    folder: &RunFolder,
    start: Start,
    tasks: usize,
    stop_after: Option<Duration>,
) -> (Result<PathBuf, TrainError>, usize) {
    let options = SupervisedOptions {
        suite: Suite::Pocket,
        family: Family::Qwen25Vl,
        model: None,
        dimensions: None,
        letter_updates: 0,
        grounding_updates: 2,
        updates: UPDATES,
        screens: 4,
        episodes: 2,
        grounding_share: 0.0,
        weights: BTreeMap::new(),
        reading: Reading::default(),
        precision: Precision::F32,
        learning_rate: 1e-3,
        warm_up: 1,
        cool_down: 0,
        max_steps: 15,
        seed: 0,
    };
    let schedule =
        Schedule { every: UPDATES, tasks, held_out_tasks: 0, until: None, until_held_out: None, limit: None };
    let (stop, mut evaluations) = (StopSwitch::default(), 0);
    let result = train(&options, &schedule, folder, start, Device::Cpu, &stop, &mut |event| {
        evaluations += usize::from(matches!(event, SupervisedEvent::Evaluated { .. }));
        let is_last = matches!(event, SupervisedEvent::Updated { updates: UPDATES, .. });
        if let Some(after) = stop_after.filter(|_| is_last) {
            let stop = stop.clone();
            std::thread::spawn(move || {
                std::thread::sleep(after);
                stop.request();
            });
        }
    });
    (result, evaluations)
}

#[test]
fn a_stop_abandons_an_evaluation_and_saves_the_run() {
    let temporary = Temporary::new("supervised");
    let folder = temporary.started();
    // tasks for many times as long
    let (result, evaluations) = trained(&folder, Start::New, 2_000, Some(Duration::from_millis(500)));
    assert!(matches!(result, Err(TrainError::Interrupted)), "{result:?}");
    assert_eq!(evaluations, 0);
    assert!(folder.checkpoints().join("step-000003").exists());
    assert!(!folder.path().join("model").exists(), "a stopped run has no model");
    // all updates are made: what is left are the evaluation that was cut short and the model
    let (result, evaluations) = trained(&folder, Start::Resume, 2, None);
    assert_eq!(result.unwrap(), folder.path().join("model"));
    assert_eq!(evaluations, 1);
}
