//! The trainer's side: takes workers in, and is a source of desktops like any other.
//!
//! The collector sees desktops that work, fail or are late. A worker that is lost for longer than the grace time makes its
//! desktops broken ones, and what the collector does with those is enough: lost episodes are started again, replacements are
//! made on other workers.
//!
//! | to change | look in |
//! |---|---|
//! | who may connect | `accept` |
//! | which worker gets a desktop, what is repeated after a new connection | `registry` |
//! | failures of hosts, quarantine | `hosts` |
//! | what its threads share, and what is said of lost workers | `shared` |
//! | the calls of a desktop | `desktop` |
//! | what `arpo cluster status` shows | `status` |

mod accept;
mod desktop;
mod hosts;
mod registry;
mod shared;
mod status;

pub(crate) use accept::reachable;
pub use hosts::Quarantine;
pub use shared::{HubHandle, Log};

use crate::contact::Contact;
use crate::placement::{Placed, Placement};
use crate::protocol::outcome::Inspection;
use crate::protocol::status::ClusterStatus;
use crate::protocol::{Goodbye, Message, token};
use arpo_core::config::{Config, SuiteChoice};
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_env::tasks::Suite;
use arpo_suite::{EnvironmentSource, HostUse, SuiteError, osworld};
use desktop::RemoteDesktop;
use registry::Registry;
use shared::{POLL_INTERVAL, Shared};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How long a run waits for further workers after the first, if there is not room for all its desktops yet.
const LATECOMERS: Duration = Duration::from_secs(10);

/// How a hub runs.
#[derive(Debug, Clone, PartialEq)]
pub struct HubOptions {
    /// Where it listens; port 0 for any.
    pub listen: SocketAddr,
    /// The shared token; empty for none.
    pub token: String,
    /// How long a worker may be unreachable.
    pub grace: Duration,
    /// Longest wait for the first workers.
    pub start: Duration,
    /// Longest creation of a desktop, the wait for room included.
    pub make: Duration,
    /// How many desktops the run wants.
    pub desktops: usize,
    /// When a host is given no more work.
    pub quarantine: Quarantine,
}

impl HubOptions {
    /// As configured, on this address.
    pub fn new(config: &Config, listen: SocketAddr, token: String) -> Self {
        let cluster = &config.cluster;
        Self {
            listen,
            token,
            grace: Duration::from_secs_f64(cluster.grace_seconds),
            start: Duration::from_secs_f64(cluster.start_seconds),
            make: Duration::from_secs_f64(config.collect.start_seconds),
            desktops: config.collect.desktops,
            quarantine: Quarantine {
                after: cluster.quarantine_after,
                first: Duration::from_secs_f64(cluster.quarantine_seconds),
            },
        }
    }
}

/// The desktops of a run on workers. Closing it ends the run for them.
pub struct Hub {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// The suite's tasks; its desktops are not used.
    suite: Arc<dyn EnvironmentSource>,
    placement: Box<dyn Placement>,
    /// Nobody waits for workers any more.
    stopped: Box<dyn Fn() -> bool + Send + Sync>,
    /// The folder in which `arpo cluster status` finds this hub.
    contact: Option<PathBuf>,
    running: Mutex<Running>,
}

/// What ends with the hub.
#[derive(Default)]
struct Running {
    placed: Option<Box<dyn Placed>>,
    contact: Option<Contact>,
    threads: Vec<JoinHandle<()>>,
}

