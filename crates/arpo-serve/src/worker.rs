//! The thread that owns the engine. Jobs come in through a channel; every pass gives each of them one token, which goes out
//! through the job's own channel. A job that nobody listens to any more is cancelled before the next pass, so that its
//! place in the batch and its pages are free again.

use crate::ApiError;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{
    Engine, EngineCounts, EngineError, EngineLoad, FinishReason, Request, RequestId, SampledToken,
};
use std::collections::HashMap;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

/// What happens to a choice.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is in the queue, to be sampled with these weights.
    Accepted(PolicyVersion),
    /// Its next token; so many tokens of its prompt were in the cache.
    Token(SampledToken, usize),
    /// It is complete.
    Finished(FinishReason),
    /// It will not be completed.
    Failed(ApiError),
}

/// A choice to be computed.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    /// The choice's number within its request, which comes with its events.
    pub(crate) index: usize,
    pub(crate) events: UnboundedSender<(usize, Event)>,
    /// Set when the rest of the choice is not wanted.
    pub(crate) abandoned: Arc<AtomicBool>,
    /// Its place among the choices that run or wait.
    pub(crate) place: OwnedSemaphorePermit,
    /// The memory of its images, which all choices of a request share.
    pub(crate) images: Option<Arc<OwnedSemaphorePermit>>,
}

/// What the engine does, for metrics.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WorkerStatus {
    pub(crate) load: EngineLoad,
    pub(crate) counts: EngineCounts,
    /// Passes that failed, with everything that was in them.
    pub(crate) failed_passes: u64,
}

enum Command {
    /// All choices of a request: they are taken before the next pass.
    Compute(Vec<Job>),
    Stop,
}

/// The engine's thread.
#[derive(Debug)]
pub(crate) struct Worker {
    commands: Sender<Command>,
    status: Arc<Mutex<WorkerStatus>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn start(engine: Engine) -> io::Result<Self> {
        let (commands, received) = channel();
        let status = Arc::new(Mutex::new(WorkerStatus { load: engine.load(), ..WorkerStatus::default() }));
        let shared = Arc::clone(&status);
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || {
            Loop { engine, jobs: HashMap::new(), status: shared, failed_passes: 0 }.run(&received);
        })?;
        Ok(Self { commands, status, thread: Mutex::new(Some(thread)) })
    }

    /// Queues the choices of a request; an error if the server is stopping.
    pub(crate) fn submit(&self, jobs: Vec<Job>) -> Result<(), ApiError> {
        self.commands.send(Command::Compute(jobs)).map_err(|_| stopping())
    }

    /// Fails everything that is open and ends the thread, after the current pass.
    pub(crate) fn stop(&self) {
        // an error means that it has ended already
        let _ = self.commands.send(Command::Stop);
    }

    /// Waits for the end of the thread.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    pub(crate) fn status(&self) -> WorkerStatus {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stopping() -> ApiError {
    ApiError::unavailable("the server is stopping")
}

/// Who waits for a job of the engine.
struct Listener {
    index: usize,
    events: UnboundedSender<(usize, Event)>,
    abandoned: Arc<AtomicBool>,
    _place: OwnedSemaphorePermit,
    _images: Option<Arc<OwnedSemaphorePermit>>,
}

struct Loop {
    engine: Engine,
    jobs: HashMap<RequestId, Listener>,
    status: Arc<Mutex<WorkerStatus>>,
    failed_passes: u64,
}

impl Loop {
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            // without work it sleeps; with work it takes whatever has come meanwhile
            let first = if self.jobs.is_empty() { commands.recv().ok() } else { None };
            if first.is_none() && self.jobs.is_empty() {
                return;
            }
            for command in first.into_iter().chain(commands.try_iter()) {
                match command {
                    Command::Compute(jobs) => jobs.into_iter().for_each(|job| self.take(job)),
                    Command::Stop => return self.fail_all(&stopping()),
                }
            }
            self.cancel_abandoned();
            self.publish();
            if !self.jobs.is_empty() {
                self.pass();
            }
            if self.jobs.is_empty() {
                self.publish();
            }
        }
    }

    fn take(&mut self, job: Job) {
        let Job { request, index, events, abandoned, place, images } = job;
        match self.engine.submit(request) {
            Ok(id) => {
                let _ = events.send((index, Event::Accepted(self.engine.version())));
                let listener = Listener { index, events, abandoned, _place: place, _images: images };
                self.jobs.insert(id, listener);
            }
            Err(error) => {
                let _ = events.send((index, Event::Failed(of_engine(&error))));
            }
        }
    }

    /// Cancels jobs that nobody listens to any more.
    fn cancel_abandoned(&mut self) {
        let engine = &mut self.engine;
        self.jobs.retain(|&id, job| {
            let wanted = !job.events.is_closed() && !job.abandoned.load(Ordering::Relaxed);
            if !wanted {
                engine.cancel(id);
            }
            wanted
        });
    }

    /// One token for every job. libtorch panics where memory runs out: the jobs of that pass fail, the server goes on.
    fn pass(&mut self) {
        let jobs = &self.jobs;
        let observe = |id, sampled, cache_hits| {
            if let Some(job) = jobs.get(&id) {
                let _ = job.events.send((job.index, Event::Token(sampled, cache_hits)));
            }
        };
        let passed = catch_unwind(AssertUnwindSafe(|| self.engine.pass_observed(observe)));
        let problem = match passed {
            Ok(Ok(completed)) => {
                for (id, completion) in completed {
                    if let Some(job) = self.jobs.remove(&id) {
                        let _ = job.events.send((job.index, Event::Finished(completion.finish_reason)));
                    }
                }
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic_message(&*panic),
        };
        self.failed_passes += 1;
        let _ = writeln!(io::stderr(), "error: a pass of the engine failed: {problem}");
        self.fail_all(&ApiError::internal(format!("the engine failed: {problem}")));
    }

    fn fail_all(&mut self, error: &ApiError) {
        for (_, job) in self.jobs.drain() {
            let _ = job.events.send((job.index, Event::Failed(error.clone())));
        }
        self.engine.cancel_all();
        self.publish();
    }

    fn publish(&self) {
        let status = WorkerStatus {
            load: self.engine.load(),
            counts: self.engine.counts(),
            failed_passes: self.failed_passes,
        };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// A request that the engine rejects is the client's mistake.
fn of_engine(error: &EngineError) -> ApiError {
    match error {
        EngineError::TooLong { .. } => ApiError::too_long(error.to_string()),
        EngineError::Model(_) | EngineError::Image(_) | EngineError::Sampling(_) => {
            ApiError::bad(error.to_string())
        }
        EngineError::Decode(_) | EngineError::NonFinite | EngineError::Busy(_) => {
            ApiError::internal(error.to_string())
        }
    }
}

/// The first line of a panic's message; C++ stack traces follow it.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.and_then(|text| text.lines().next()).unwrap_or("a panic without a message").to_owned()
}
