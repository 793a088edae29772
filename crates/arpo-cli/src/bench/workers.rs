//! Simulated desktops in worker processes: what the trainer's side needs for them.

use super::collect::{groups, script};
use super::slow::{self, SlowDesktop, Times};
use crate::Failure;
use arpo_cluster::hub::{Hub, HubOptions};
use arpo_cluster::placement::local::Local;
use arpo_cluster::protocol::token;
use arpo_cluster::worker::{Stop, Worker, WorkerOptions};
use arpo_core::action::Action;
use arpo_core::config::{Config, Order};
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError, Screen, StepResult};
use arpo_suite::{EnvironmentSource, SuiteError};
use arpo_train::collect::{CollectOptions, Collector};
use arpo_train::policy::ScriptedPolicy;
use clap::Args;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Passes of the policy for a response.
const PASSES: usize = 20;

/// What is simulated.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) workers: usize,
    pub(super) desktops: usize,
    pub(super) episodes: u32,
    pub(super) times: Times,
    /// Time for a response of the policy, in seconds.
    pub(super) response: f64,
    pub(super) seed: u64,
}

/// What was measured on the trainer's side, in real time.
#[derive(Serialize)]
pub(super) struct Measured {
    pub(super) workers: usize,
    pub(super) desktops: usize,
    pub(super) episodes: usize,
    pub(super) lost: usize,
    pub(super) seconds: f64,
    pub(super) steps_per_second: f64,
    /// Screens as they were received, in units of 1e6 bytes.
    pub(super) megabytes_per_second: f64,
    /// Processor time of this process, in processors: receiving, decoding and checking screens, scheduling.
    pub(super) processors: f64,
    pub(super) kilobytes_per_screen: f64,
    /// Processor time for a screen.
    pub(super) milliseconds_per_screen: f64,
    pub(super) desktop_utilisation: f64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} desktops on {} workers: {:.1} steps/s, {:.1} MB/s ({:.0} kB a screen), {:.2} processors ({:.1} ms a screen), \
             desktops busy {:.0} %, {} episodes in {:.0} s, {} lost",
            self.desktops,
            self.workers,
            self.steps_per_second,
            self.megabytes_per_second,
            self.kilobytes_per_screen,
            self.processors,
            self.milliseconds_per_screen,
            self.desktop_utilisation * 100.0,
            self.episodes,
            self.seconds,
            self.lost
        )
    }
}

/// A source whose equal screens share their pixels, so that the memory of this machine does not limit how many desktops are
/// simulated. Each screen that arrives is still decoded, as in a run.
struct Shared {
    source: Arc<dyn EnvironmentSource>,
    known: Known,
}

type Known = Arc<Mutex<HashMap<Arc<[u8]>, Screen>>>;

impl EnvironmentSource for Shared {
    fn max_desktops(&self) -> Option<usize> {
        self.source.max_desktops()
    }

    fn make(&self, slot: usize) -> Result<Box<dyn Environment>, EnvironmentError> {
        Ok(Box::new(SharingDesktop { desktop: self.source.make(slot)?, known: Arc::clone(&self.known) }))
    }

    fn close(&self) -> Result<(), SuiteError> {
        self.source.close()
    }
}

struct SharingDesktop {
    desktop: Box<dyn Environment>,
    known: Known,
}

impl SharingDesktop {
    fn shared(&self, screen: Screen) -> Result<Screen, EnvironmentError> {
        screen.image()?;
        let bytes = screen.to_png()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.entry(bytes).or_insert(screen).clone())
    }
}

