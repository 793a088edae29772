//! `arpo train --cluster`: desktops in worker processes.

use crate::eventually;
use crate::training::{last_weights, metrics, scratch, train};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The program for workers, which is built beside this one; by itself `cargo nextest -p arpo-cli` does not build it.
fn build_worker() {
    let built = Path::new(env!("CARGO_BIN_EXE_arpo")).with_file_name("arpo-worker");
    if !built.exists() {
        let arguments = ["build", "--release", "--locked", "--quiet", "--workspace", "--bin", "arpo-worker"];
        assert!(Command::new(env!("CARGO")).args(arguments).status().unwrap().success());
    }
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The children of a process, by their names.
fn children(process: u32) -> Vec<(u32, String)> {
    let stat = |entry: fs::DirEntry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (before, after) = stat.rsplit_once(')')?;
        let parent: u32 = after.split_whitespace().nth(1)?.parse().ok()?;
        (parent == process).then(|| (number, before.split_once('(').map_or("", |(_, name)| name).to_owned()))
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(stat).collect()
}

#[test]
fn a_run_on_workers_is_the_same_to_the_bit() {
    build_worker();
    let scratch = scratch("cluster");
    let (here, workers) = (scratch.join("here"), scratch.join("workers"));
    succeeded(&train(&here, &["--quiet"]).output().unwrap());
    succeeded(&train(&workers, &["--quiet", "--cluster", "local:4"]).output().unwrap());
    let ours = |run: &Path| {
        let mut lines = metrics(run);
        for line in &mut lines {
            line.retain(|name, _| !name.starts_with("cluster/"));
        }
        lines
    };
    assert_eq!(ours(&workers), ours(&here));
    assert!(last_weights(&workers) == last_weights(&here));
    // screens that came as a PNG are stored as they came, and that is as they would have been written
    let stored = |run: &Path| {
        let mut files: Vec<(String, Vec<u8>)> = vec![];
        for folder in fs::read_dir(run.join("screens")).unwrap().flatten() {
            for file in fs::read_dir(folder.path()).unwrap().flatten() {
                files.push((file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()));
            }
        }
        files.sort();
        files
    };
    assert!(!stored(&here).is_empty() && stored(&workers) == stored(&here));
}

/// A killed trainer cannot end its workers: they notice.
#[test]
fn workers_end_with_a_trainer_that_is_killed() {
    build_worker();
    let run = scratch("cluster-killed").join("run");
    let mut trainer = train(&run, &["--quiet", "--cluster", "local:2"]).spawn().unwrap();
    let id = trainer.id();
    let workers = || children(id).into_iter().filter(|(_, name)| name == "arpo-worker").collect::<Vec<_>>();
    eventually("two workers", || workers().len() == 2);
    eventually("an iteration", || fs::read(run.join("metrics.jsonl")).is_ok_and(|lines| !lines.is_empty()));
    let before = workers();
    trainer.kill().unwrap();
    trainer.wait().unwrap();
    let alive = |(number, name): &(u32, String)| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        stat.contains(&format!("({name})")) && !stat.contains(") Z ")
    };
    eventually("no worker", || !before.iter().any(alive));
}

#[test]
fn a_wrong_placement_is_an_error_of_one_line() {
    let run = scratch("cluster-wrong").join("run");
    for (workers, expected) in [("local:0", "expected \"local:4\""), ("ray://head", "expected \"local:4\"")] {
        let output = train(&run, &["--cluster", workers]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.contains("`cluster.workers`") && text.contains(expected), "{text}");
    }
    let listens = ["--cluster", "listen", "--set", "cluster.listen=0.0.0.0:0"];
    let output = train(&run, &listens).env_remove("ARPO_CLUSTER_TOKEN").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("expected ARPO_CLUSTER_TOKEN"), "{text}");
    assert!(!run.exists(), "found before a folder was created");
}

/// While it runs, a trainer says how its workers are; what those say is in the run's folder.
#[test]
fn a_running_trainer_shows_its_workers_and_keeps_their_logs() {
    build_worker();
    let run = scratch("cluster-status").join("run");
    let longer = ["--quiet", "--cluster", "local:2", "--set", "iterations=1000"];
    let mut trainer = train(&run, &longer).spawn().unwrap();
    eventually("an iteration", || {
        let lines = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
        lines.lines().any(|line| line.contains("\"collect/episodes\"") && line.ends_with('}'))
    });
    let status =
        Command::new(env!("CARGO_BIN_EXE_arpo")).args(["cluster", "status"]).arg(&run).output().unwrap();
    trainer.kill().unwrap();
    trainer.wait().unwrap();
    succeeded(&status);
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(text.contains(" on 2 workers ") && text.matches("  worker ").count() == 2, "{text}");
    for number in 0..2 {
        let log = fs::read_to_string(run.join(format!("workers/worker-{number}.log"))).unwrap();
        assert!(log.contains("connected to 127.0.0.1:"), "{log}");
    }
    // the last line may have been cut off
    let lines = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let line = lines.lines().find(|line| line.contains("\"collect/episodes\"")).unwrap();
    let line: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
    let name =
        |end: &str| line.keys().find(|name| name.starts_with("cluster/") && name.ends_with(end)).cloned();
    let utilisation = line[&name("/utilisation").unwrap()].as_f64().unwrap();
    assert!((0.0..=1.01).contains(&utilisation), "{utilisation}");
    assert_eq!(line[&name("/failures").unwrap()], 0);
    // nobody answers any more
    let status =
        Command::new(env!("CARGO_BIN_EXE_arpo")).args(["cluster", "status"]).arg(&run).output().unwrap();
    let text = String::from_utf8(status.stderr).unwrap();
    assert_eq!((status.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("expected the address of a run"), "{text}");
}

#[test]
fn doctor_asks_every_worker() {
    build_worker();
    let doctor = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
        let output = command.args(["doctor", "--json", "--cluster"]).args(arguments).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let of_cluster = |finding: &&serde_json::Value| finding["name"] == "cluster";
        let findings = report["findings"].as_array().unwrap();
        (output.status.success(), findings.iter().filter(of_cluster).cloned().collect::<Vec<_>>())
    };
    let (well, findings) = doctor(&["local:2"]);
    assert!(well && findings.len() == 2, "{findings:?}");
    assert!(findings.iter().all(|finding| finding["status"] == "usable"), "{findings:?}");
    let (well, findings) = doctor(&["ray://127.0.0.1:1"]);
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert!(!well && finding["detail"].as_str().unwrap().contains("does not answer"), "{findings:?}");
}
