//! Workers as processes: started, killed, started again, ended with the trainer.

use crate::desktops::{eventually, options, soon};
use arpo_cluster::hub::{Hub, HubOptions};
use arpo_cluster::placement::local::Local;
use arpo_core::action::Action;
use arpo_core::config::Config;
use arpo_env::tasks::{Split, Suite};
use arpo_suite::EnvironmentSource;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_arpo-worker");

/// A hub with worker processes.
fn local(workers: usize, desktops: usize) -> Hub {
    let local = Local {
        workers,
        desktops,
        program: PathBuf::from(PROGRAM),
        token: "secret".into(),
        logs: None,
        arguments: vec![],
    };
    let options = HubOptions { token: "secret".into(), ..options(workers * desktops) };
    let log = Box::new(|_: &str| {});
    Hub::start(&Config::default(), options, Box::new(local), log).unwrap()
}

/// The worker processes that dial an address.
fn processes(address: &str) -> BTreeSet<u32> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let dials = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words.first().is_some_and(|program| program.ends_with(b"arpo-worker"))
            && words.contains(&address.as_bytes())
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(number).filter(dials).collect()
}

fn kill(process: u32) {
    let killed = Command::new("kill").args(["-9", &process.to_string()]).status().unwrap();
    assert!(killed.success());
}

#[test]
fn a_killed_process_breaks_its_desktops_and_is_started_again() {
    let hub = local(2, 1);
    hub.open().unwrap();
    let address = hub.address().to_string();
    let task = &Suite::Pocket.tasks(Split::Train)[0];
    let before = processes(&address);
    assert_eq!(before.len(), 2);
    let mut desktops: Vec<_> = (0..2).map(|slot| hub.make(slot).unwrap()).collect();
    for desktop in &mut desktops {
        desktop.reset(task, 1, soon()).unwrap();
    }
    kill(*before.first().unwrap());
    // one of them is broken, long before the grace time has passed
    eventually("it is noticed", || hub.lost_workers() == 1);
    let broken: Vec<bool> =
        desktops.iter_mut().map(|desktop| desktop.step(&Action::Wait {}, soon()).is_err()).collect();
    assert_eq!(broken.iter().filter(|broken| **broken).count(), 1, "{broken:?}");
    let slot = broken.iter().position(|broken| *broken).unwrap();
    desktops[slot] = hub.make(slot).unwrap();
    desktops[slot].reset(task, 1, soon()).unwrap();
    let after = processes(&address);
    assert!(after.len() == 2 && after != before, "{after:?}");
    drop(desktops);
    hub.close().unwrap();
    assert_eq!(processes(&address), BTreeSet::new());
}

#[test]
fn a_program_that_always_fails_is_an_error_of_one_line() {
    let local = Local {
        workers: 1,
        desktops: 1,
        program: "/bin/false".into(),
        token: "secret".into(),
        logs: None,
        arguments: vec![],
    };
    let options = HubOptions { token: "secret".into(), ..options(1) };
    let log = Box::new(|_: &str| {});
    let hub = Hub::start(&Config::default(), options, Box::new(local), log).unwrap();
    let problem = hub.open().unwrap_err().to_string();
    assert!(problem.contains("/bin/false ends as soon as it is started"), "{problem}");
    hub.close().unwrap();
}

/// What a killed trainer leaves is a closed pipe and a closed connection.
#[test]
fn a_worker_ends_with_the_process_that_started_it() {
    let start = || {
        Command::new(PROGRAM)
            .args(["--connect", "127.0.0.1:1", "--desktops", "1", "--until-input-ends"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut child = start();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(child.try_wait().unwrap(), None, "it waits for its trainer");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    // a signal ends it, too
    let mut child = start();
    let input = child.stdin.take();
    std::thread::sleep(Duration::from_millis(100));
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    child.wait().unwrap();
    drop(input);
}

#[test]
fn a_wrong_option_is_an_error_that_says_what_is_right() {
    let output = Command::new(PROGRAM).args(["--connect", "127.0.0.1:1", "--grace=-1"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("--grace") && text.contains("expected a number of seconds"), "{text}");
}
