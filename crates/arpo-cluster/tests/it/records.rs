//! Episodes on workers are recorded on the trainer's machine, as if their desktops were there.

use crate::desktops::{Counts, TestHub, TestWorker, counting, hub, options, soon, task};
use arpo_core::action::{Action, ModelBox};
use arpo_suite::recorded::Trial;
use arpo_suite::{EnvironmentSource, RecordedSource};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The lines of the record without their times, and the score.
fn record(folder: &Path) -> (Vec<serde_json::Value>, String) {
    let folder = folder.join("pyautogui/screenshot/model/0/counter/t");
    let lines = fs::read_to_string(folder.join("traj.jsonl")).unwrap();
    let read = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        let screenshot = line["screenshot_file"].as_str().unwrap_or_default().to_owned();
        assert!(fs::read(folder.join(screenshot)).unwrap().starts_with(b"\x89PNG"));
        let fields = line.as_object_mut().unwrap();
        fields.retain(|name, _| !["screenshot_file", "action_timestamp"].contains(&name.as_str()));
        line
    };
    (lines.lines().map(read).collect(), fs::read_to_string(folder.join("result.txt")).unwrap())
}

fn play(source: Arc<dyn EnvironmentSource>, results: &Path) {
    let trial = Trial::new(results, "screenshot", "model", "0");
    let source = RecordedSource::new(source, trial);
    let mut desktop = source.make(0).unwrap();
    desktop.reset(&task("t"), 0, soon()).unwrap();
    let click = Action::Click { start_box: ModelBox::point(1.0, 2.0) };
    for (response, actions) in
        [("two", vec![&click, &click]), ("none", vec![&Action::Wait {}]), ("one", vec![&click])]
    {
        desktop.record_response(response);
        for action in actions {
            desktop.step(action, soon()).unwrap();
        }
    }
    desktop.evaluate(soon()).unwrap();
}

#[test]
fn the_record_of_an_episode_is_the_same_as_without_a_worker() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    play(counting(&Arc::new(Counts::default())), here.path());
    let TestHub { hub, .. } = hub(options(1));
    let counts = Arc::new(Counts::default());
    let _worker = TestWorker::start(hub.address(), 1, counting(&counts));
    hub.open().unwrap();
    play(hub, there.path());
    let (lines, score) = record(there.path());
    assert_eq!((lines.clone(), score.clone()), record(here.path()));
    assert_eq!(score, "0.003\n");
    let said: Vec<_> =
        lines.iter().map(|line| (line["action"].as_str().unwrap(), line["step_num"].as_u64())).collect();
    assert_eq!(said, [("count to 1", Some(1)), ("count to 2", Some(1)), ("count to 3", Some(3))]);
    assert_eq!(lines[2]["response"], "one");
}
