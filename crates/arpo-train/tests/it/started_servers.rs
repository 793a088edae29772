//! Servers that a run starts itself end with it, whatever they do.

use crate::run_folder::Temporary;
use crate::served::{config, policy};
use arpo_core::trajectory::PolicyVersion;
use arpo_train::TrainError;
use arpo_train::policy::{RolloutPolicy, WeightUpdate};
use arpo_train::run::stop::StopSwitch;
use std::time::{Duration, Instant};

#[test]
fn a_command_that_starts_no_server_is_an_error_and_a_started_one_ends_with_the_run() {
    let folder = Temporary::new("served-start");
    let start =
        |command: &str| config(&[], &["rollout.wait_seconds=600", &format!("rollout.start={command:?}")]);
    let mut policy = policy(&start("sh -c 'echo no GPU here; exit 3'"), &folder);
    let problem = policy.publish(WeightUpdate::InPlace, PolicyVersion(0)).unwrap_err().to_string();
    assert!(problem.contains("exit status: 3") && problem.contains("no GPU here"), "{problem}");
    drop(policy);
    // a server with a child of its own, neither of which ends by itself
    ends_with_the_run(&folder, "(trap \"\" TERM; sleep 1000) & echo $! >> PIDS; sleep 1000");
}

/// Its shell cannot end it any more: everything in its process group is stopped, the shell included.
#[test]
fn a_server_whose_shell_hangs_is_killed_with_everything_it_started() {
    let folder = Temporary::new("served-hangs");
    ends_with_the_run(&folder, "echo $PPID >> PIDS; kill -s STOP 0");
}

/// Starts a server with this script, which writes two process ids to PIDS, and ends the run. No process is left.
fn ends_with_the_run(folder: &Temporary, script: &str) {
    let pids = folder.run().with_extension("pids");
    let script = format!("sh -c 'echo $$ > PIDS; {script}'").replace("PIDS", &pids.display().to_string());
    let config = config(&[], &["rollout.wait_seconds=600", &format!("rollout.start={script:?}")]);
    let mut policy = policy(&config, folder);
    let stop = StopSwitch::default();
    policy.stopped_by(stop.clone());
    let watched = pids.clone();
    let stopping = std::thread::spawn(move || {
        while std::fs::read_to_string(&watched).map_or(0, |text| text.lines().count()) < 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.request();
    });
    assert!(matches!(policy.publish(WeightUpdate::InPlace, PolicyVersion(0)), Err(TrainError::Interrupted)));
    stopping.join().unwrap();
    let ending = Instant::now();
    drop(policy);
    assert!(ending.elapsed() < Duration::from_secs(15), "ended after {:?}", ending.elapsed());
    let is_running = |pid: &str| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // a zombie waits for its new parent only
        !state.is_empty() && !state.contains(") Z ")
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    for pid in std::fs::read_to_string(&pids).unwrap().lines() {
        while is_running(pid) {
            assert!(Instant::now() < deadline, "process {pid} is left");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
