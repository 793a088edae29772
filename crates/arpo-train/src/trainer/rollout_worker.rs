//! Collecting on a separate thread, which owns desktops and policy and executes one job after the other. A synchronous
//! run waits for each job; an overlapped one learns in the meantime.

use super::evaluation::{EvaluationPlan, EvaluationResult, evaluate};
use crate::TrainError;
use crate::collect::{CollectEvent, Collected, Collector, GroupPlan};
use crate::policy::{RolloutPolicy, WeightUpdate};
use crate::run::stop::StopSwitch;
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for the thread to end: a step of the policy, and the removal of the desktops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Debug)]
enum Job {
    Prepare(Vec<GroupPlan>),
    Collect(Vec<GroupPlan>),
    Evaluate(Vec<Arc<Task>>, EvaluationPlan, f64),
}

enum WorkerEvent {
    Progress(CollectEvent),
    Collected(Result<(PolicyVersion, Collected), TrainError>),
    Evaluated(Result<EvaluationResult, TrainError>),
}

/// New weights for the next jobs.
type Published = Arc<Mutex<Option<(WeightUpdate, PolicyVersion)>>>;

/// How a worker samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WorkerOptions {
    /// Sampling temperature of training episodes.
    pub(super) temperature: f64,
    /// Release the policy's device memory after each job, because the learner uses it next.
    pub(super) releases_memory: bool,
}

/// The handle of the thread. Dropping it abandons the current job, waits for the thread and removes the desktops.
pub(super) struct RolloutWorker {
    /// `None` once the thread is to end.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<Result<(), TrainError>>>,
    stop: StopSwitch,
    events: Receiver<WorkerEvent>,
    published: Published,
    /// Collections that ended while waiting for an evaluation.
    collected: VecDeque<Result<(PolicyVersion, Collected), TrainError>>,
}

struct WorkerThread {
    collector: Collector,
    policy: Box<dyn RolloutPolicy>,
    options: WorkerOptions,
    published: Published,
    events: Sender<WorkerEvent>,
}

impl RolloutWorker {
    /// Starts the thread.
    pub(super) fn start(
        collector: Collector,
        mut policy: Box<dyn RolloutPolicy>,
        options: WorkerOptions,
        stop: &StopSwitch,
    ) -> Result<Self, TrainError> {
        let stop = stop.within();
        policy.stopped_by(stop.clone());
        let collector = collector.stopped_by(stop.clone());
        let (jobs, inbox) = channel();
        let (sender, events) = channel();
        let published = Published::default();
        let thread =
            WorkerThread { collector, policy, options, published: Arc::clone(&published), events: sender };
        let thread = std::thread::Builder::new()
            .name("rollout worker".into())
            .spawn(move || thread.run(&inbox))
            .map_err(|error| TrainError::Io(format!("no thread to collect on: {error}")))?;
        let (jobs, thread) = (Some(jobs), Some(thread));
        Ok(Self { jobs, thread, stop, events, published, collected: VecDeque::new() })
    }

