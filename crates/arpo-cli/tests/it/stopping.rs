//! Commands that are stopped with Ctrl-C and resumed: nothing is lost, and the result is the same.

use crate::training::{ITERATIONS, finished, last_weights, metrics, scratch, start_or_resume, train};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// More than a stop takes on a busy machine.
const DEADLINE: Duration = Duration::from_mins(1);

pub(crate) fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Waits for a process that was asked to stop.
pub(crate) fn ended(mut child: Child) -> std::process::ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if began.elapsed() > DEADLINE {
            child.kill().unwrap();
            panic!("still running {DEADLINE:?} after Ctrl-C");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends Ctrl-C once a condition holds.
fn interrupt_when(child: Child, condition: impl Fn() -> bool) -> std::process::ExitStatus {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !condition() {
        assert!(Instant::now() < deadline, "the condition never held");
        std::thread::sleep(Duration::from_millis(2));
    }
    interrupt(&child);
    ended(child)
}

/// Updates done in the interrupted iteration, if its episodes were all collected.
fn updates_done(run: &Path) -> Option<u64> {
    let newest = fs::read_dir(run.join("checkpoints")).ok()?.map(|entry| entry.unwrap().path()).max()?;
    let state: Value = serde_json::from_slice(&fs::read(newest.join("state.json")).unwrap()).unwrap();
    state.get("unfinished")?["updates"]["done"].as_u64()
}

/// Stops and resumes a run at many moments, each at most `longest` after the model is loaded, until it is done or has been
/// stopped 16 times. Returns whether a stop came between two updates.
fn stopped_until_done(run: &Path, settings: &[&str], longest: Duration) -> bool {
    let mut inside = false;
    for moment in 0..16_u32 {
        let mut child = start_or_resume(run, settings).spawn().unwrap();
        // its first line shows that the model is loaded; from then on any moment will do
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut String::new()).unwrap();
        std::thread::sleep(longest * (moment * 7919 % 900 + 20) / 920);
        interrupt(&child);
        match ended(child).code() {
            Some(130) => inside |= updates_done(run).is_some_and(|done| done > 0),
            code => {
                assert_eq!(code, Some(0), "neither stopped nor done");
                break;
            }
        }
    }
    inside
}

#[test]
fn a_run_that_is_stopped_repeatedly_resumes_exactly() {
    let scratch = scratch("stopped");
    let (whole, broken) = (scratch.join("whole"), scratch.join("broken"));
    // many updates of several micro-batches, so that most stops come during an update
    let many = [
        "--set",
        "optimiser.trajectories_per_update=4",
        "--set",
        "optimiser.epochs=4",
        "--set",
        "model.micro_batch_tokens=64",
        // only a stop writes a checkpoint
        "--set",
        "checkpoints.every=100",
    ];
    let began = Instant::now();
    finished(&mut train(&whole, &many));
    // a stop within the time of an iteration, so that a machine of any speed makes progress between two stops
    let iteration = began.elapsed() / ITERATIONS;
    let inside = (0..5).any(|_| {
        let _ = fs::remove_dir_all(&broken);
        stopped_until_done(&broken, &many, iteration)
    });
    assert!(inside, "no stop came between two updates of an iteration");
    finished(&mut start_or_resume(&broken, &many));
    assert_eq!(metrics(&broken), metrics(&whole));
    assert!(last_weights(&broken) == last_weights(&whole), "other weights");
    let table = |run: &Path| fs::read_to_string(run.join("evaluations/table.txt")).unwrap();
    assert_eq!(table(&broken), table(&whole));
}

fn resumed(run: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
    command.args(["train", "--quiet", "--resume", "--out"]).arg(run).args(more);
    command.output().unwrap()
}

