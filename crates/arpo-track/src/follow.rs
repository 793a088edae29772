//! Following a run: a thread for each tracker, which reads what is new and hands it over, until the run has ended.
//!
//! A tracker that fails for good is given up with one notice. One whose server does not answer is tried again, with
//! growing pauses, and given up at the end.

use crate::mlflow::MlFlow;
use crate::news::RunReader;
use crate::tensorboard::TensorBoard;
use crate::wandb::Wandb;
use crate::{Ending, TrackError, Tracker};
use arpo_core::config::LoggingConfig;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often a run is looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Pauses after a server did not answer: from the first up to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));

/// Longest wait for all trackers once the run has ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_mins(2);

/// How long a server that does not answer is tried after the run has ended.
const LAST_TRIES: Duration = Duration::from_secs(30);

const RUNNING: u8 = 0;

/// The trackers that follow a run.
pub struct Following {
    threads: Vec<(&'static str, JoinHandle<()>)>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// [`RUNNING`], or how the run ended.
    ending: AtomicU8,
    notices: Mutex<Vec<String>>,
}

impl Shared {
    fn notice(&self, message: String) {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }

    fn ending(&self) -> Option<Ending> {
        match self.ending.load(Ordering::Relaxed) {
            RUNNING => None,
            1 => Some(Ending::Finished),
            2 => Some(Ending::Stopped),
            _ => Some(Ending::Failed),
        }
    }
}

/// Follows a run with the trackers of `logging.to`. Returns at once; what goes wrong becomes a notice.
pub fn follow(run: &Path, config: &LoggingConfig) -> Following {
    let shared = Arc::new(Shared::default());
    let mut threads = vec![];
    for name in arpo_core::config::TRACKERS.into_iter().filter(|name| config.to.iter().any(|one| one == name))
    {
        let (run, config, shared_with) = (run.to_path_buf(), config.clone(), Arc::clone(&shared));
        let work = move || {
            if let Err(error) = track(name, &run, &config, &shared_with) {
                shared_with.notice(format!("{name}: {error}; nothing more is logged there"));
            }
        };
        match Builder::new().name(format!("tracker {name}")).spawn(work) {
            Ok(thread) => threads.push((name, thread)),
            Err(error) => shared.notice(format!("{name}: no thread: {error}")),
        }
    }
    Following { threads, shared }
}

impl Following {
    /// Messages for the user since the last call.
    pub fn notices(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The run has ended: waits until everything is logged, but not for ever. Returns the notices that are left.
    pub fn end(self, ending: Ending) -> Vec<String> {
        let ending = match ending {
            Ending::Finished => 1,
            Ending::Stopped => 2,
            Ending::Failed => 3,
        };
        self.shared.ending.store(ending, Ordering::Relaxed);
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        for (name, thread) in &self.threads {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            if !thread.is_finished() {
                let seconds = SHUTDOWN_TIMEOUT.as_secs();
                self.shared
                    .notice(format!("{name}: has not ended within {seconds} s; `arpo log` sends the rest"));
            }
        }
        self.notices()
    }
}

fn track(name: &str, run: &Path, config: &LoggingConfig, shared: &Shared) -> Result<(), TrackError> {
    match name {
        "tensorboard" => pass_on(&mut TensorBoard::new(run)?, RunReader::new(run, None), shared),
        "mlflow" => {
            let mut tracker = MlFlow::new(run, config);
            let reader = RunReader::new(run, tracker.logged());
            pass_on(&mut tracker, reader, shared)
        }
        // the side-car reads for itself
        _ => watch(Wandb::start(run, config)?, shared),
    }
}

/// Hands over what is new until the run has ended and everything is read.
fn pass_on(tracker: &mut dyn Tracker, mut reader: RunReader, shared: &Shared) -> Result<(), TrackError> {
    let mut patience = Patience::default();
    loop {
        // asked before reading: what was written before the end is read after it
        let ending = shared.ending();
        let news = reader.more()?;
        if !news.is_empty() {
            patience.until_done(tracker.name(), shared, || tracker.log(&news))?;
            continue;
        }
        if let Some(ending) = ending {
            patience.until_done(tracker.name(), shared, || tracker.end(ending))?;
            if reader.bad() > 0 {
                shared.notice(format!(
                    "{}: {} lines that are not JSON were skipped",
                    tracker.name(),
                    reader.bad()
                ));
            }
            return Ok(());
        }
        pause(POLL_INTERVAL, shared);
    }
}

/// Waits for the side-car, which ends by itself only if something is wrong.
fn watch(mut sidecar: Wandb, shared: &Shared) -> Result<(), TrackError> {
    loop {
        if let Some(ending) = shared.ending() {
            return sidecar.end(ending, SHUTDOWN_TIMEOUT.saturating_sub(Duration::from_secs(10)));
        }
        sidecar.check()?;
        pause(POLL_INTERVAL, shared);
    }
}

/// Sleeps, unless the run ends.
fn pause(time: Duration, shared: &Shared) {
    let until = Instant::now() + time;
    let before = shared.ending();
    while Instant::now() < until && shared.ending() == before {
        std::thread::sleep(Duration::from_millis(20).min(time));
    }
}

/// How often something was tried in vain.
#[derive(Debug, Default)]
struct Patience {
    reported: bool,
    pause: Option<Duration>,
    /// Since when, with the run ended.
    last_tries: Option<Instant>,
}

impl Patience {
    /// Tries again as long as that may help; the first time in vain is a notice.
    fn until_done(
        &mut self,
        name: &str,
        shared: &Shared,
        mut work: impl FnMut() -> Result<(), TrackError>,
    ) -> Result<(), TrackError> {
        loop {
            let problem = match work() {
                Err(TrackError::Later(problem)) => problem,
                result => {
                    self.pause = None;
                    return result;
                }
            };
            if shared.ending().is_some()
                && self.last_tries.get_or_insert_with(Instant::now).elapsed() > LAST_TRIES
            {
                return Err(TrackError::Refused(format!("{problem}; `arpo log` sends the rest")));
            }
            if !std::mem::replace(&mut self.reported, true) {
                shared.notice(format!("{name}: {problem}; it is tried again"));
            }
            let longer = self.pause.map_or(PAUSES.0, |pause| (pause * 2).min(PAUSES.1));
            self.pause = Some(longer);
            pause(if shared.ending().is_some() { PAUSES.0 } else { longer }, shared);
        }
    }
}

/// Where a tracker keeps what it needs to continue.
pub(crate) fn state_file(run: &Path, tracker: &str) -> PathBuf {
    run.join(format!("{tracker}.json"))
}