    /// Abandons the current job and removes all desktops; an error names what could not be removed.
    pub(super) fn close(&mut self) -> Result<(), TrainError> {
        self.stop.request();
        self.jobs = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while !thread.is_finished() {
            if Instant::now() > deadline {
                let seconds = SHUTDOWN_TIMEOUT.as_secs();
                return Err(TrainError::Service(format!(
                    "collecting has not ended within {seconds} s; the next start removes its desktops"
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // a panic has already been printed and has dropped the desktops
        thread.join().unwrap_or(Ok(()))
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // if the thread has ended, waiting for its events fails
            let _ = jobs.send(job);
        }
    }

    /// Publishes weights to sample with from the next job on.
    pub(super) fn publish(&self, weights: WeightUpdate, version: PolicyVersion) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Some((weights, version));
    }

    /// Resets desktops for the groups of the next collection.
    pub(super) fn prepare(&self, groups: Vec<GroupPlan>) {
        self.send(Job::Prepare(groups));
    }

    /// Starts the collection of groups; [`RolloutWorker::collected`] returns collections in the order they were started.
    pub(super) fn collect(&self, groups: Vec<GroupPlan>) {
        self.send(Job::Collect(groups));
    }

    /// Waits for the next collection; returns the version of the weights it was sampled with, and its groups.
    pub(super) fn collected(
        &mut self,
        progress: &mut dyn FnMut(CollectEvent),
    ) -> Result<(PolicyVersion, Collected), TrainError> {
        if let Some(collected) = self.collected.pop_front() {
            return collected;
        }
        loop {
            match self.events.recv() {
                Ok(WorkerEvent::Progress(event)) => progress(event),
                Ok(WorkerEvent::Collected(collected)) => return collected,
                Ok(WorkerEvent::Evaluated(_)) => {}
                Err(_) => return Err(worker_ended()),
            }
        }
    }

    /// Evaluates tasks after all earlier jobs, and waits for the result.
    pub(super) fn evaluate(
        &mut self,
        tasks: Vec<Arc<Task>>,
        plan: EvaluationPlan,
        temperature: f64,
        progress: &mut dyn FnMut(CollectEvent),
    ) -> Result<EvaluationResult, TrainError> {
        self.send(Job::Evaluate(tasks, plan, temperature));
        loop {
            match self.events.recv() {
                Ok(WorkerEvent::Progress(event)) => progress(event),
                Ok(WorkerEvent::Collected(collected)) => self.collected.push_back(collected),
                Ok(WorkerEvent::Evaluated(result)) => return result,
                Err(_) => return Err(worker_ended()),
            }
        }
    }
}

impl Drop for RolloutWorker {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn worker_ended() -> TrainError {
    TrainError::Internal("the rollout worker's thread has ended".into())
}

impl WorkerThread {
    fn run(mut self, inbox: &Receiver<Job>) -> Result<(), TrainError> {
        while let Ok(job) = inbox.recv() {
            let event = match job {
                Job::Prepare(groups) => {
                    self.collector.prepare(&groups);
                    continue;
                }
                Job::Collect(groups) => WorkerEvent::Collected(self.collect(groups)),
                Job::Evaluate(tasks, plan, temperature) => {
                    WorkerEvent::Evaluated(self.evaluate(&tasks, &plan, temperature))
                }
            };
            if self.events.send(event).is_err() {
                break;
            }
        }
        self.collector.close()
    }

    fn collect(&mut self, groups: Vec<GroupPlan>) -> Result<(PolicyVersion, Collected), TrainError> {
        let version = self.take_published()?;
        self.policy.set_temperature(self.options.temperature);
        let events = &self.events;
        let mut progress = |event| drop(events.send(WorkerEvent::Progress(event)));
        let collected = self.collector.collect(self.policy.as_mut(), groups, &mut progress)?;
        self.release_memory()?;
        Ok((version, collected))
    }

    fn evaluate(
        &mut self,
        tasks: &[Arc<Task>],
        plan: &EvaluationPlan,
        temperature: f64,
    ) -> Result<EvaluationResult, TrainError> {
        self.take_published()?;
        self.policy.set_temperature(temperature);
        let events = &self.events;
        let mut progress = |event| drop(events.send(WorkerEvent::Progress(event)));
        let result = evaluate(&mut self.collector, self.policy.as_mut(), tasks, plan, &mut progress)?;
        self.release_memory()?;
        Ok(result)
    }

    fn release_memory(&mut self) -> Result<(), TrainError> {
        if self.options.releases_memory { self.policy.release_memory() } else { Ok(()) }
    }

    fn take_published(&mut self) -> Result<PolicyVersion, TrainError> {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner).take();
        // even without new weights the cache is cleared, because a run that resumes here starts with an empty one
        let (weights, version) = published.unwrap_or((WeightUpdate::InPlace, self.policy.version()));
        self.policy.publish(weights, version)?;
        Ok(version)
    }
}
