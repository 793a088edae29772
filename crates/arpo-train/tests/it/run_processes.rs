//! What only processes show: a lock that goes with its holder, and Ctrl-C once and twice.
//!
//! The tests start this program again with one of the ignored tests, which do what the other process does.

use crate::run_folder::Temporary;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::{RunError, RunFolder, Start};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Tells the other process what to work on.
const FOLDER: &str = "ARPO_TEST_RUN_FOLDER";

/// No wait here is longer.
const DEADLINE: Duration = Duration::from_mins(1);

/// Another process, ended at the latest with the test.
struct Other {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Other {
    fn start(test: &str, folder: &std::path::Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Waits until it says something; the process has a deadline of its own.
    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "ended without a word of {word}");
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
fn the_lock_goes_with_a_killed_process() {
    let temporary = Temporary::new("killed");
    let mut other = Other::start("run_processes::holds_a_folder", &temporary.run());
    other.wait_for("holding");
    let refused = RunFolder::start(&temporary.run(), Start::Resume).unwrap_err();
    assert!(matches!(&refused, RunError::InUse { process, .. } if *process == other.child.id().to_string()));
    assert!(refused.to_string().contains(&temporary.run().display().to_string()));
    other.signal("-KILL");
    assert_eq!(other.exit_code(), None);
    RunFolder::start(&temporary.run(), Start::Resume).unwrap();
}

#[test]
#[ignore = "the other process of a test"]
fn works_until_asked_to_stop() {
    let switch = StopSwitch::listening().unwrap();
    println!("working");
    let started = Instant::now();
    while !switch.asked() && started.elapsed() < DEADLINE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(switch.asked());
    println!("saving");
    if folder_of_other().ends_with("slow") {
        std::thread::sleep(DEADLINE);
    }
}

#[test]
fn the_first_request_lets_the_run_end_by_itself() {
    for signal in ["-INT", "-TERM"] {
        let mut other = Other::start("run_processes::works_until_asked_to_stop", "quick".as_ref());
        other.wait_for("working");
        other.signal(signal);
        other.wait_for("saving");
        assert_eq!(other.exit_code(), Some(0));
    }
}

#[test]
fn the_second_request_ends_it_at_once() {
    let mut other = Other::start("run_processes::works_until_asked_to_stop", "slow".as_ref());
    other.wait_for("working");
    other.signal("-INT");
    other.wait_for("saving");
    other.signal("-INT");
    assert_eq!(other.exit_code(), Some(130));
}
