//! `arpo train` as a user starts, kills and resumes it.

use crate::stopping::{ended, interrupt};
use serde_json::{Map, Value};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Iterations of a run of `train`.
pub(crate) const ITERATIONS: u32 = 6;

/// The first tasks of `quick` are solved now and then by this model.
pub(crate) const BASE: &str = concat!("model.base=", env!("CARGO_MANIFEST_DIR"), "/../../experiments/base");

const SETTINGS: [&str; 17] = [
    BASE,
    "iterations=6",
    "tasks.list=quick",
    "tasks.count=4",
    "task_sampling.order=\"shuffled\"",
    "effort.informative_groups=0",
    "optimiser.learning_rate=2e-4",
    "collect.tasks=2",
    "collect.group_size=4",
    "collect.desktops=8",
    "collect.max_steps=4",
    "evaluation.every=3",
    "evaluation.samples=1",
    "evaluation.unseen=\"never\"",
    "evaluation.held_out=\"never\"",
    "checkpoints.every=1",
    // all of the replay buffer's screenshots on disk
    "replay.screens_gib=0",
];

pub(crate) fn train(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
    command.args(["train", "--out"]).arg(folder);
    for setting in SETTINGS {
        command.args(["--set", setting]);
    }
    // after the others, because later layers win
    command.args(more);
    // one thread, so that the order of sums does not depend on the number of cores
    command.env("OMP_NUM_THREADS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Resumes a run, or starts it.
pub(crate) fn start_or_resume(folder: &Path, more: &[&str]) -> Command {
    let mut command = train(folder, more);
    if folder.join("config.toml").exists() {
        command.arg("--resume");
    }
    command
}

pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The metrics without those that depend on the clock.
pub(crate) fn metrics(run: &Path) -> Vec<Map<String, Value>> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let Value::Object(map) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
        map.into_iter().filter(|(name, _)| !name.starts_with("time/")).collect()
    };
    text.lines().map(line).collect()
}

pub(crate) fn last_weights(run: &Path) -> Vec<u8> {
    fs::read(run.join("checkpoints/step-000006/model/model.safetensors")).unwrap()
}

#[test]
fn a_run_killed_at_any_moment_resumes_exactly() {
    let scratch = scratch("killed");
    let (whole, broken) = (scratch.join("whole"), scratch.join("broken"));
    let done = train(&whole, &["--quiet"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(metrics(&whole).len(), 7); // before the first and after each

    let mut killed = 0;
    // delays that are unrelated to the duration of any step
    for moment in 0..20u64 {
        let mut child = start_or_resume(&broken, &["--quiet"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150 + moment * 7919 % 1900));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap(); // SIGKILL
            killed += 1;
        }
        child.wait().unwrap();
    }
    assert!(killed > 0, "none of 20 was killed while running");
    let done = start_or_resume(&broken, &["--quiet"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(metrics(&broken), metrics(&whole));
    assert!(last_weights(&broken) == last_weights(&whole), "different weights after {killed} kills");
    // the thread that records may have been killed before it had written an iteration: never half of one, nothing twice
    let (all, left) = (episode_lines(&whole), episode_lines(&broken));
    assert!(left.iter().all(|line| all.contains(line)), "an episode that an uninterrupted run does not have");
    for (number, line) in left.iter().enumerate() {
        assert!(!left[..number].contains(line), "twice: {line}");
    }
    let of = |lines: &[String], file: &str| lines.iter().filter(|line| line.contains(file)).count();
    assert!(left.is_empty() || of(&left, "iteration-000006.jsonl") == of(&all, "iteration-000006.jsonl"));
    for file in (1..=6).map(|number| format!("iteration-{number:06}.jsonl")) {
        let count = of(&left, &file);
        assert!(count == 0 || count == of(&all, &file), "a part of {file}");
        assert_eq!(broken.join("episodes").join(&file).exists(), count > 0, "{file}");
    }
    let about: Value = serde_json::from_slice(&fs::read(broken.join("run.json")).unwrap()).unwrap();
    assert_eq!(about["ending"], "finished");
}

/// The lines of a run's index without those values that depend on the clock. Every episode is where its line says.
fn episode_lines(run: &Path) -> Vec<String> {
    let folder = run.join("episodes");
    let text = fs::read_to_string(folder.join("index.jsonl")).unwrap_or_default();
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let bytes = fs::read(folder.join(line["file"].as_str().unwrap())).unwrap();
        let at = line["offset"].as_u64().unwrap() as usize;
        let episode = &bytes[at..at + line["length"].as_u64().unwrap() as usize];
        assert_eq!(serde_json::from_slice::<Value>(episode).unwrap()["id"], line["id"]);
        line.as_object_mut().unwrap().remove("time");
        line.to_string()
    };
    text.lines().map(line).collect()
}

#[test]
fn a_damaged_checkpoint_is_skipped_and_a_folder_is_not_reused() {
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
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--resume"));
    let resumed = train(&run, &["--resume"]).output().unwrap();
    let output = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(resumed.status.success(), "{output}");
    assert!(output.contains("step-000006") && output.contains("damaged"), "{output}");
    assert!(last_weights(&run) == whole, "the repeated iteration gave different weights");
    let other = train(&run, &["--resume", "--set", "seed=9"]).output().unwrap();
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other.stderr).contains("`seed` = 9"));
}

