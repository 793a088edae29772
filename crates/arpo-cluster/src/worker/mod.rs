//! A worker: hosts desktops for a trainer that it dials.
//!
//! It needs no configuration: the trainer sends it. It waits for a trainer as long as it runs. If the connection is lost, it
//! dials again and its episodes go on; after the grace time, or if the trainer has begun another run, it removes its
//! desktops. A trainer that refuses it (another version, another token) ends it with that reason.

mod desktops;
mod inspection;
mod stop;

pub use stop::Stop;

use crate::link::{Link, read_by, read_messages, write_by};
use crate::protocol::frame::Kind;
use crate::protocol::{Hello, Message, ProtocolError, VERSION, Welcome};
use arpo_core::config::SuiteChoice;
use arpo_ranks::connect::connect_to_any;
use arpo_suite::osworld::OsworldSource;
use arpo_suite::{EnvironmentSource, SuiteError};
use desktops::Desktops;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time for a connection and for the answer to a hello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Rest after a failed attempt to connect; doubled after each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// A worker for one run waits so long for it to begin.
const ALONE_TIMEOUT: Duration = Duration::from_mins(1);

/// Time to remove desktops in.
const TEAR_DOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// How a worker runs.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The trainer, as `HOST:PORT`.
    pub connect: String,
    /// The shared token; empty for none.
    pub token: String,
    /// Most desktops.
    pub desktops: usize,
    /// How long its desktops outlive a connection; `None`: as the trainer says.
    pub grace: Option<Duration>,
}

/// Why a worker ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The trainer is of the same version, and has other options.
    #[error("the trainer at {address} is of another build, expected the worker's: {problem}")]
    OtherBuild {
        /// Where it is.
        address: String,
        /// What of its welcome cannot be read.
        problem: String,
    },
    /// The trainer does not take it.
    #[error("the trainer at {address} refused this worker: {reason}")]
    Refused {
        /// Where it is.
        address: String,
        /// Why.
        reason: String,
    },
    /// No trainer answers, and it was to wait for one run only.
    #[error(
        "no trainer at {address} for {seconds} s: expected its address, as this host reaches it: {problem}"
    )]
    Alone {
        /// Where it should be.
        address: String,
        /// How long.
        seconds: u64,
        /// What happened last.
        problem: String,
    },
    /// It has no name of its own.
    #[error("no random name: {0}")]
    Name(#[source] io::Error),
}

/// Creates the source of a run's desktops.
type Build = dyn Fn(&Welcome) -> Result<Arc<dyn EnvironmentSource>, SuiteError> + Send + Sync;

