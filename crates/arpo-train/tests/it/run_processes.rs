//! Tests with several processes: a lock that ends with its holder, checkpoints that survive a kill at any moment, and
//! repeated Ctrl-C.
//!
//! The tests start this program again with one of the ignored tests, which contain the code of the other process.

use crate::run_folder::Temporary;
use arpo_train::run::checkpoints::{NewCheckpoint, best_step};
use arpo_train::run::metrics;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::{RunError, RunFolder, Start};
use image::RgbImage;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Passes the folder to the other process.
const FOLDER: &str = "ARPO_TEST_RUN_FOLDER";

/// The longest wait.
const DEADLINE: Duration = Duration::from_mins(1);

/// Another process, killed at the end of the test if it still runs.
struct Other {
    child: Child,
    output: BufReader<PipeReader>,
}

impl Other {
    fn start(test: &str, folder: &Path) -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder)
            .stdout(writer.try_clone().unwrap())
            .stderr(writer)
            .spawn()
            .unwrap();
        Self { child, output: BufReader::new(reader) }
    }

    /// Waits until it prints a word; the process has a deadline of its own.
    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "ended without printing {word}");
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder_of_other() -> PathBuf {
    std::env::var_os(FOLDER).expect("started by another test").into()
}

#[test]
#[ignore = "the other process of a test"]
fn holds_a_folder() {
    let _folder = RunFolder::start(&folder_of_other(), Start::New).unwrap();
    println!("holding");
    std::thread::sleep(DEADLINE);
}

#[test]
fn the_lock_ends_with_a_killed_process() {
    let temporary = Temporary::new("killed");
    let mut other = Other::start("run_processes::holds_a_folder", &temporary.run());
    other.wait_for("holding");
    let refused = RunFolder::start(&temporary.run(), Start::New).unwrap_err();
    assert!(matches!(&refused, RunError::InUse { process, .. } if *process == other.child.id().to_string()));
    assert!(refused.to_string().contains(&temporary.run().display().to_string()));
    other.signal("-KILL");
    assert_eq!(other.exit_code(), None);
    RunFolder::start(&temporary.run(), Start::New).unwrap();
}

/// Resumes a run, or starts it anew if it was killed before its first file.
fn resume(folder: &Path) -> RunFolder {
    let begun = folder.join("config.toml").exists();
    RunFolder::start(folder, if begun { Start::Resume } else { Start::New }).unwrap()
}

/// Iterations done, and the position of the metrics.
fn point_of(folder: &RunFolder) -> (u64, u64) {
    let latest = folder.resume_point().unwrap();
    assert!(latest.skipped.is_empty(), "{:?}", latest.skipped);
    latest.checkpoint.map_or((0, 0), |found| {
        let position = fs::read_to_string(found.path.join("state.json")).unwrap();
        (found.step, position.parse().unwrap())
    })
}

#[test]
#[ignore = "the other process of a test"]
fn saves_until_killed() {
    let folder = resume(&folder_of_other());
    if folder.config().unwrap().is_none() {
        folder.write_config("seed = 1\n").unwrap();
    }
    let (done, position) = point_of(&folder);
    let mut log = folder.metrics_at(position).unwrap();
    for step in done + 1..done + 10_000 {
        log.append(&json!({"iteration": step})).unwrap();
        // each refers to three screenshots, two of which the previous one also refers to
        let screens: BTreeSet<String> = (step..step + 3).map(|number| format!("{number:08}")).collect();
        for digest in &screens {
            folder.screens().put(digest, &RgbImage::new(8, 8)).unwrap();
        }
        let new = NewCheckpoint { step, best: step.is_multiple_of(3), screens: &screens, keep: 2 };
        folder
            .save_checkpoint(new, |draft| {
                fs::create_dir(draft.join("model")).unwrap();
                fs::write(draft.join("model/weights"), vec![step as u8; 100_000]).unwrap();
                fs::write(draft.join("state.json"), log.position().to_string()).unwrap();
                Ok::<(), RunError>(())
            })
            .unwrap();
        println!("saved {step}");
    }
}

#[test]
fn a_run_killed_at_any_moment_resumes_from_its_last_checkpoint() {
    let temporary = Temporary::new("any-moment");
    let mut before = 0;
    for round in 0..12 {
        let mut other = Other::start("run_processes::saves_until_killed", &temporary.run());
        if round > 0 {
            other.wait_for("saved");
        }
        // before, during and after a write, however fast the machine is
        std::thread::sleep(Duration::from_micros(1700 * round * round));
        other.signal("-KILL");
        other.exit_code();
        let mut rest = String::new();
        other.output.read_to_string(&mut rest).unwrap();
        let printed = rest.lines().rev().find_map(|line| line.strip_prefix("saved ")?.parse().ok());

        let folder = resume(&temporary.run());
        let (step, position) = point_of(&folder);
        assert!(step >= printed.unwrap_or(0) && step >= before, "{step} after {printed:?} and {before}");
        if step > 0 {
            drop(folder.metrics_at(position).unwrap());
            let lines = metrics::read(&folder.metrics_file()).unwrap();
            let iterations: Vec<u64> = lines.iter().map(|line| line["iteration"].as_u64().unwrap()).collect();
            assert!(iterations.into_iter().eq(1..=step));
            let best = best_step(&folder.best());
            assert_eq!(best, Some(step - step % 3).filter(|&best| best > 0));
        }
        before = step;
    }
    assert!(before > 10, "{before} checkpoints");
}

#[test]
#[ignore = "the other process of a test"]
fn works_until_stopped() {
    let switch = StopSwitch::listening().unwrap();
    switch.at_stake("the work of a test");
    println!("working");
    let started = Instant::now();
    while !switch.requested() && started.elapsed() < DEADLINE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(switch.requested());
    println!("saving");
    if folder_of_other().ends_with("slow") {
        std::thread::sleep(DEADLINE);
    }
}

#[test]
fn the_first_signal_lets_the_run_end_by_itself() {
    for signal in ["-INT", "-TERM"] {
        let mut other = Other::start("run_processes::works_until_stopped", "quick".as_ref());
        other.wait_for("working");
        other.signal(signal);
        other.wait_for("saving");
        assert_eq!(other.exit_code(), Some(0));
    }
}

#[test]
fn the_second_signal_prints_what_would_be_lost_and_the_third_ends_at_once() {
    let mut other = Other::start("run_processes::works_until_stopped", "slow".as_ref());
    other.wait_for("working");
    other.signal("-INT");
    other.wait_for("saving");
    other.signal("-INT");
    other.wait_for("if it ended now, the work of a test would be lost");
    other.signal("-INT");
    assert_eq!(other.exit_code(), Some(130));
}