/// Sends Ctrl-C once the checkpoint of the first iteration exists.
pub(crate) fn interrupt_after_the_first(mut child: Child, run: &Path) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !run.join("checkpoints/step-000001").exists() {
        assert!(Instant::now() < deadline, "no checkpoint");
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

pub(crate) fn finished(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

pub(crate) fn number(line: &Map<String, Value>, name: &str) -> f64 {
    line.get(name).and_then(Value::as_f64).unwrap_or(0.0)
}

#[test]
fn an_overlapped_run_trains_on_episodes_at_most_one_version_old_and_resumes() {
    let scratch = scratch("overlapped");
    let run = scratch.join("run");
    let overlapped = ["--quiet", "--set", "collect.mode=\"overlapped\""];
    let longer = ["--set", "iterations=16", "--set", "evaluation.every=0"];
    let child = train(&run, &overlapped).args(longer).spawn().unwrap();
    interrupt_after_the_first(child, &run);
    finished(train(&run, &overlapped).args(longer).arg("--resume"));
    let lines = metrics(&run);
    let iterations: Vec<f64> = lines.iter().map(|line| number(line, "iteration")).collect();
    assert_eq!(iterations, (1..=16).map(f64::from).collect::<Vec<_>>());
    let staleness: Vec<f64> = lines.iter().map(|line| number(line, "policy/staleness")).collect();
    assert!(staleness.iter().all(|&versions| versions <= 1.0), "{staleness:?}");
    // 0 where the update finished before collection started
    assert!(staleness.contains(&1.0), "{staleness:?}");
    // two tasks per iteration: every two iterations cover all four
    for pair in lines.chunks(2) {
        let mut tasks: Vec<&String> =
            pair.iter().flat_map(|line| line["tasks"].as_object().unwrap().keys()).collect();
        tasks.sort();
        tasks.dedup();
        assert_eq!(tasks.len(), 4, "{tasks:?}");
    }
}

/// With really older weights the ratios of an update start at the sampler's log-probabilities.
#[test]
fn an_overlapped_run_corrects_for_older_weights_or_is_refused() {
    let scratch = scratch("stale");
    let run = scratch.join("run");
    let overlapped = ["--quiet", "--set", "collect.mode=\"overlapped\"", "--set", "evaluation.every=0"];
    let more = ["tasks.count=16", "collect.tasks=8", "collect.desktops=32", "optimiser.learning_rate=0.001"];
    finished(train(&run, &overlapped).args(more.iter().flat_map(|key| ["--set", key])));
    let lines = metrics(&run);
    let learnt: Vec<_> = lines.iter().filter(|line| number(line, "update/count") > 0.0).collect();
    let moved = |line: &&&Map<String, Value>| number(line, "policy/mismatch") > 1e-4;
    assert!(learnt.iter().filter(moved).count() > 1, "no sampling weights were older");
    for line in learnt.iter().filter(moved) {
        assert!(number(line, "policy/staleness") > 0.0 && number(line, "loss/kl").abs() > 1e-7, "{line:?}");
    }
    let refused =
        train(&scratch.join("refused"), &overlapped).args(["--set", "loss.old=\"learner\""]).output();
    let refused = refused.unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(message.contains("expected a correction, `loss.old` = \"sampler\""), "{message}");
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_run_trains_through_faults_and_counts_them_all() {
    let scratch = scratch("faults");
    let run = scratch.join("run");
    let mut command = train(&run, &["--quiet"]);
    for rate in [
        "crash=0.02",
        "hang=0.002",
        "slow=0.02",
        "slow_seconds=0.001",
        "black_screen=0.02",
        "truncated_screen=0.02",
        "evaluator_error=0.05",
    ] {
        command.args(["--set", &format!("faults.{rate}")]);
    }
    for seconds in ["reset_seconds=3.0", "step_seconds=3.0", "evaluate_seconds=3.0", "back_off_seconds=0.01"]
    {
        command.args(["--set", &format!("collect.{seconds}")]);
    }
    finished(&mut command);
    let lines = metrics(&run);
    assert_eq!(lines.len(), 7);
    let sum = |wanted: &dyn Fn(&str) -> bool| -> f64 {
        let all = lines.iter().flat_map(|line| line.iter());
        all.filter(|(name, _)| wanted(name)).filter_map(|(_, value)| value.as_f64()).sum()
    };
    let injected = sum(&|name| name.starts_with("faults/") && name != "faults/slow");
    let counted = sum(&|name| name.starts_with("failures/") || name == "evaluation/lost");
    assert!(injected > 5.0, "too few faults for a test: {injected}");
    assert!((injected - counted).abs() < 0.5, "{injected} faults were injected, {counted} counted");
    assert!(sum(&|name| name == "update/count") > 0.0);
}

#[test]
fn a_kl_penalty_ties_the_policy_to_its_base_model() {
    let scratch = scratch("tied");
    let run = |name: &str, coefficient: &str| {
        let folder = scratch.join(name);
        let setting = format!("loss.kl_coefficient={coefficient}");
        let mut command = train(&folder, &["--quiet"]);
        // longer episodes and larger groups, so that there is a learning signal
        for setting in [
            setting.as_str(),
            "optimiser.learning_rate=0.001",
            "collect.max_steps=8",
            "collect.group_size=8",
            "evaluation.every=0",
        ] {
            command.args(["--set", setting]);
        }
        finished(&mut command);
        metrics(&folder).iter().map(|line| number(line, "loss/reference_kl")).collect::<Vec<f64>>()
    };
    let (loose, tight) = (run("loose", "0.000001"), run("tight", "100.0"));
    assert!(loose[0] < 1e-6, "before the first update: {loose:?}");
    let (loose, tight): (f64, f64) = (loose.iter().sum(), tight.iter().sum());
    assert!(loose > 1e-3 && tight < 0.8 * loose, "{loose} {tight}");
}

#[test]
fn every_offline_method_trains_on_stored_episodes() {
    let scratch = scratch("offline");
    let run = scratch.join("run");
    finished(&mut train(&run, &["--quiet", "--set", "collect.max_steps=8", "--set", "evaluation.every=0"]));
    assert!(
        run.join("episodes/iteration-000003.jsonl").exists()
            && run.join("episodes/iteration-000006.jsonl").exists()
    );
    for method in ["rejection", "dpo", "kto"] {
        let out = scratch.join(method);
        let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
        command.args(["offline", "--method", method, "--set", BASE, "--set", "offline.epochs=1", "--data"]);
        command.arg(&run);
        let output = finished(command.arg("--out").arg(&out));
        assert!(output.contains("epoch 1/1") && output.contains("written"), "{output}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
        command.args([
            "eval",
            "--json",
            "--samples",
            "1",
            "--set",
            "tasks.count=2",
            "--set",
            "collect.max_steps=4",
        ]);
        let output = finished(command.arg("--model").arg(out.join("model")));
        let report: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(report["tasks"].as_array().unwrap().len(), 2, "{output}");
    }
}

/// Supervised training of a tiny batch, in this folder.
fn supervised(out: &Path, updates: &str, evaluate_every: &str, held_out: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
    command.args(["sft", "--out"]).arg(out).args([
        "--letter-updates",
        "1",
        "--grounding-updates",
        "1",
        "--updates",
        updates,
    ]);
    command.args(["--screens", "4", "--episodes", "2", "--evaluate-every", evaluate_every]);
    command.args(["--evaluate-tasks", "2", "--evaluate-held-out", held_out]);
    command.env("OMP_NUM_THREADS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn supervised_training_killed_and_resumed_ends_in_the_same_model() {
    let scratch = scratch("supervised");
    let sft = |name: &str| supervised(&scratch.join(name), "5", "1", "2");
    let output = finished(&mut sft("whole"));
    assert!(output.contains("  held out ") && output.contains("  names found "), "{output}");
    let mut child = sft("broken").spawn().unwrap();
    let deadline = Instant::now() + Duration::from_mins(3);
    while !scratch.join("broken/checkpoints/step-000003").exists() {
        assert!(Instant::now() < deadline, "no checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    finished(sft("broken").arg("--resume"));
    let model = |name: &str| fs::read(scratch.join(name).join("model/model.safetensors")).unwrap();
    assert!(model("whole") == model("broken"), "different weights after a kill");
}

/// After Ctrl-C nothing is evaluated: the run is saved, has no model, and continues to the same one.
#[test]
fn supervised_training_that_is_stopped_saves_at_once_and_resumes_exactly() {
    let scratch = scratch("supervised-stopped");
    let sft = |name: &str| supervised(&scratch.join(name), "12", "100", "0");
    finished(&mut sft("whole"));
    let mut child = sft("broken").spawn().unwrap();
    let (mut stdout, mut stderr) =
        (BufReader::new(child.stdout.take().unwrap()), child.stderr.take().unwrap());
    // comes before the first update
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    assert!(first.contains(" parameters"), "{first}");
    interrupt(&child);
    assert_eq!(ended(child).code(), Some(130));
    let (mut results, mut messages) = (String::new(), String::new());
    stdout.read_to_string(&mut results).unwrap();
    stderr.read_to_string(&mut messages).unwrap();
    assert_eq!(results, "", "an evaluation or a model after the stop");
    assert!(messages.contains(" of 12 updates; --resume continues\n"), "{messages}");
    let broken = scratch.join("broken");
    assert!(broken.join("checkpoints").exists() && !broken.join("model").exists());

    let again = sft("broken").output().unwrap();
    assert_eq!(again.status.code(), Some(2), "a folder that holds a run needs --resume");
    let output = finished(sft("broken").arg("--resume"));
    assert!(output.contains(", resumed after update "), "{output}");
    let model = |name: &str| fs::read(scratch.join(name).join("model/model.safetensors")).unwrap();
    assert!(model("whole") == model("broken"), "different weights after a stop");
}

/// `models/README.md` states 0.64 on the 128 training tasks.
#[test]
fn the_shipped_model_is_as_good_as_stated() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
    let output = finished(command.args(["eval", "--json", "--samples", "2", "--set", "tasks.generated=0"]));
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["success"]["rollouts"], 256);
    let mean = report["success"]["mean"].as_f64().unwrap();
    assert!((0.55..0.73).contains(&mean), "{mean}");
    for (name, application) in report["applications"].as_object().unwrap() {
        // orders hardly ever succeed
        assert!(application["mean"].as_f64().unwrap() > 0.0 || name == "shop", "{name} is dead");
    }
}
