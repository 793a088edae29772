//! Desktops that count what is done to them, a hub, workers in this process, and a proxy between them that can cut.

use arpo_cluster::hub::{Hub, HubOptions, Quarantine};
use arpo_cluster::placement::listen::Listen;
use arpo_cluster::worker::{Stop, Worker, WorkerOptions};
use arpo_core::action::Action;
use arpo_core::config::Config;
use arpo_core::task::{Task, TaskId};
use arpo_env::environment::{Environment, EnvironmentError, RecordEntry, Screen, StepResult, ends_episode};
use arpo_suite::{EnvironmentSource, SuiteError};
use image::{Rgb, RgbImage};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);

pub(crate) fn soon() -> Instant {
    Instant::now() + LONG
}

/// Waits until something holds.
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = soon();
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn task(name: &str) -> Task {
    Task {
        id: TaskId::new(name),
        instruction: "count".into(),
        application: "counter".into(),
        setup: serde_json::json!({"numbers": [1, 2.5, null], "text": "é\u{0}"}),
        evaluator: serde_json::Value::Null,
    }
}

/// What was done on all counting desktops.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) made: AtomicU64,
    pub(crate) removed: AtomicU64,
    pub(crate) resets: AtomicU64,
    pub(crate) steps: AtomicU64,
    /// While set, steps wait.
    pub(crate) held: AtomicBool,
    pub(crate) responses: Mutex<Vec<String>>,
}

/// The pixels show how many steps there were; the score is their number over 1000.
pub(crate) struct CountingDesktop {
    counts: Arc<Counts>,
    steps: u64,
    running: bool,
    record: Vec<RecordEntry>,
}

impl CountingDesktop {
    pub(crate) fn new(counts: &Arc<Counts>) -> Self {
        counts.made.fetch_add(1, Ordering::Relaxed);
        Self { counts: Arc::clone(counts), steps: 0, running: false, record: vec![] }
    }

    fn screen(&self) -> Screen {
        let [.., high, low] = self.steps.to_be_bytes();
        Screen::new(RgbImage::from_pixel(8, 6, Rgb([200, high, low])))
    }
}

impl Environment for CountingDesktop {
    fn reset(&mut self, task: &Task, _: u64, _: Instant) -> Result<Screen, EnvironmentError> {
        self.counts.resets.fetch_add(1, Ordering::Relaxed);
        match task.id.as_str() {
            "bad" => return Err(EnvironmentError::BadTask { task: "bad".into(), reason: "no".into() }),
            "panics" => panic!("as it was told"),
            _ => {}
        }
        (self.steps, self.running) = (0, true);
        Ok(self.screen())
    }

    fn record_response(&mut self, response: &str) {
        self.counts.responses.lock().unwrap().push(response.to_owned());
    }

    fn take_record(&mut self) -> Vec<RecordEntry> {
        std::mem::take(&mut self.record)
    }

    fn step(&mut self, action: &Action, _: Instant) -> Result<StepResult, EnvironmentError> {
        if !self.running {
            return Err(EnvironmentError::NoEpisode);
        }
        self.counts.steps.fetch_add(1, Ordering::Relaxed);
        while self.counts.held.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if *action != (Action::Wait {}) {
            self.steps += 1;
            self.record.push(RecordEntry::Action(format!("count to {}", self.steps)));
        }
        self.running = !ends_episode(action);
        Ok(StepResult { screen: self.screen(), terminated: !self.running, truncated: false })
    }

    fn evaluate(&mut self, _: Instant) -> Result<f64, EnvironmentError> {
        Ok(self.steps as f64 / 1000.0)
    }

    fn screen_size(&self) -> Option<(u32, u32)> {
        Some((8, 6))
    }
}

impl Drop for CountingDesktop {
    fn drop(&mut self) {
        self.counts.removed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A source of counting desktops.
pub(crate) fn counting(counts: &Arc<Counts>) -> Arc<dyn EnvironmentSource> {
    let counts = Arc::clone(counts);
    Arc::new(move |_: usize| -> Result<Box<dyn Environment>, EnvironmentError> {
        Ok(Box::new(CountingDesktop::new(&counts)))
    })
}

/// Options with a short grace time, on any port of this machine.
pub(crate) fn options(desktops: usize) -> HubOptions {
    HubOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        token: String::new(),
        grace: LONG,
        start: LONG,
        make: LONG,
        desktops,
        quarantine: Quarantine::default(),
    }
}

/// A hub whose log is kept.
pub(crate) struct TestHub {
    pub(crate) hub: Arc<Hub>,
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
}

pub(crate) fn hub(options: HubOptions) -> TestHub {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&lines);
    let log = Box::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
    let hub = Hub::start(&Config::default(), options, Box::new(Listen), log).unwrap();
    TestHub { hub: Arc::new(hub), lines }
}

/// A worker on a thread of this process; dropped, it is stopped and waited for.
pub(crate) struct TestWorker {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl TestWorker {
    pub(crate) fn start(address: SocketAddr, desktops: usize, source: Arc<dyn EnvironmentSource>) -> Self {
        Self::with_token(address, desktops, "", source)
    }

    pub(crate) fn with_token(
        address: SocketAddr,
        desktops: usize,
        token: &str,
        source: Arc<dyn EnvironmentSource>,
    ) -> Self {
        let options =
            WorkerOptions { connect: address.to_string(), token: token.into(), desktops, grace: None };
        let stop = Stop::default();
        let worker = Worker::new(options, stop.clone(), |_| {}).unwrap();
        let worker = worker.with_source(move |_| Ok::<_, SuiteError>(Arc::clone(&source)));
        let thread = std::thread::spawn(move || {
            let _ = worker.run();
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for TestWorker {
    fn drop(&mut self) {
        self.stop.request();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Passes connections on, and cuts them on demand.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    streams: Mutex<Vec<TcpStream>>,
    /// New connections are cut at once.
    blocked: AtomicBool,
}

impl Proxy {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<ProxyState>::default();
        let state = Arc::clone(&shared);
        std::thread::spawn(move || {
            for inner in listener.incoming().flatten() {
                if state.blocked.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(outer) = TcpStream::connect(target) else { continue };
                let mut streams = state.streams.lock().unwrap();
                streams.retain(|stream| stream.peer_addr().is_ok());
                streams.extend([inner.try_clone().unwrap(), outer.try_clone().unwrap()]);
                drop(streams);
                for (mut from, mut to) in
                    [(inner.try_clone().unwrap(), outer.try_clone().unwrap()), (outer, inner)]
                {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                        let _ = from.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { address, shared }
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Takes no new connections, or takes them again.
    pub(crate) fn block(&self, blocked: bool) {
        self.shared.blocked.store(blocked, Ordering::SeqCst);
    }
}
