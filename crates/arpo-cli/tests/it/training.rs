//! `arpo train` as a user starts, kills and resumes it.

use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const SETTINGS: [&str; 10] = [
    "iterations=6",
    "tasks.count=4",
    "collect.tasks=2",
    "collect.group_size=4",
    "collect.desktops=8",
    "collect.max_steps=4",
    "evaluation.every=3",
    "evaluation.samples=1",
    "evaluation.held_out=\"never\"",
    "checkpoints.every=1",
];

fn train(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
    command.args(["train", "--out"]).arg(folder).args(more);
    for setting in SETTINGS {
        command.args(["--set", setting]);
    }
    // the same sums in the same order, however many cores there are
    command.env("OMP_NUM_THREADS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The metrics without what depends on the clock.
fn metrics(run: &Path) -> Vec<Map<String, Value>> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let Value::Object(map) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
        map.into_iter().filter(|(name, _)| !name.starts_with("time/")).collect()
    };
    text.lines().map(line).collect()
}

fn last_weights(run: &Path) -> Vec<u8> {
    fs::read(run.join("checkpoints/step-000006/model/model.safetensors")).unwrap()
}

#[test]
fn a_run_killed_at_any_moment_goes_on_as_if_it_had_not_been() {
    let scratch = scratch("killed");
    let (whole, broken) = (scratch.join("whole"), scratch.join("broken"));
    let done = train(&whole, &["--quiet"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(metrics(&whole).len(), 7); // before the first and after each

    let mut killed = 0;
    // steps that have nothing to do with how long anything takes
    for moment in 0..20u64 {
        let mut child = train(&broken, &["--quiet", "--resume"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150 + moment * 7919 % 1900));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap(); // SIGKILL
            killed += 1;
        }
        child.wait().unwrap();
    }
    assert!(killed > 0, "none of 20 was killed while at work");
    let done = train(&broken, &["--quiet", "--resume"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(metrics(&broken), metrics(&whole));
    assert!(last_weights(&broken) == last_weights(&whole), "other weights after {killed} kills");
}

#[test]
fn a_damaged_checkpoint_is_passed_over_and_a_folder_is_not_taken_twice() {
    let scratch = scratch("damaged");
    let run = scratch.join("run");
    let done = train(&run, &["--json"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for line in String::from_utf8(done.stdout).unwrap().lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    let whole = last_weights(&run);
    let newest = run.join("checkpoints/step-000006/model/model.safetensors");
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let again = train(&run, &[]).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--resume"));
    let resumed = train(&run, &["--resume"]).output().unwrap();
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(resumed.status.success(), "{said}");
    assert!(said.contains("step-000006") && said.contains("damaged"), "{said}");
    assert!(last_weights(&run) == whole, "the iteration that was lost came out otherwise");
    let other = train(&run, &["--resume", "--set", "seed=9"]).output().unwrap();
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other.stderr).contains("`seed` = 9"));
}

#[test]
fn ctrl_c_finishes_the_step_and_saves() {
    let scratch = scratch("interrupted");
    let run = scratch.join("run");
    let mut child = train(&run, &["--set", "iterations=1000000"]).spawn().unwrap();
    // under way once there is a checkpoint
    let deadline = std::time::Instant::now() + Duration::from_mins(2);
    while !run.join("checkpoints/step-000001").exists() {
        assert!(std::time::Instant::now() < deadline, "no checkpoint");
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert!(child.wait().unwrap().success());
    let lines = metrics(&run).len() as u64;
    let newest = run.join(format!("checkpoints/step-{:06}", lines - 1));
    assert!(newest.exists(), "{}", newest.display());
}
