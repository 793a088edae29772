//! Desktops on workers: they behave like those here, survive a cut connection, and are replaced when their worker is lost.

use crate::desktops::{Counts, Proxy, TestHub, TestWorker, counting, eventually, hub, options, soon, task};
use arpo_cluster::hub::HubOptions;
use arpo_core::action::{Action, ModelBox};
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_suite::EnvironmentSource;
use image::Rgb;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn click() -> Action {
    Action::Click { start_box: ModelBox::point(1.0e308, -0.1) }
}

fn finished() -> Action {
    Action::Finished { content: None }
}

fn count(number: &std::sync::atomic::AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

#[test]
fn a_desktop_on_a_worker_is_like_one_here() {
    let counts = Arc::<Counts>::default();
    let TestHub { hub, .. } = hub(options(2));
    let worker = TestWorker::start(hub.address(), 2, counting(&counts));
    hub.open().unwrap();
    assert_eq!((hub.capacity(), hub.max_desktops()), ((1, 2), Some(2)));
    let mut desktop = hub.make(0).unwrap();
    assert_eq!(desktop.step(&click(), soon()), Err(EnvironmentError::NoEpisode));
    let first = desktop.reset(&task("t"), u64::MAX, soon()).unwrap();
    assert_eq!((first.size(), desktop.screen_size()), ((8, 6), Some((8, 6))));
    assert_eq!(first.image().unwrap().get_pixel(7, 5), &Rgb([200, 0, 0]));
    assert!(first.png().is_some(), "what came as a PNG stays one");
    desktop.record_response("Thought: é\nAction: click()");
    let stepped = desktop.step(&click(), soon()).unwrap();
    assert_eq!(stepped.screen.image().unwrap().get_pixel(0, 0), &Rgb([200, 0, 1]));
    // a screen that did not change is not sent, decoded and hashed again
    let waited = desktop.step(&Action::Wait {}, soon()).unwrap();
    assert!(waited.screen.is(&stepped.screen));
    let last = desktop.step(&finished(), soon()).unwrap();
    assert!(last.terminated && !last.truncated);
    assert_eq!(desktop.step(&click(), soon()), Err(EnvironmentError::NoEpisode));
    assert_eq!(desktop.evaluate(soon()), Ok(0.002));
    assert_eq!(counts.responses.lock().unwrap().as_slice(), ["Thought: é\nAction: click()"]);
    let bad = desktop.reset(&task("bad"), 0, soon()).unwrap_err();
    assert_eq!(bad, EnvironmentError::BadTask { task: "bad".into(), reason: "no".into() });
    let panicked = desktop.reset(&task("panics"), 0, soon()).unwrap_err().to_string();
    assert!(panicked.ends_with("the desktop panicked: as it was told"), "{panicked}");
    drop(desktop);
    eventually("the desktop is removed", || count(&counts.removed) == 1);
    hub.close().unwrap();
    assert!(hub.make(0).is_err());
    drop(worker);
}

#[test]
fn a_step_that_is_repeated_after_a_cut_is_carried_out_once() {
    let counts = Arc::<Counts>::default();
    let TestHub { hub, .. } = hub(options(1));
    let proxy = Proxy::to(hub.address());
    let worker = TestWorker::start(proxy.address, 1, counting(&counts));
    hub.open().unwrap();
    let mut desktop = hub.make(0).unwrap();
    desktop.reset(&task("t"), 0, soon()).unwrap();
    for number in 1..=20 {
        // cut while the step is carried out: its answer has no connection, or one that is dead
        counts.held.store(true, Ordering::Relaxed);
        let stepping = std::thread::spawn(move || {
            let stepped = desktop.step(&click(), soon());
            (desktop, stepped)
        });
        eventually("the step has begun", || count(&counts.steps) == number);
        proxy.block(number % 2 == 0);
        proxy.cut();
        counts.held.store(false, Ordering::Relaxed);
        if number % 2 == 0 {
            eventually("the hub has noticed", || hub.capacity().0 == 0);
            proxy.block(false);
        }
        let (returned, stepped) = stepping.join().unwrap();
        desktop = returned;
        let low = stepped.unwrap().screen.image().unwrap().get_pixel(0, 0)[2];
        assert_eq!((u64::from(low), count(&counts.steps)), (number, number));
    }
    assert_eq!((count(&counts.made), count(&counts.resets), hub.lost_workers()), (1, 1, 0));
    drop(desktop);
    // closed while there is no connection, it is removed with the next one
    let another = hub.make(0).unwrap();
    proxy.block(true);
    proxy.cut();
    eventually("the hub has noticed", || hub.capacity().0 == 0);
    drop(another);
    proxy.block(false);
    eventually("both are removed", || count(&counts.removed) == 2);
    drop(worker);
}

#[test]
fn a_lost_worker_makes_its_desktops_broken_and_another_takes_over() {
    let counts = Arc::<Counts>::default();
    let grace = Duration::from_millis(300);
    let TestHub { hub, lines } = hub(HubOptions { grace, ..options(1) });
    let proxy = Proxy::to(hub.address());
    let lost = TestWorker::start(proxy.address, 1, counting(&counts));
    hub.open().unwrap();
    let mut desktop = hub.make(0).unwrap();
    desktop.reset(&task("t"), 0, soon()).unwrap();
    counts.held.store(true, Ordering::Relaxed);
    let stepping = std::thread::spawn(move || {
        let stepped = desktop.step(&click(), soon());
        (desktop, stepped)
    });
    eventually("the step has begun", || count(&counts.steps) == 1);
    proxy.block(true);
    proxy.cut();
    let (desktop, stepped) = stepping.join().unwrap();
    let reason = stepped.unwrap_err().to_string();
    assert!(reason.contains("was lost"), "{reason}");
    counts.held.store(false, Ordering::Relaxed);
    drop(desktop);
    // the worker, too, gives its desktop up after the grace time
    eventually("it is removed", || count(&counts.removed) == 1);
    assert_eq!(hub.lost_workers(), 1);
    assert!(lines.lock().unwrap().iter().any(|line| line.contains("was lost")));
    let other = Arc::<Counts>::default();
    let second = TestWorker::start(hub.address(), 1, counting(&other));
    let mut desktop = hub.make(0).unwrap();
    desktop.reset(&task("t"), 0, soon()).unwrap();
    assert_eq!(count(&other.made), 1);
    drop((desktop, lost, second));
}

#[test]
fn a_call_has_a_deadline_even_if_the_desktop_hangs() {
    let counts = Arc::<Counts>::default();
    let TestHub { hub, .. } = hub(options(1));
    let worker = TestWorker::start(hub.address(), 1, counting(&counts));
    hub.open().unwrap();
    let mut desktop = hub.make(0).unwrap();
    desktop.reset(&task("t"), 0, soon()).unwrap();
    counts.held.store(true, Ordering::Relaxed);
    let late = desktop.step(&click(), Instant::now() + Duration::from_millis(50));
    assert_eq!(late, Err(EnvironmentError::Deadline { during: "step" }));
    // its late answer is not taken for that of the next call
    counts.held.store(false, Ordering::Relaxed);
    let next = desktop.step(&click(), soon()).unwrap();
    assert_eq!(next.screen.image().unwrap().get_pixel(0, 0), &Rgb([200, 0, 2]));
    counts.held.store(true, Ordering::Relaxed);
    let late = desktop.step(&click(), Instant::now() + Duration::from_millis(50));
    assert_eq!(late, Err(EnvironmentError::Deadline { during: "step" }));
    drop(desktop);
    // the place is free again, although the thread of the old desktop still hangs
    let next = hub.make(0).unwrap();
    assert_eq!((count(&counts.made), count(&counts.removed)), (2, 0));
    counts.held.store(false, Ordering::Relaxed);
    eventually("the late one is removed", || count(&counts.removed) == 1);
    drop((next, worker));
}

#[test]
fn desktops_are_spread_and_wait_for_room() {
    let (one, other) = (Arc::<Counts>::default(), Arc::<Counts>::default());
    let TestHub { hub, .. } = hub(HubOptions { make: Duration::from_secs(3), ..options(6) });
    let first = TestWorker::start(hub.address(), 4, counting(&one));
    let second = TestWorker::start(hub.address(), 2, counting(&other));
    hub.open().unwrap();
    let mut desktops: Vec<_> = (0..3).map(|slot| hub.make(slot).unwrap()).collect();
    assert_eq!((count(&one.made), count(&other.made)), (2, 1), "by the room that is left");
    desktops.extend((3..6).map(|slot| hub.make(slot).unwrap()));
    let full = hub.make(6).map(drop).unwrap_err().to_string();
    assert!(full.contains("2 workers host at most 6"), "{full}");
    desktops.pop();
    desktops.push(hub.make(6).unwrap());
    drop((desktops, first, second));
    eventually("nothing is left", || count(&one.removed) + count(&other.removed) == 7);
}

#[test]
fn a_trainer_that_restarts_is_another_run() {
    let counts = Arc::<Counts>::default();
    let TestHub { hub: first, .. } = hub(options(1));
    let address = first.address();
    let proxy = Proxy::to(address);
    let worker = TestWorker::start(proxy.address, 1, counting(&counts));
    first.open().unwrap();
    let desktop = first.make(0).unwrap();
    // as if it had been killed: no goodbye arrives
    proxy.block(true);
    proxy.cut();
    eventually("the hub has noticed", || first.capacity().0 == 0);
    drop((desktop, first));
    assert_eq!(count(&counts.removed), 0);
    let TestHub { hub: second, .. } = hub(HubOptions { listen: address, ..options(1) });
    proxy.block(false);
    second.open().unwrap();
    eventually("the old desktop is removed", || count(&counts.removed) == 1);
    let desktop = second.make(0).unwrap();
    drop((desktop, second));
    eventually("the new one, too", || count(&counts.removed) == 2);
    drop(worker);
}
