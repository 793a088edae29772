//! OSWorld's result folders: those that this project writes, and those of OSWorld's own scripts.

use arpo_osworld::results::record::{StepRecord, Trial};
use arpo_view::episode::marks::Mark;
use arpo_view::run::Run;
use arpo_view::run::index::Ending;
use image::{ImageFormat, RgbImage};
use serde_json::json;
use std::fs;
use std::io::Cursor;
use std::path::Path;

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = vec![];
    RgbImage::new(width, height).write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).unwrap();
    bytes
}

#[test]
fn our_own_results() {
    let folder = tempfile::tempdir().unwrap();
    let trial = Trial::new(folder.path(), "screenshot", "pocket", "0");
    let record = trial.begin("os", "task-1").unwrap();
    for (turn, action) in [(1, "pyautogui.click(4, 5)"), (1, "pyautogui.press('a')"), (2, "DONE")] {
        let step = StepRecord {
            turn,
            action,
            response: "Thought: now\nAction: <b>it</b>",
            done: action == "DONE",
            info: json!({}),
            screenshot: &png(64, 40),
        };
        record.step(&step, &jiff::Zoned::now()).unwrap();
    }
    record.score(1.0).unwrap();
    let mut run = Run::open(folder.path()).unwrap();
    assert!(run.is_results());
    let row = run.index().rows[0].clone();
    assert_eq!((&*row.id, row.turns, row.outcome), ("os/task-1", 2, Ending::Finished));
    assert!((row.score - 1.0).abs() < 1e-12);
    let file = run.index().file_of(&row).name.to_string();
    let (_, episode) = run.episode(&file, &row.id).unwrap();
    assert_eq!(episode.steps[0].actions.len(), 2, "both actions of the first response");
    assert_eq!(episode.steps[0].actions[0].marks, [Mark::Click { x: 4.0, y: 5.0, times: 1, button: "left" }]);
    assert_eq!(episode.steps[0].thought.as_deref(), Some("now"));
    // a recorded screen is the one after its action
    assert_eq!(episode.steps[0].screen, None);
    let second = episode.steps[1].screen.clone().unwrap();
    assert_eq!((second.width, second.height), (64, 40));
    assert!(run.screen_path(&second.digest).unwrap().unwrap().is_file());
    assert!(episode.last_screen.is_some());
}

/// As OSWorld's scripts of two ages write them: no response, no line break at the end, `True` as a score, an error instead of one.
#[test]
fn results_of_osworlds_scripts() {
    let folder = tempfile::tempdir().unwrap();
    let write = |task: &str, lines: &str, score: Option<&str>| {
        let path = folder.path().join("pyautogui/screenshot/gpt/chrome").join(task);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("traj.jsonl"), lines).unwrap();
        fs::write(path.join("step_1_20240101@120000.png"), png(32, 20)).unwrap();
        if let Some(score) = score {
            fs::write(path.join("result.txt"), score).unwrap();
        }
    };
    let line = r#"{"step_num":1,"action_timestamp":"20240101@120000","action":"import pyautogui; pyautogui.click(1, 2)","reward":0,"done":false,"info":{},"screenshot_file":"step_1_20240101@120000.png"}"#;
    write("a", line, Some("True\n"));
    write("b", &format!("{line}\n{{\"Error\": \"it broke\"}}\n"), None);
    let hostile = line.replace("step_1_20240101@120000.png", "../../../../secret.png");
    fs::write(folder.path().join("secret.png"), png(8, 8)).unwrap();
    write("c", &format!("{hostile}\nnonsense\n"), Some("0.4"));
    let args = folder.path().join("pyautogui/screenshot/gpt/args.json");
    fs::write(args, "{}").unwrap();
    let mut run = Run::open(folder.path()).unwrap();
    let rows = run.index().rows.clone();
    let shown: Vec<(&str, f64, Ending)> = rows.iter().map(|row| (&*row.id, row.score, row.outcome)).collect();
    assert_eq!(
        shown,
        [
            ("chrome/a", 1.0, Ending::StepLimit),
            ("chrome/b", 0.0, Ending::EnvironmentError),
            ("chrome/c", 0.4, Ending::StepLimit),
        ]
    );
    assert_eq!(rows[1].reason.as_deref(), Some("it broke"));
    assert_eq!(run.bad_lines(), 1);
    let file = run.index().file_of(&rows[2]).name.to_string();
    assert_eq!(file, "pyautogui/screenshot/gpt");
    let (_, episode) = run.episode(&file, "chrome/c").unwrap();
    assert_eq!(episode.last_screen, None, "a screenshot outside the folder of its episode is none");
    let (_, episode) = run.episode(&file, "chrome/a").unwrap();
    assert!(episode.last_screen.is_some());
    assert!(!Path::new(&file).is_absolute());
}

/// A person looks at an episode while the evaluation goes on.
#[test]
fn pictures_stay_while_other_results_arrive_and_change_with_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |task: &str, picture: &[u8]| {
        let path = folder.path().join("chrome").join(task);
        fs::create_dir_all(&path).unwrap();
        let line = |turn: u32| {
            format!("{{\"step_num\":{turn},\"action\":\"WAIT\",\"screenshot_file\":\"step_{turn}.png\"}}\n")
        };
        fs::write(path.join("traj.jsonl"), line(1) + &line(2)).unwrap();
        for turn in [1, 2] {
            fs::write(path.join(format!("step_{turn}.png")), picture).unwrap();
        }
    };
    write("a", &png(32, 20));
    let mut run = Run::open(folder.path()).unwrap();
    let last = |run: &mut Run| run.episode("results", "chrome/a").unwrap().1.last_screen.unwrap();
    let before = last(&mut run);
    write("b", &png(32, 20));
    run.refresh().unwrap();
    assert_eq!(run.index().rows.len(), 2);
    assert!(run.screen_path(&before.digest).unwrap().is_some(), "the second picture of an open player");
    // the task is played again
    write("a", &png(48, 30));
    run.refresh().unwrap();
    let after = last(&mut run);
    assert_eq!((after.width, after.height), (48, 30));
    assert_ne!(after.digest, before.digest, "a browser would show the old picture");
    assert_eq!(run.screen_path(&before.digest).unwrap(), None);
    assert!(run.screen_path(&after.digest).unwrap().is_some());
}
