//! Whoever plays: desktops and policy on a thread of their own, given one thing to play after the other. A synchronous
//! run waits for each; an overlapped one learns meanwhile.

use super::evaluation::{Examination, Examined, examine};
use crate::TrainError;
use crate::collect::{CollectEvent, Collected, Collector, GroupPlan};
use crate::policy::EnginePolicy;
use crate::run::stop::StopSwitch;
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_model::checkpoint::Weights;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest wait for the thread to end: a pass of the policy, and desktops that are being removed.
const TO_END: Duration = Duration::from_mins(2);

/// Something to play.
#[derive(Debug)]
enum Job {
    Prepare(Vec<GroupPlan>),
    Collect(Vec<GroupPlan>),
    Examine(Vec<Arc<Task>>, Examination, f64),
}

enum News {
    Event(CollectEvent),
    Collected(Result<(PolicyVersion, Collected), TrainError>),
    Examined(Result<Examined, TrainError>),
}

/// New weights for whatever is played next.
#[derive(Debug)]
struct Published {
    /// Its own copy, or none where the player shares the learner's.
    copy: Option<Weights>,
    version: PolicyVersion,
}

/// The thread's other end. When this goes, what is being played is given up, the thread is waited for and its desktops are
/// gone.
pub(super) struct Player {
    /// None once it is told to end.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<Result<(), TrainError>>>,
    stop: StopSwitch,
    news: Receiver<News>,
    published: Arc<Mutex<Option<Published>>>,
    /// Collections that came while an examination was waited for.
    waiting: VecDeque<Result<(PolicyVersion, Collected), TrainError>>,
    shares: bool,
}

struct Stage {
    collector: Collector,
    policy: EnginePolicy,
    temperature: f64,
    published: Arc<Mutex<Option<Published>>>,
    news: Sender<News>,
    /// The learner works only while nothing is played, and then has all of the device.
    shares: bool,
}

impl Player {
    /// Starts the thread. With `shares` the policy's weights are the learner's own, and nothing may be played while it
    /// learns.
    pub(super) fn start(
        collector: Collector,
        policy: EnginePolicy,
        shares: bool,
        stop: &StopSwitch,
    ) -> Result<Self, TrainError> {
        let stop = stop.within();
        let collector = collector.stopped_by(stop.clone());
        let (jobs, inbox) = channel();
        let (sender, news) = channel();
        let published = Arc::new(Mutex::new(None));
        let temperature = policy.responses.temperature;
        let published_too = Arc::clone(&published);
        let stage = Stage { collector, policy, temperature, published: published_too, news: sender, shares };
        let thread = std::thread::Builder::new()
            .name("player".into())
            .spawn(move || stage.run(&inbox))
            .map_err(|error| TrainError::Options(format!("no thread to play on: {error}")))?;
        let (jobs, thread) = (Some(jobs), Some(thread));
        Ok(Self { jobs, thread, stop, news, published, waiting: VecDeque::new(), shares })
    }

    /// Gives up what is being played and ends all desktops; says what could not be removed.
    pub(super) fn close(&mut self) -> Result<(), TrainError> {
        self.stop.ask();
        self.jobs = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let deadline = Instant::now() + TO_END;
        while !thread.is_finished() {
            if Instant::now() > deadline {
                let seconds = TO_END.as_secs();
                return Err(TrainError::Options(format!(
                    "what was being played has not ended within {seconds} s; the next start removes its desktops"
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // one that panicked has shown why, and dropped its desktops on the way
        thread.join().unwrap_or(Ok(()))
    }

    fn give(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // a thread that is gone is missed where its news are waited for
            let _ = jobs.send(job);
        }
    }

    /// From the next thing on, answers come from these weights.
    pub(super) fn publish(&self, weights: &Weights, version: PolicyVersion) {
        let copy = (!self.shares).then(|| weights.to_kind(weights.kind()));
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Some(Published { copy, version });
    }

    /// Has desktops made ready for groups that will be given next.
    pub(super) fn prepare(&self, groups: Vec<GroupPlan>) {
        self.give(Job::Prepare(groups));
    }

    /// Has groups played; [`Player::collected`] returns them in the order they were given.
    pub(super) fn collect(&self, groups: Vec<GroupPlan>) {
        self.give(Job::Collect(groups));
    }

    /// Waits for the next collection: the weights it began with, and what was played.
    pub(super) fn collected(
        &mut self,
        progress: &mut dyn FnMut(CollectEvent),
    ) -> Result<(PolicyVersion, Collected), TrainError> {
        if let Some(collected) = self.waiting.pop_front() {
            return collected;
        }
        loop {
            match self.news.recv() {
                Ok(News::Event(event)) => progress(event),
                Ok(News::Collected(collected)) => return collected,
                Ok(News::Examined(_)) => {}
                Err(_) => return Err(gone()),
            }
        }
    }

    /// Has tasks played without learning from them, after what was given before, and waits for it.
    pub(super) fn examine(
        &mut self,
        tasks: Vec<Arc<Task>>,
        examination: Examination,
        temperature: f64,
        progress: &mut dyn FnMut(CollectEvent),
    ) -> Result<Examined, TrainError> {
        self.give(Job::Examine(tasks, examination, temperature));
        loop {
            match self.news.recv() {
                Ok(News::Event(event)) => progress(event),
                Ok(News::Collected(collected)) => self.waiting.push_back(collected),
                Ok(News::Examined(examined)) => return examined,
                Err(_) => return Err(gone()),
            }
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn gone() -> TrainError {
    TrainError::Options("the thread that plays has ended".into())
}

impl Stage {
    fn run(mut self, inbox: &Receiver<Job>) -> Result<(), TrainError> {
        while let Ok(job) = inbox.recv() {
            let news = match job {
                Job::Prepare(groups) => {
                    self.collector.prepare(&groups);
                    continue;
                }
                Job::Collect(groups) => News::Collected(self.play(groups)),
                Job::Examine(tasks, examination, temperature) => {
                    News::Examined(self.examine(&tasks, &examination, temperature))
                }
            };
            if self.news.send(news).is_err() {
                break;
            }
        }
        self.collector.close()
    }

    fn play(&mut self, groups: Vec<GroupPlan>) -> Result<(PolicyVersion, Collected), TrainError> {
        let version = self.take_published()?;
        self.policy.responses.temperature = self.temperature;
        let news = &self.news;
        let mut tell = |event| drop(news.send(News::Event(event)));
        let collected = self.collector.collect(&mut self.policy, groups, &mut tell)?;
        if self.shares {
            self.policy.rest()?;
        }
        Ok((version, collected))
    }

    fn examine(
        &mut self,
        tasks: &[Arc<Task>],
        examination: &Examination,
        temperature: f64,
    ) -> Result<Examined, TrainError> {
        self.take_published()?;
        self.policy.responses.temperature = temperature;
        let news = &self.news;
        let mut tell = |event| drop(news.send(News::Event(event)));
        let examined = examine(&mut self.collector, &mut self.policy, tasks, examination, &mut tell)?;
        if self.shares {
            self.policy.rest()?;
        }
        Ok(examined)
    }

    fn take_published(&mut self) -> Result<PolicyVersion, TrainError> {
        use crate::policy::Policy;
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner).take();
        match published {
            Some(Published { copy: Some(weights), version }) => self.policy.update(&weights, version)?,
            Some(Published { copy: None, version }) => self.policy.refresh(version)?,
            // what was computed before must not show: a run that goes on from a checkpoint begins here, too
            None => self.policy.refresh(self.policy.version())?,
        }
        Ok(self.policy.version())
    }
}