impl Hub {
    /// Listens for workers; [`EnvironmentSource::open`] brings them and waits for them.
    pub fn start(
        config: &Config,
        options: HubOptions,
        placement: Box<dyn Placement>,
        log: Log,
    ) -> Result<Self, SuiteError> {
        token::check_address(crate::LISTEN_KEY, options.listen, &options.token)
            .map_err(SuiteError::Configuration)?;
        let suite = arpo_suite::source(config)?;
        let tasks = match config.tasks.suite {
            SuiteChoice::Osworld => osworld::texts(config)?,
            SuiteChoice::Pocket | SuiteChoice::Desktop => vec![],
        };
        // keys of chat servers are nobody's business
        let config = Config { chat: Config::default().chat, ..config.clone() };
        let listener = TcpListener::bind(options.listen).map_err(|error| {
            SuiteError::Service(format!(
                "cannot listen on {}: {error}; expected a free address",
                options.listen
            ))
        })?;
        let failed = |error: std::io::Error| SuiteError::Service(error.to_string());
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            run: token::random().map_err(failed)?,
            since: Instant::now(),
            config,
            tasks,
            registry: Mutex::new(Registry::new(options.quarantine)),
            changed: Condvar::new(),
            options,
            log,
        });
        let (accepting, watching) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            Builder::new()
                .name("hub".into())
                .spawn(move || accept::accept(&accepting, &listener))
                .map_err(failed)?,
            Builder::new().name("hub watch".into()).spawn(move || watching.watch()).map_err(failed)?,
        ];
        let running = Mutex::new(Running { placed: None, contact: None, threads });
        let stopped = Box::new(|| false);
        Ok(Self { shared, address, suite, placement, stopped, contact: None, running })
    }

    /// Stops waiting for workers once this is true.
    #[must_use]
    pub fn stopped_by(mut self, stopped: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stopped = Box::new(stopped);
        self
    }

    /// Says in this folder where it is and what its token is, as long as it is open.
    #[must_use]
    pub fn found_in(mut self, folder: Option<PathBuf>) -> Self {
        self.contact = folder;
        self
    }

    /// Where workers connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connected workers, and how many desktops they have room for.
    pub fn capacity(&self) -> (usize, usize) {
        self.shared.registry().capacity()
    }

    /// Workers that were lost so far.
    pub fn lost_workers(&self) -> u64 {
        self.shared.registry().lost
    }

    /// Hosts, workers and desktops, and what each does.
    pub fn status(&self) -> ClusterStatus {
        self.shared.status()
    }

    /// Asks every worker what its host has, all at the same time; with the name of the host, and how many desktops it takes.
    pub fn inspect(&self, within: Duration) -> Vec<(String, usize, Result<Inspection, EnvironmentError>)> {
        let deadline = Instant::now() + within;
        let registry = self.shared.registry();
        let workers = registry.workers.iter();
        let workers = workers.map(|(name, worker)| (name.clone(), worker.host.clone(), worker.capacity));
        let workers: Vec<_> = workers.collect();
        drop(registry);
        std::thread::scope(|scope| {
            let ask = |(name, host, capacity): (String, String, usize)| {
                let asked = scope.spawn(move || RemoteDesktop::inspect(&self.shared, &name, deadline));
                (host, capacity, asked)
            };
            let asked: Vec<_> = workers.into_iter().map(ask).collect();
            let panicked = |_| Err(EnvironmentError::Broken { reason: "the question panicked".into() });
            let answer = |(host, capacity, asked): (_, _, ScopedJoinHandle<'_, _>)| {
                (host, capacity, asked.join().unwrap_or_else(panicked))
            };
            asked.into_iter().map(answer).collect()
        })
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room for all desktops, and for the workers that are on their way, so that desktops are spread over all of
    /// them; for the last not as long as for the first.
    fn wait_for_workers(&self) -> Result<(), SuiteError> {
        let HubOptions { start, desktops, .. } = self.shared.options;
        let deadline = Instant::now() + start;
        let mut first_at = None;
        loop {
            let (workers, capacity) = self.capacity();
            let now = Instant::now();
            let expected = self.running().placed.as_ref().map_or(0, |placed| placed.workers());
            if workers > 0 && workers >= expected && capacity >= desktops {
                return Ok(());
            }
            let since_first = first_at.filter(|_| workers > 0).map(|first: Instant| now - first);
            if workers > 0 && (now >= deadline || since_first.is_some_and(|since| since >= LATECOMERS)) {
                if capacity < desktops {
                    self.shared.log(&format!(
                        "workers have room for {capacity} of {desktops} desktops: the run begins with those"
                    ));
                }
                return Ok(());
            }
            if let Some(problem) = self.running().placed.as_ref().and_then(|placed| placed.problem()) {
                return Err(SuiteError::Service(problem));
            }
            if (self.stopped)() {
                return Err(SuiteError::Service("stopped while it waited for workers".into()));
            }
            if now >= deadline {
                let (address, seconds) = (self.address, start.as_secs_f64());
                return Err(SuiteError::Service(format!(
                    "no worker has connected to {address} within {seconds} s: expected `arpo-worker --connect {address}` \
                     on a host that reaches it"
                )));
            }
            if workers > 0 {
                first_at = first_at.or(Some(now));
            }
            std::thread::sleep(POLL_INTERVAL / 10);
        }
    }
}

impl EnvironmentSource for Hub {
    fn tasks(&self) -> Result<Vec<Task>, SuiteError> {
        self.suite.tasks()
    }

    fn held_out(&self) -> Vec<Task> {
        self.suite.held_out()
    }

    fn templates(&self) -> Option<Suite> {
        self.suite.templates()
    }

    fn is_listed(&self) -> bool {
        self.suite.is_listed()
    }

    fn open(&self) -> Result<(), SuiteError> {
        let contact = self
            .contact
            .as_ref()
            .map(|folder| Contact::write(folder, self.address, &self.shared.options.token));
        let contact = contact.transpose().map_err(|error| SuiteError::Service(error.to_string()))?;
        let placed = self.placement.place(self.address, &HubHandle(Arc::clone(&self.shared)))?;
        let mut running = self.running();
        (running.placed, running.contact) = (Some(placed), contact);
        drop(running);
        self.wait_for_workers()
    }

    fn max_desktops(&self) -> Option<usize> {
        Some(self.capacity().1)
    }

    fn hosts(&self) -> Vec<HostUse> {
        self.shared.registry().uses(Instant::now())
    }

    fn places(&self) -> BTreeMap<usize, String> {
        self.shared.registry().places()
    }

    fn make(&self, slot: usize) -> Result<Box<dyn Environment>, EnvironmentError> {
        let deadline = Instant::now() + self.shared.options.make;
        Ok(Box::new(RemoteDesktop::make(&self.shared, slot, deadline)?))
    }

    /// Tells the workers that the run is over, ends those that were started for it, and stops listening.
    fn close(&self) -> Result<(), SuiteError> {
        let goodbye = Message::Goodbye(Goodbye { reason: "the trainer has ended it".into() });
        self.shared.registry().close(&goodbye);
        self.shared.changed.notify_all();
        let Running { placed, contact, threads } = std::mem::take(&mut *self.running());
        drop((contact, placed));
        // the thread that accepts connections looks up when there is one
        let _ = TcpStream::connect_timeout(&reachable(self.address), Duration::from_secs(1));
        for thread in threads {
            let _ = thread.join();
        }
        Ok(())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.close();
    }
}
