//! Guided rollouts, and a run whose replay buffer begins with them.

use crate::training::{BASE, finished, scratch, train};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn rollout(out: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
    command.args(["rollout", "--samples", "4", "--quiet", "--out"]).arg(out);
    for set in [
        BASE,
        "tasks.list=quick",
        "tasks.count=4",
        "collect.tasks=2",
        "collect.desktops=8",
        "collect.max_steps=4",
    ] {
        command.args(["--set", set]);
    }
    command.args(more).env("OMP_NUM_THREADS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn problem(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

fn episodes(folder: &Path) -> Vec<Value> {
    let files = ["episodes/iteration-000000.jsonl", "episodes/iteration-000001.jsonl"];
    let text: String = files.map(|file| fs::read_to_string(folder.join(file)).unwrap()).concat();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn guided_rollouts_keep_successes_only() {
    let scratch = scratch("guided");
    let (guided, plain) = (scratch.join("guided"), scratch.join("plain"));
    let said = finished(&mut rollout(&guided, &["--hint", "oracle"]));
    assert!(
        said.starts_with("16 episodes, ") && said.contains(" of them successes, which are kept: "),
        "{said}"
    );
    assert!(episodes(&guided).iter().all(|episode| episode["score"].as_f64().unwrap() > 0.1));
    finished(&mut rollout(&plain, &[]));
    assert_eq!(episodes(&plain).len(), 16);
    // a folder has one kind of rollouts
    let mixed = problem(&mut rollout(&plain, &["--hint", "oracle", "--resume"]));
    assert!(mixed.contains("has rollouts with no hints; leave the option out"), "{mixed}");
    let plans = scratch.join("plans.json");
    fs::write(&plans, r#"{"a": "click"}"#).unwrap();
    let missing = problem(&mut rollout(&scratch.join("none"), &["--hint", plans.to_str().unwrap()]));
    assert!(missing.contains("4 of 4 tasks have no plan, the first of them "), "{missing}");
}

#[test]
fn a_run_begins_with_successes_collected_before() {
    let scratch = scratch("seeded");
    let (collected, run) = (scratch.join("collected"), scratch.join("run"));
    finished(&mut rollout(&collected, &[]));
    let successes = episodes(&collected).iter().filter(|one| one["score"].as_f64().unwrap() > 0.1).count();
    assert!(successes > 0, "the base model solves some of the tasks");
    let seeds = format!("replay.seed_from={:?}", collected.display().to_string());
    let settings = ["--set", &seeds, "--set", "replay.capacity=16"];
    let trained = train(&run, &settings).args(["--set", "iterations=2"]).output().unwrap();
    let said = String::from_utf8(trained.stderr).unwrap();
    assert!(trained.status.success(), "{said}");
    assert!(said.contains(&format!("the replay buffer begins with {successes} successes of ")), "{said}");
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let mut lines = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    // an evaluation comes first
    let stored = lines.find_map(|line| line["replay/stored"].as_u64()).unwrap();
    assert!(stored >= successes as u64, "{stored} of {successes}");
    // a resumed run has them in its checkpoint, and needs the folder no more
    fs::remove_dir_all(&collected).unwrap();
    finished(train(&run, &settings).args(["--set", "iterations=3", "--resume"]));

    let wrong = |set: &str| problem(&mut train(&scratch.join("wrong"), &["--set", &seeds, "--set", set]));
    assert!(wrong("iterations=1").contains("expected a folder written by `arpo rollout`"));
    assert!(wrong("replay.enabled=false").contains("fills a buffer that is not used"));
}
