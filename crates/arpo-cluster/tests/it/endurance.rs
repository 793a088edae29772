//! Many desktops on several workers, with cut connections and killed workers: every episode is counted once, and nothing is
//! left behind.

use crate::desktops::{Proxy, TestHub, TestWorker, eventually, hub, options};
use arpo_cluster::hub::HubOptions;
use arpo_core::task::Task;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, EnvironmentError, Screen, StepResult};
use arpo_env::tasks::{Split, Suite};
use arpo_suite::EnvironmentSource;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const DESKTOPS: usize = 64;
const WORKERS: usize = 4;
const EPISODES: usize = 512;
const STEPS: usize = 4;

/// The embedded desktop, counted while it exists.
struct Counted {
    desktop: EmbeddedDesktop,
    alive: Arc<AtomicI64>,
}

impl Environment for Counted {
    fn reset(&mut self, task: &Task, seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError> {
        self.desktop.reset(task, seed, deadline)
    }

    fn step(
        &mut self,
        action: &arpo_core::action::Action,
        deadline: Instant,
    ) -> Result<StepResult, EnvironmentError> {
        self.desktop.step(action, deadline)
    }

    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError> {
        self.desktop.evaluate(deadline)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

fn source(alive: &Arc<AtomicI64>) -> Arc<dyn EnvironmentSource> {
    let alive = Arc::clone(alive);
    Arc::new(move |_: usize| -> Result<Box<dyn Environment>, EnvironmentError> {
        let desktop = EmbeddedDesktop::new(Suite::Pocket.screen())?;
        alive.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Counted { desktop, alive: Arc::clone(&alive) }))
    })
}

/// An episode of waits: its pixels, as one number, and its score.
fn play(desktop: &mut dyn Environment, task: &Task, seed: u64) -> Result<(u64, f64), EnvironmentError> {
    let deadline = || Instant::now() + Duration::from_mins(2);
    let sum = |screen: &Screen| -> Result<u64, EnvironmentError> {
        let bytes = screen.image()?;
        Ok(bytes.as_raw().iter().fold(7, |sum: u64, &byte| sum.wrapping_mul(31).wrapping_add(byte.into())))
    };
    let mut pixels = sum(&desktop.reset(task, seed, deadline())?)?;
    for step in 0..STEPS {
        let at = arpo_core::action::ModelBox::point(20.0 * step as f64, 30.0);
        let stepped = desktop.step(&arpo_core::action::Action::Click { start_box: at }, deadline())?;
        pixels = pixels.wrapping_mul(31).wrapping_add(sum(&stepped.screen)?);
    }
    Ok((pixels, desktop.evaluate(deadline())?))
}

#[test]
fn episodes_survive_cuts_and_killed_workers() {
    let alive = Arc::<AtomicI64>::default();
    let grace = Duration::from_secs(2);
    let TestHub { hub, .. } = hub(HubOptions { grace, ..options(DESKTOPS) });
    let proxies: Vec<Proxy> = (0..WORKERS).map(|_| Proxy::to(hub.address())).collect();
    let start = |number: usize| TestWorker::start(proxies[number].address, DESKTOPS / 2, source(&alive));
    let mut workers: Vec<Option<TestWorker>> = (0..WORKERS).map(|number| Some(start(number))).collect();
    hub.open().unwrap();
    let tasks = Suite::Pocket.tasks(Split::Train);
    let queue = Mutex::new((0..EPISODES).collect::<Vec<usize>>());
    let played = Mutex::new(BTreeMap::<usize, (u64, f64)>::new());
    let lost = AtomicI64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..DESKTOPS)
            .map(|slot| {
                let (hub, queue, played, lost) = (&hub, &queue, &played, &lost);
                scope.spawn(move || {
                    let mut desktop: Option<Box<dyn Environment>> = None;
                    loop {
                        // as in the collector: a failed desktop is replaced, its episode played again
                        let Some(episode) = queue.lock().unwrap().pop() else { return };
                        let result = match &mut desktop {
                            Some(desktop) => Ok(desktop),
                            empty => hub.make(slot).map(|made| empty.insert(made)),
                        };
                        let task = &tasks[episode % tasks.len()];
                        match result.and_then(|desktop| play(desktop.as_mut(), task, episode as u64)) {
                            Ok(result) => {
                                let before = played.lock().unwrap().insert(episode, result);
                                assert_eq!(before, None, "episode {episode} was counted twice");
                            }
                            Err(EnvironmentError::Broken { .. }) => {
                                lost.fetch_add(1, Ordering::SeqCst);
                                desktop = None;
                                queue.lock().unwrap().push(episode);
                            }
                            Err(other) => panic!("episode {episode}: {other}"),
                        }
                    }
                })
            })
            .collect();
        // trouble, in an order that a generator decides, as long as there are episodes
        let trouble = scope.spawn(|| {
            let mut number = 1_u64;
            while !done.load(Ordering::SeqCst) {
                number =
                    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let victim = (number >> 33) as usize % WORKERS;
                if (number >> 60).is_multiple_of(4) {
                    // killed: it is gone for longer than the grace time, then another one is started in its place
                    proxies[victim].block(true);
                    proxies[victim].cut();
                    std::thread::sleep(grace + Duration::from_millis(200));
                    proxies[victim].block(false);
                    workers[victim] = None;
                    workers[victim] = Some(start(victim));
                } else {
                    proxies[victim].cut();
                }
                std::thread::sleep(Duration::from_millis(150));
            }
        });
        for thread in threads {
            thread.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
        trouble.join().unwrap();
    });
    // each once, and the same as on a desktop here
    let played = played.into_inner().unwrap();
    assert_eq!(played.len(), EPISODES);
    let mut here = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
    for (episode, result) in played {
        let task = &tasks[episode % tasks.len()];
        assert_eq!(play(&mut here, task, episode as u64).unwrap(), result, "episode {episode}");
    }
    drop((workers, hub));
    eventually("no desktop is left", || alive.load(Ordering::SeqCst) == 0);
}