/// A process that hosts desktops.
pub struct Worker {
    options: WorkerOptions,
    name: String,
    host: String,
    one_run: bool,
    stop: Stop,
    build: Box<Build>,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

/// What outlives a connection.
struct Session {
    run: String,
    grace: Duration,
    desktops: Desktops,
}

/// How a connection ended.
enum Ended {
    /// The run is over.
    Over(String),
    /// It was lost.
    Lost(String),
    /// The trainer does not take this worker.
    Refused(String),
    /// The trainer's welcome cannot be read.
    OtherBuild(String),
}

impl Worker {
    /// A worker that writes what happens to `log`, a line at a time.
    pub fn new(
        options: WorkerOptions,
        stop: Stop,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, WorkerError> {
        let name = crate::protocol::token::random().map_err(WorkerError::Name)?;
        Ok(Self {
            options,
            name,
            host: host_name(),
            one_run: false,
            stop,
            build: Box::new(source),
            log: Box::new(log),
        })
    }

    /// With desktops of another source than the configuration's.
    #[must_use]
    pub fn with_source(
        self,
        build: impl Fn(&Welcome) -> Result<Arc<dyn EnvironmentSource>, SuiteError> + Send + Sync + 'static,
    ) -> Self {
        Self { build: Box::new(build), ..self }
    }

    /// Ends with the first run: when it is over, when its trainer is gone, or when none answers.
    #[must_use]
    pub fn for_one_run(self) -> Self {
        Self { one_run: true, ..self }
    }

    /// Under another name of its host.
    #[must_use]
    pub fn on_host(self, host: String) -> Self {
        Self { host, ..self }
    }

    /// Serves trainers until it is stopped.
    pub fn run(&self) -> Result<(), WorkerError> {
        let address = &self.options.connect;
        let mut session: Option<Session> = None;
        let mut lost_since = Instant::now();
        let mut backoff = INITIAL_BACKOFF;
        let mut waiting = false;
        while !self.stop.requested() {
            let ended = self.connect().and_then(|stream| self.serve(&stream, &mut session));
            if ended.is_ok() {
                (backoff, waiting) = (INITIAL_BACKOFF, false);
            }
            match ended {
                Ok(Ended::Refused(reason)) => {
                    close(session);
                    return Err(WorkerError::Refused { address: address.clone(), reason });
                }
                Ok(Ended::OtherBuild(problem)) => {
                    close(session);
                    return Err(WorkerError::OtherBuild { address: address.clone(), problem });
                }
                Ok(Ended::Over(reason)) => {
                    (self.log)(&format!("the run is over: {reason}"));
                    close(session.take());
                    if self.one_run {
                        return Ok(());
                    }
                    lost_since = Instant::now();
                }
                Ok(Ended::Lost(problem)) if !self.stop.requested() => {
                    (self.log)(&format!("connection to {address} lost: {problem}"));
                    lost_since = Instant::now();
                    // a trainer that cuts every connection is not called again at once
                    self.stop.sleep(backoff);
                    continue;
                }
                Ok(Ended::Lost(_)) => break,
                Err(problem) => {
                    if !std::mem::replace(&mut waiting, true) {
                        (self.log)(&format!("waiting for a trainer at {address}: {problem}"));
                    }
                    if self.one_run && session.is_none() && lost_since.elapsed() > ALONE_TIMEOUT {
                        let (address, seconds) = (address.clone(), ALONE_TIMEOUT.as_secs());
                        return Err(WorkerError::Alone { address, seconds, problem: problem.to_string() });
                    }
                }
            }
            if let Some(stale) = session.take_if(|session| lost_since.elapsed() > session.grace) {
                (self.log)("the trainer did not come back in time: its desktops are removed");
                stale.desktops.close_all(TEAR_DOWN_TIMEOUT);
                if self.one_run {
                    return Ok(());
                }
            }
            self.stop.sleep(backoff);
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
        close(session);
        Ok(())
    }

    fn connect(&self) -> Result<TcpStream, ProtocolError> {
        Ok(connect_to_any(&self.options.connect, HANDSHAKE_TIMEOUT)?)
    }

    /// Serves one connection until it ends; an error if it did not even begin.
    fn serve(&self, stream: &TcpStream, session: &mut Option<Session>) -> Result<Ended, ProtocolError> {
        let _cut = self.stop.cuts(stream)?;
        let hello = Hello {
            protocol: VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            token: self.options.token.clone(),
            worker: self.name.clone(),
            host: self.host.clone(),
            process: std::process::id(),
            desktops: self.options.desktops,
        };
        write_by(stream, &Message::Hello(hello), HANDSHAKE_TIMEOUT)?;
        let expected = [Kind::Welcome, Kind::Refused, Kind::Goodbye];
        let welcome = match read_by(stream, &expected, Instant::now() + HANDSHAKE_TIMEOUT) {
            Ok(Message::Welcome(welcome)) => welcome,
            Ok(Message::Refused(refused)) => return Ok(Ended::Refused(refused.reason)),
            Ok(_) => return Ok(Ended::Lost("the trainer is ending".into())),
            // its version is the same, its options are others: asking again would change nothing
            Err(problem @ ProtocolError::Malformed { .. }) => {
                return Ok(Ended::OtherBuild(problem.to_string()));
            }
            Err(problem) => return Err(problem),
        };
        if let Some(other) = session.take_if(|session| session.run != welcome.run) {
            (self.log)("the trainer has begun another run: the desktops of the old one are removed");
            other.desktops.close_all(TEAR_DOWN_TIMEOUT);
        }
        let session = session.get_or_insert_with(|| self.session(&welcome));
        session.desktops.keep_only(&welcome.desktops);
        let link = Link::start(stream, self.options.desktops)?;
        (self.log)(&format!("connected to {}, run {}", self.options.connect, welcome.run));
        session.desktops.attach(link);
        let mut reason = None;
        let read = read_messages(stream, &[Kind::Request, Kind::Heartbeat, Kind::Goodbye], |message| {
            match message {
                Message::Request(request) => session.desktops.take(&request),
                Message::Goodbye(goodbye) => reason = Some(goodbye.reason),
                _ => {}
            }
            reason.is_none()
        });
        session.desktops.detach();
        Ok(match (reason, read) {
            (Some(reason), _) => Ended::Over(reason),
            (None, Err(problem)) => Ended::Lost(problem.to_string()),
            (None, Ok(())) => Ended::Lost("it was closed".into()),
        })
    }

    fn session(&self, welcome: &Welcome) -> Session {
        let source = (self.build)(welcome).map_err(|error| error.to_string());
        if let Err(problem) = &source {
            (self.log)(problem);
        }
        Session {
            run: welcome.run.clone(),
            grace: self.options.grace.unwrap_or(Duration::from_millis(welcome.grace_ms)),
            desktops: Desktops::new(source, self.options.desktops),
        }
    }
}

fn close(session: Option<Session>) {
    if let Some(session) = session {
        session.desktops.close_all(TEAR_DOWN_TIMEOUT);
    }
}

/// The desktops that the trainer's configuration names.
fn source(welcome: &Welcome) -> Result<Arc<dyn EnvironmentSource>, SuiteError> {
    match welcome.config.tasks.suite {
        SuiteChoice::Osworld => {
            Ok(Arc::new(OsworldSource::with_texts(welcome.config.clone(), welcome.tasks.clone())))
        }
        SuiteChoice::Pocket | SuiteChoice::Desktop => arpo_suite::source(&welcome.config),
    }
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "a host without a name".into() } else { name.trim().to_owned() }
}