#[test]
fn a_resumed_run_keeps_its_configuration_unless_told_otherwise() {
    let run = scratch("changed").join("run");
    finished(&mut train(&run, &["--quiet", "--set", "iterations=1", "--set", "evaluation.every=0"]));
    let arpo = |more: &[&str]| resumed(&run, more);
    // without other options the configuration comes from the folder
    assert!(arpo(&[]).status.success());
    let changed = ["--set", "optimiser.learning_rate=1e-5", "--set", "seed=3", "--set", "iterations=2"];
    let refused = arpo(&changed);
    assert_eq!(refused.status.code(), Some(2));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(
        stderr.contains("`optimiser.learning_rate` = 0.00001, was 0.0002; `seed` = 3, was 0"),
        "{stderr}"
    );
    assert!(stderr.contains("--change-run") && !stderr.contains("iterations"), "{stderr}");
    assert_eq!(metrics(&run).len(), 1);
    assert!(arpo(&[&changed[..], &["--change-run"]].concat()).status.success());
    assert_eq!(metrics(&run).len(), 2);
    let changes = fs::read_to_string(run.join("changes.jsonl")).unwrap();
    let keys: Vec<Value> = changes.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(keys.len(), 3, "{changes}");
    assert_eq!(keys[2], serde_json::json!({"iteration": 1, "key": "seed", "was": "0", "is": "3"}));
    let notes = arpo(&["--set", "iterations=2", "--set", "collect.desktops=4"]);
    let notes = String::from_utf8(notes.stderr).unwrap();
    assert!(notes.contains("`collect.desktops` = 4, was 8"), "{notes}");
    // a run from before a key existed has the key's default
    let config = fs::read_to_string(run.join("config.toml")).unwrap();
    fs::write(run.join("config.toml"), config.replace("retry_unparsable = false\n", "")).unwrap();
    // the length and the number of desktops may change freely
    assert!(arpo(&["--set", "iterations=3", "--set", "collect.desktops=2"]).status.success());
    assert_eq!(metrics(&run).len(), 3);
}

#[test]
fn a_change_that_does_not_fit_into_memory_is_not_stored() {
    let run = scratch("does-not-fit").join("run");
    finished(&mut train(&run, &["--quiet", "--set", "iterations=1", "--set", "evaluation.every=0"]));
    let stored = || fs::read_to_string(run.join("config.toml")).unwrap();
    let before = stored();
    let refused = resumed(&run, &["--set", "iterations=2", "--set", "model.memory_gib=0.001"]);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("`model.memory_gib` = 0.001, was 0.0"), "{stderr}");
    assert!(stderr.contains("GiB of 0.0: weights"), "{stderr}");
    assert_eq!(stored(), before);
    assert!(!run.join("changes.jsonl").exists());
    let plain = resumed(&run, &[]);
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
    let longer = resumed(&run, &["--set", "iterations=2"]);
    assert!(longer.status.success(), "{}", String::from_utf8_lossy(&longer.stderr));
    assert_eq!(metrics(&run).len(), 2);
    assert!(stored() != before && run.join("changes.jsonl").exists(), "what works is stored");
}

#[test]
fn errors_are_found_before_a_folder_is_created() {
    let scratch = scratch("mistakes");
    fs::create_dir(scratch.join("model")).unwrap();
    fs::write(scratch.join("model/config.json"), "{\"model_type\": \"llama\"}").unwrap();
    fs::write(scratch.join("list.txt"), "no-such-task\n").unwrap();
    let model = format!("model.base={}", scratch.join("model").display());
    let list = format!("tasks.list={}", scratch.join("list.txt").display());
    for (set, word) in [
        ("model.base=nowhere", "\"nowhere\" does not exist"),
        (model.as_str(), "expected \"qwen2_5_vl\""),
        (list.as_str(), "\"no-such-task\" is not one of the training tasks"),
        ("tasks.files=nowhere.json", "nowhere.json"),
        ("screen.width=3", "`[screen]`"),
    ] {
        let run = scratch.join("run");
        for command in ["train", "select", "rollout"] {
            let done = Command::new(env!("CARGO_BIN_EXE_arpo"))
                .args([command, "--set", set, "--out"])
                .arg(&run)
                .output()
                .unwrap();
            let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(2), "{command} {set}: {stderr}");
            assert!(stderr.contains(word) && stderr.lines().count() == 1, "{command} {set}: {stderr}");
            assert!(!run.exists(), "{command} {set}");
        }
    }
}

