//! `arpo env` and `arpo bench env` as a user runs them: lists, screenshots, playing by hand, and errors.

use super::commands::{Ran, arpo};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// One click on the task bar or home screen solves it: "open Shop".
const ONE_STEP_TASK: &str = "pocket-settings-open-0";

/// A temporary folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("arpo-env-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ids(arguments: &[&str]) -> Vec<String> {
    let ran = arpo(&[&["env", "list"], arguments].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

pub(crate) fn json(arguments: &[&str]) -> Value {
    let ran = arpo(arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn png_size(path: &str) -> (u32, u32) {
    image::image_dimensions(Path::new(path)).unwrap()
}

/// Runs `arpo env play` with these lines on stdin.
fn play(arguments: &[&str], lines: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_arpo"))
        .args(["env", "play"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The centre of the widget with this label, as `show` prints it.
fn centre(task: &str, label: &str, folder: &Folder) -> (i64, i64) {
    let shown = json(&["env", "show", "--task", task, "--json", "--out", &folder.path("shown.png")]);
    let widgets = shown["widgets"].as_array().unwrap();
    let widget = widgets.iter().find(|widget| widget["label"] == label).unwrap();
    let side = |index: usize| widget["rect"][index].as_f64().unwrap();
    (f64::midpoint(side(0), side(2)) as i64, f64::midpoint(side(1), side(3)) as i64)
}

#[test]
fn lists_hold_every_task_once() {
    let all = ids(&[]);
    assert_eq!(all.len(), 384);
    assert_eq!(ids(&["--suite", "pocket"]), all[..192]);
    assert_eq!(ids(&["--suite", "desktop", "--part", "train"]), all[192..320]);
    assert_eq!(ids(&["--suite", "desktop", "--part", "held-out"]), all[320..]);
    let line = arpo(&["env", "list"]).stdout.lines().next().unwrap().to_owned();
    assert_eq!(line.split("  ").filter(|part| !part.is_empty()).count(), 3, "{line}");

    let json = json(&["env", "list", "--part", "held-out", "--json"]);
    let json = json.as_array().unwrap();
    assert_eq!(json.len(), 128);
    let infeasible = json.iter().filter(|task| task["infeasible"] == true).count();
    assert!((8..=20).contains(&infeasible), "one in ten: {infeasible}");
    assert_eq!((&json[0]["suite"], &json[0]["part"]), (&"pocket".into(), &"held-out".into()));
}

#[test]
fn show_writes_a_screenshot() {
    let folder = Folder::new("show");
    let out = folder.path("desktop.png");
    let task = ["env", "show", "--task", "desktop-files-rename-1", "--out", &out];
    let ran = arpo(&[&task[..], &["--size", "1280", "720", "--theme", "dark", "--seed", "3"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(png_size(&out), (1280, 720));
    assert_eq!(ran.stdout.lines().next(), Some("desktop-files-rename-1, seed 3, 1280x720 pixels, dark"));
    let table = ran.stdout.lines().skip_while(|line| !line.starts_with("role")).skip(1);
    assert!(table.take_while(|line| !line.is_empty()).count() > 8, "{}", ran.stdout);
    let dark = fs::read(&out).unwrap();
    arpo(&[&task[..], &["--size", "1280", "720", "--theme", "light", "--seed", "3"]].concat());
    assert_ne!(fs::read(&out).unwrap(), dark);
}

/// Generated tasks, whose ids appear in a run's metrics, can be shown although they are not listed.
#[test]
fn generated_tasks_are_shown_by_their_names() {
    let folder = Folder::new("generated");
    let screenshot = folder.path("task.png");
    for (id, size) in
        [("pocket-files-rename-g000016", (168, 140)), ("desktop-files-rename-u000001", (640, 480))]
    {
        let shown =
            json(&["env", "show", "--task", id, "--oracle-steps", "30", "--out", &screenshot, "--json"]);
        assert_eq!((&shown["id"], &shown["score"]), (&Value::from(id), &Value::from(1.0)), "{shown}");
        assert_eq!(png_size(&screenshot), size);
    }
    let ran = arpo(&["env", "show", "--task", "pocket-files-rename-g000016", "--suite", "desktop"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("there is no such task"), "{}", ran.stderr);
}

#[test]
fn show_follows_the_oracle_to_the_end() {
    let folder = Folder::new("oracle");
    let show = |steps: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
        command.args(["env", "show", "--task", ONE_STEP_TASK, "--oracle-steps", steps]);
        let output = command.current_dir(&folder.0).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(show("0").contains("\nscore now: 0\nscreenshot: pocket-settings-open-0.png\n"));
    assert_eq!(png_size(&folder.path("pocket-settings-open-0.png")), (168, 140));
    let done = show("99");
    assert!(done.contains("\n   1  click(start_box=") && done.contains("\n   2  finished()\n"), "{done}");
    assert!(done.contains("\nscore now: 1\n"), "{done}");
}

#[test]
fn a_session_is_scored_by_its_actions() {
    let folder = Folder::new("play");
    let (x, y) = centre(ONE_STEP_TASK, "Shop", &folder);
    let session = |lines: &str| play(&["--task", ONE_STEP_TASK, "--out", &folder.path("steps")], lines);
    let last = |ran: &Ran| ran.stdout.lines().last().unwrap().to_owned();

    let solved = session(&format!("click {x} {y}\nfinished\n"));
    assert_eq!((solved.code, solved.stderr.as_str()), (0, ""));
    assert_eq!(last(&solved), "score 1 after 2 actions");
    for screenshot in ["steps/step_000.png", "steps/step_001.png", "steps/step_002.png"] {
        assert_eq!(png_size(&folder.path(screenshot)), (168, 140));
    }
    let as_the_agent = session(&format!("Action: click(start_box='({x},{y})')\nfinished()\n"));
    assert_eq!(as_the_agent.stdout, solved.stdout);

    let (x, y) = centre(ONE_STEP_TASK, "Mail", &folder);
    assert_eq!(last(&session(&format!("click {x} {y}\nfinished\n"))), "score 0 after 2 actions");
    assert_eq!(last(&session("call_user\n")), "score 0 after 1 action");
    for lines in ["", "wait\nquit\nfinished\n"] {
        assert!(last(&session(lines)).contains("(not ended with "), "{lines:?}");
    }
}

#[test]
fn a_session_continues_after_a_mistake() {
    let folder = Folder::new("mistakes");
    let (x, y) = centre(ONE_STEP_TASK, "Shop", &folder);
    let lines = format!(
        "clik 1 2\n\u{fffd}\nclick\nclick 999 1\nkey hyper\n\nwait(\nhelp\nlook\nclick {x} {y}\nfinished"
    );
    let ran = play(&["--task", ONE_STEP_TASK, "--out", &folder.path("steps")], &lines);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let mistakes = ran.stdout.lines().filter(|line| line.starts_with("not understood: ")).count();
    assert_eq!(mistakes, 6, "{}", ran.stdout);
    assert_eq!(ran.stdout.lines().last(), Some("score 1 after 2 actions"));
}

#[test]
fn own_tasks_are_listed_shown_and_played() {
    let folder = Folder::new("own");
    let task = |id: &str| {
        format!(
            r#"[{{"id": "{id}", "instruction": "write tea into cat", "application": "files",
                 "config": [{{"type": "write_file", "path": "cat", "content": "tea"}}],
                 "evaluator": {{"conditions": [{{"type": "equals", "path": "/files/cat", "value": "tea"}}]}}}}]"#
        )
    };
    fs::write(folder.path("b.json"), task("mine-2")).unwrap();
    fs::write(folder.path("a.json"), task("mine-1")).unwrap();
    fs::write(folder.path("notes.txt"), "no tasks").unwrap();
    let all = folder.0.to_str().unwrap();
    assert_eq!(ids(&["--tasks", all]), ["mine-1", "mine-2"]);
    assert_eq!(ids(&["--tasks", &folder.path("b.json")]), ["mine-2"]);
    let done = play(&["--tasks", all, "--task", "mine-2", "--out", &folder.path("steps")], "finished\n");
    assert!(done.stdout.ends_with("score 1 after 1 action\n"), "{}", done.stdout);

    fs::write(folder.path("c.json"), task("mine-1")).unwrap();
    let wrong = |message: &str| {
        let ran = arpo(&["env", "list", "--tasks", all]);
        let expected = format!("error: --tasks {}: {message}", folder.path("c.json"));
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.lines().count()), (2, "", 1));
        assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
    };
    wrong("task mine-1: the name is taken by another task");
    fs::write(folder.path("c.json"), task("x").replace("write_file", "write")).unwrap();
    wrong("task x: ");
    fs::write(folder.path("c.json"), "{}").unwrap();
    wrong("expected a list of tasks: ");
}

#[test]
fn errors_on_the_command_line_are_one_line() {
    let folder = Folder::new("wrong");
    for (arguments, message) in [
        (
            vec!["show", "--task", "files-rename-0"],
            "error: --task files-rename-0: there is no such task; did you mean pocket-files-rename-0, \
             desktop-files-rename-0 or ",
        ),
        (
            vec!["play", "--task", "pocket-mail-wirte-0", "--suite", "pocket"],
            "error: --task pocket-mail-wirte-0: there is no such task; did you mean pocket-mail-write-0, ",
        ),
        (
            vec!["show", "--task", ONE_STEP_TASK, "--size", "640", "480"],
            "error: --size: a pocket screen is 3 to 5 cells of 56 pixels wide and 4 to 7 cells of 28 pixels high, \
             not 640x480",
        ),
        (vec!["list", "--tasks", "nowhere.json"], "error: --tasks nowhere.json: No such file"),
        (vec!["list", "--tasks", folder.0.to_str().unwrap()], "error: --tasks "),
    ] {
        let ran = arpo(&[&["env"], &arguments[..]].concat());
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.lines().count()), (2, "", 1), "{}", ran.stderr);
        assert!(ran.stderr.starts_with(message), "{}", ran.stderr);
    }
    let elsewhere = folder.path("no/such/folder/x.png");
    let ran = arpo(&["env", "show", "--task", ONE_STEP_TASK, "--out", &elsewhere]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (1, 1), "{}", ran.stderr);
}

#[test]
fn scores_and_speed_are_printed() {
    let scores =
        json(&["env", "scores", "--suite", "pocket", "--policy", "oracle", "--seeds", "1", "--json"]);
    assert_eq!(scores.as_array().unwrap().len(), 1);
    assert_eq!((&scores[0]["policy"], &scores[0]["all"]), (&"oracle".into(), &100.0.into()));

    let speeds = json(&["bench", "env", "--seconds", "1", "--json"]);
    let widths: Vec<i64> =
        speeds.as_array().unwrap().iter().map(|row| row["width"].as_i64().unwrap()).collect();
    assert_eq!(widths, [168, 640, 1280, 1920]);
    assert!(speeds[0]["steps_per_second"].as_f64().unwrap() > 0.0);
}
