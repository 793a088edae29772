//! Asking a running trainer how its workers are, and workers what their hosts have.

use crate::desktops::{Counts, LONG, TestHub, TestWorker, counting, eventually, hub, options, soon, task};
use arpo_cluster::contact::{status_at, status_of_run};
use arpo_cluster::hub::{Hub, HubOptions};
use arpo_cluster::placement::listen::Listen;
use arpo_core::action::Action;
use arpo_core::config::Config;
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_suite::{EnvironmentSource, SuiteError};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn whoever_has_the_token_is_told_what_each_desktop_does() {
    let TestHub { hub, lines } = hub(HubOptions { token: "secret".into(), ..options(2) });
    let counts = Arc::new(Counts::default());
    let _worker = TestWorker::with_token(hub.address(), 3, "secret", counting(&counts));
    hub.open().unwrap();
    let mut desktop = hub.make(1).unwrap();
    desktop.reset(&task("t"), 0, soon()).unwrap();
    let address = hub.address().to_string();
    let status = status_at(&address, "secret").unwrap();
    let [worker] = &status.workers[..] else { panic!("{status:?}") };
    assert_eq!((status.wanted, worker.capacity, worker.process), (2, 3, std::process::id()));
    let [shown] = &worker.desktops[..] else { panic!("{status:?}") };
    assert_eq!((shown.slot, shown.task.as_deref(), &shown.call), (1, Some("t"), &None));
    assert!(status.hosts[0].received > 0 && status.hosts[0].failures == 0, "{status:?}");
    // by a name, which may have an address first at which nobody listens
    let named = format!("localhost:{}", hub.address().port());
    assert_eq!(status_at(&named, "secret").unwrap().wanted, 2);
    // a call that goes on
    counts.held.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| desktop.step(&Action::Wait {}, soon()).unwrap());
        eventually("the step is shown", || {
            let status = status_at(&address, "secret").unwrap();
            status.workers[0].desktops[0].call.as_ref().is_some_and(|(call, _)| call == "step")
        });
        counts.held.store(false, Ordering::Relaxed);
    });
    // without the token nothing is told
    for token in ["", "another"] {
        let problem = status_at(&address, token).unwrap_err();
        assert!(problem.contains("another token: expected"), "{problem}");
    }
    assert!(lines.lock().unwrap().iter().all(|line| !line.contains("secret")));
    drop(desktop);
    hub.close().unwrap();
    let problem = status_at(&address, "secret").unwrap_err();
    assert!(problem.contains("expected the address of a run"), "{problem}");
}

#[test]
fn a_run_s_folder_says_where_to_ask_as_long_as_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let options = HubOptions { token: "secret".into(), ..options(1) };
    let hub = Hub::start(&Config::default(), options, Box::new(Listen), Box::new(|_: &str| {})).unwrap();
    let hub = hub.found_in(Some(folder.path().join("run")));
    let _worker = TestWorker::with_token(hub.address(), 1, "secret", counting(&Arc::default()));
    hub.open().unwrap();
    let run = folder.path().join("run");
    assert_eq!(status_of_run(&run).unwrap().workers.len(), 1);
    let rights = std::fs::metadata(run.join("cluster.json")).unwrap().permissions().mode();
    assert_eq!(rights & 0o777, 0o600, "it has the token");
    hub.close().unwrap();
    let problem = status_of_run(&run).unwrap_err();
    assert!(problem.contains("cluster.json") && problem.contains("expected"), "{problem}");
}

/// A source that cannot be opened.
struct WithoutDocker;

impl EnvironmentSource for WithoutDocker {
    fn open(&self) -> Result<(), SuiteError> {
        Err(SuiteError::Service("no Docker engine".into()))
    }

    fn make(&self, _: usize) -> Result<Box<dyn Environment>, EnvironmentError> {
        Err(EnvironmentError::NoEpisode)
    }
}

#[test]
fn every_host_says_what_it_lacks_before_a_run() {
    let TestHub { hub, .. } = hub(options(4));
    let _well = TestWorker::start(hub.address(), 1, counting(&Arc::default()));
    let _badly = TestWorker::start(hub.address(), 3, Arc::new(WithoutDocker));
    hub.open().unwrap();
    let mut found = hub.inspect(LONG);
    found.sort_by_key(|(_, desktops, _)| *desktops);
    let problems: Vec<_> =
        found.iter().map(|(_, _, inspected)| inspected.as_ref().unwrap().problem.clone()).collect();
    assert_eq!(problems, [None, Some("no Docker engine".to_owned())]);
    assert!(found.iter().all(|(_, _, inspected)| inspected.as_ref().unwrap().processors > 0));
    assert!(hub.status().workers.iter().all(|worker| worker.desktops.is_empty()), "nothing stays behind");
}