fn arpo(arguments: &[&str], out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
    command.args(arguments).arg("--out").arg(out);
    for set in
        ["tasks.list=quick", "tasks.count=24", "collect.tasks=2", "collect.desktops=2", "collect.max_steps=4"]
    {
        command.args(["--set", set]);
    }
    command.env("OMP_NUM_THREADS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn an_evaluation_resumes_with_the_remaining_tasks() {
    let scratch = scratch("eval-stopped");
    let (whole, broken) = (scratch.join("whole"), scratch.join("broken"));
    let eval = ["eval", "--samples", "3", "--json"];
    finished(&mut arpo(&eval, &whole));
    let lines = || fs::read_to_string(broken.join("metrics.jsonl")).map_or(0, |text| text.lines().count());
    let child = arpo(&eval, &broken).spawn().unwrap();
    assert_eq!(interrupt_when(child, || lines() > 0).code(), Some(130));
    let before = lines();
    assert!((1..24).contains(&before), "{before}");
    let other = arpo(&["eval", "--samples", "4", "--resume"], &broken).output().unwrap();
    assert_eq!(other.status.code(), Some(2));
    let resumed: Value = serde_json::from_str(&finished(arpo(&eval, &broken).arg("--resume"))).unwrap();
    assert_eq!(resumed["collecting"]["episodes"], 3 * (24 - before));
    let scores = |report: &Value| -> Vec<(String, Vec<String>)> {
        let task = |task: &Value| {
            let mut scores: Vec<String> =
                task["scores"].as_array().unwrap().iter().map(Value::to_string).collect();
            scores.sort();
            (task["task"].as_str().unwrap().to_owned(), scores)
        };
        report["tasks"].as_array().unwrap().iter().map(task).collect()
    };
    let report: Value = serde_json::from_slice(&fs::read(whole.join("report.json")).unwrap()).unwrap();
    assert_eq!(scores(&resumed), scores(&report));
}

#[test]
fn rollouts_and_offline_training_resume() {
    let scratch = scratch("offline-stopped");
    let (whole, broken) = (scratch.join("whole"), scratch.join("broken"));
    let rollout = ["rollout", "--samples", "3"];
    finished(&mut arpo(&rollout, &whole));
    let first = broken.join("episodes/iteration-000000.jsonl");
    let child = arpo(&rollout, &broken).spawn().unwrap();
    assert_eq!(interrupt_when(child, || first.exists()).code(), Some(130));
    let last = "episodes/iteration-000011.jsonl";
    assert!(!broken.join(last).exists());
    let other = arpo(&["rollout", "--samples", "4", "--resume"], &broken).output().unwrap();
    assert_eq!(other.status.code(), Some(2));
    // the number of rollouts is stored in the folder
    finished(arpo(&["rollout"], &broken).arg("--resume"));
    let text = |run: &Path| fs::read_to_string(run.join(last)).unwrap();
    assert_eq!(text(&broken), text(&whole));

    let (one, two) = (scratch.join("one"), scratch.join("two"));
    let data = whole.display().to_string();
    let kto = ["offline", "--method", "kto", "--data", &data, "--set", "offline.epochs=5"];
    finished(&mut arpo(&kto, &one));
    let child = arpo(&kto, &two).spawn().unwrap();
    assert_eq!(interrupt_when(child, || two.join("checkpoints/step-000001").exists()).code(), Some(130));
    assert!(!two.join("model").exists());
    finished(arpo(&kto, &two).arg("--resume"));
    let model = |run: &Path| fs::read(run.join("model/model.safetensors")).unwrap();
    assert!(model(&one) == model(&two), "other weights");

    let three = scratch.join("three");
    let ranks = arpo(&[&kto[..], &["--set", "learn.ranks=2"]].concat(), &three).output().unwrap();
    let stderr = String::from_utf8_lossy(&ranks.stderr).into_owned();
    let expected = "error: `learn.ranks` = 2: expected 1, because offline training runs in one process\n";
    assert_eq!((ranks.status.code(), stderr.as_str()), (Some(2), expected));
    assert!(!three.exists());
}

#[test]
fn a_stopped_rollout_keeps_the_episodes_that_had_ended() {
    let scratch = scratch("rollout-stopped");
    let (whole, broken) = (scratch.join("whole"), scratch.join("broken"));
    let in_one_chunk = |more: &[&str], out: &Path| {
        let mut command = arpo(&["rollout"], out);
        command.args(["--set", "collect.tasks=24"]).args(more);
        command
    };
    finished(&mut in_one_chunk(&["--samples", "3"], &whole));
    let mut child = in_one_chunk(&["--samples", "3"], &broken).spawn().unwrap();
    // a line for every tenth of the 72 episodes
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    while !stderr.next().unwrap().unwrap().contains(" episodes, ") {}
    interrupt(&child);
    assert_eq!(ended(child).code(), Some(130));
    let lines = |run: &Path, file: &str| -> Vec<String> {
        let text = fs::read_to_string(run.join("episodes").join(file)).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let (file, unfinished) = ("iteration-000000.jsonl", "iteration-000001.jsonl");
    let kept = lines(&broken, unfinished);
    assert!((8..72).contains(&kept.len()), "{}", kept.len());

    finished(&mut in_one_chunk(&["--resume"], &broken));
    let all = lines(&broken, file);
    assert!(kept.iter().all(|line| all.contains(line)), "an episode that had ended was played again");
    assert!(!broken.join("episodes").join(unfinished).exists());
    let ids = |lines: &[String]| -> Vec<Value> {
        let id = |line: &String| serde_json::from_str::<Value>(line).unwrap()["id"].clone();
        lines.iter().map(id).collect()
    };
    assert_eq!(ids(&all), ids(&lines(&whole, file)), "the same episodes in the same order");
    let indexed = lines(&broken, "index.jsonl");
    assert_eq!(ids(&indexed), ids(&all), "the index names every episode once, in its last file");
}