impl Environment for SharingDesktop {
    fn reset(&mut self, task: &Task, seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError> {
        let screen = self.desktop.reset(task, seed, deadline)?;
        self.shared(screen)
    }

    fn step(&mut self, action: &Action, deadline: Instant) -> Result<StepResult, EnvironmentError> {
        let stepped = self.desktop.step(action, deadline)?;
        Ok(StepResult { screen: self.shared(stepped.screen.clone())?, ..stepped })
    }

    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError> {
        self.desktop.evaluate(deadline)
    }
}

/// Collects episodes on workers that this program starts from itself.
pub(super) fn measure(load: &Load, screens: Option<&Path>) -> Result<Measured, Failure> {
    let Load { workers, desktops, times, .. } = *load;
    let token = token::random().map_err(Failure::failed)?;
    let mut arguments = vec!["bench".to_owned(), "worker".to_owned()];
    arguments.extend(times.arguments());
    arguments.extend(screens.map(|folder| format!("--screens={}", folder.display())));
    let local = Local {
        workers,
        desktops: desktops.div_ceil(workers),
        program: std::env::current_exe().map_err(Failure::failed)?,
        arguments,
        token: token.clone(),
        logs: None,
    };
    let mut config = Config::default();
    config.collect.desktops = desktops;
    // what is measured is the trainer's side: a late screen is late, not lost
    config.collect.step_seconds = 3600.0;
    config.collect.reset_seconds = 3600.0;
    config.collect.evaluate_seconds = 3600.0;
    let options = HubOptions::new(&config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), token);
    let log = |line: &str| drop(writeln!(std::io::stderr(), "{line}"));
    let hub = Hub::start(&config, options, Box::new(local), Box::new(log)).map_err(Failure::failed)?;
    hub.open().map_err(Failure::failed)?;
    let hub: Arc<dyn EnvironmentSource> = Arc::new(hub);
    // in passes, between which new requests join
    let pass = Duration::from_secs_f64(load.response / times.faster / PASSES as f64);
    let mut policy = ScriptedPolicy::new(script, pass).with_steps(PASSES);
    let options = CollectOptions { order: Order::Arrival, ..CollectOptions::from(&config) };
    let source = Shared { source: Arc::clone(&hub), known: Known::default() };
    let mut collector = Collector::new(Arc::new(source), desktops, options);
    let groups = groups(load.episodes, load.seed);
    let before = processor_seconds()?;
    let collected = collector.collect(&mut policy, groups, &mut |_| {}).map_err(Failure::failed)?;
    let processor = processor_seconds()? - before;
    let received: u64 = hub.hosts().iter().map(|host| host.received).sum();
    collector.close().map_err(Failure::failed)?;
    let report = collected.report;
    if report.lost > 0 {
        drop(writeln!(std::io::stderr(), "lost episodes by reason: {:?}", report.failures));
    }
    let screens = (report.steps + report.episodes).max(1) as f64;
    Ok(Measured {
        workers,
        desktops,
        episodes: report.episodes,
        lost: report.lost,
        seconds: report.seconds,
        steps_per_second: report.steps as f64 / report.seconds,
        megabytes_per_second: received as f64 / 1e6 / report.seconds,
        processors: processor / report.seconds,
        kilobytes_per_screen: received as f64 / 1e3 / screens,
        milliseconds_per_screen: processor * 1e3 / screens,
        desktop_utilisation: report.desktop_utilisation,
    })
}

/// Processor time of this process so far, of all its threads.
fn processor_seconds() -> Result<f64, Failure> {
    /// Linux counts in hundredths of a second for programs, whatever its own clock does.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").map_err(Failure::failed)?;
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / TICKS_PER_SECOND)
}

/// The arguments of a worker with simulated desktops.
#[derive(Args)]
pub(crate) struct WorkerArguments {
    #[arg(long)]
    connect: String,
    #[arg(long)]
    desktops: usize,
    #[arg(long)]
    until_input_ends: bool,
    #[arg(long)]
    screens: Option<PathBuf>,
    #[command(flatten)]
    times: Times,
}

/// Serves desktops until the standard input ends.
pub(super) fn serve(arguments: &WorkerArguments) -> Result<(), Failure> {
    let (times, screens) = (arguments.times, slow::screens(arguments.screens.as_deref())?);
    let options = WorkerOptions {
        connect: arguments.connect.clone(),
        token: token::from_environment(),
        desktops: arguments.desktops,
        grace: None,
    };
    let stop = Stop::default();
    if arguments.until_input_ends {
        stop.when_closed(std::io::stdin()).map_err(Failure::failed)?;
    }
    let log = |line: &str| drop(writeln!(std::io::stderr(), "{line}"));
    let worker = Worker::new(options, stop, log).map_err(Failure::failed)?;
    let worker = worker.with_source(move |_| {
        let screens = Arc::clone(&screens);
        Ok(Arc::new(move |_: usize| -> Result<Box<dyn Environment>, EnvironmentError> {
            Ok(Box::new(SlowDesktop::new(times, &screens)))
        }))
    });
    worker.run().map_err(Failure::failed)
}
