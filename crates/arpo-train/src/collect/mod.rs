//! Collecting: groups of episodes played on many desktops at once.
//!
//! One thread for each desktop, the caller's for the policy, and the collector's between them, which never waits for any
//! one of them. A desktop that fails or overruns loses its episode and is replaced; the run goes on.
//!
//! | to change | look in |
//! |---|---|
//! | who waits for whom | `order` |
//! | what happens to an episode next, what is lost and refilled | `session`, `state` |
//! | replacing, back-off, quarantine, deadlines | `pool` |
//! | what a desktop does in its thread, which screenshots are none | `desktop` |
//! | how the policy is asked | `thinking` |
//! | what is told in the end | [`report`] |
//! | what is to be played | [`plan`] |

mod desktop;
mod order;
pub mod plan;
mod pool;
pub mod report;
mod session;
mod state;
mod thinking;

pub use desktop::DesktopFactory;
pub use plan::{GroupPlan, PlanOptions};
pub use report::{CollectReport, FailureKind};

use crate::TrainError;
use crate::episode::PlayedEpisode;
use crate::memory::guarded;
use crate::policy::Policy;
use crate::run::stop::StopSwitch;
use arpo_core::config::{Config, Order};
use arpo_core::task::TaskId;
use pool::Pool;
use serde::Serialize;
use session::Session;
use state::{GroupState, Living, Waiting};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How episodes are collected.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectOptions {
    /// Who waits for whom.
    pub order: Order,
    /// Episodes under way at once at most; `None`: as many as the policy has room for.
    pub running: Option<usize>,
    /// Longest start of a desktop.
    pub start: Duration,
    /// Longest reset.
    pub reset: Duration,
    /// Longest action.
    pub step: Duration,
    /// Longest evaluation.
    pub evaluate: Duration,
    /// Rest after a second failure in a row; doubles with each further one.
    pub back_off: Duration,
    /// Failures in a row after which a desktop is not replaced.
    pub quarantine_after: usize,
    /// The desktop is judged also where an unparsable response ended the episode.
    pub judge_unparsable: bool,
}

impl From<&Config> for CollectOptions {
    fn from(config: &Config) -> Self {
        let judge_unparsable = config.reward.judge_unparsable;
        let config = &config.collect;
        Self {
            judge_unparsable,
            order: config.order,
            running: (config.running > 0).then_some(config.running),
            start: Duration::from_secs_f64(config.start_seconds),
            reset: Duration::from_secs_f64(config.reset_seconds),
            step: Duration::from_secs_f64(config.step_seconds),
            evaluate: Duration::from_secs_f64(config.evaluate_seconds),
            back_off: Duration::from_secs_f64(config.back_off_seconds),
            quarantine_after: config.quarantine_after,
        }
    }
}

/// An episode that a failure ended; its trajectory goes as far as it came and is not for training.
#[derive(Debug, Clone)]
pub struct LostEpisode {
    /// As far as it came.
    pub played: PlayedEpisode,
    /// What failed.
    pub kind: FailureKind,
    /// In the desktop's words.
    pub reason: String,
}

/// A group that was played.
#[derive(Debug, Clone)]
pub struct PlayedGroup {
    /// Its task.
    pub task: TaskId,
    /// Episodes that came to their own end, in the order of their plans; fewer than planned if too many were lost.
    pub episodes: Vec<PlayedEpisode>,
    /// Episodes that did not.
    pub lost: Vec<LostEpisode>,
    /// Why the task cannot be set up or judged, if so; what had not begun was not played.
    pub bad_task: Option<String>,
}

/// What was collected.
#[derive(Debug, Clone)]
pub struct Collected {
    /// In the order of their plans.
    pub groups: Vec<PlayedGroup>,
    /// What it was like.
    pub report: CollectReport,
}

/// Something to show while episodes are collected.
#[derive(Debug, Clone, PartialEq)]
pub enum CollectEvent {
    /// An episode has ended.
    Ended {
        /// Its task.
        task: TaskId,
        /// Its score; `None` if a failure ended it.
        score: Option<f64>,
        /// Episodes under way.
        running: usize,
        /// Episodes that still have to begin.
        waiting: usize,
    },
    /// A desktop failed, or a task cannot be played.
    Failed(DesktopFailure),
}

/// A failure of a desktop, or of a task on it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DesktopFailure {
    /// Which desktop.
    pub desktop: usize,
    /// What was played on it, if anything was.
    pub task: Option<TaskId>,
    /// How it failed.
    pub kind: FailureKind,
    /// In its words.
    pub reason: String,
    /// What is done about it.
    pub remedy: Remedy,
}

/// What is done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Another desktop takes its place after so many seconds.
    Replaced {
        /// 0 for at once.
        after_seconds: f64,
    },
    /// It failed too often in a row and is not replaced until the next collection.
    Quarantined,
    /// The desktop is well; the task is not played.
    TaskLeftOut,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replaced { after_seconds } if *after_seconds < 0.5 => f.write_str("replaced"),
            Self::Replaced { after_seconds } => write!(f, "replaced in {after_seconds:.0} s"),
            Self::Quarantined => f.write_str("not replaced any more in this collection"),
            Self::TaskLeftOut => f.write_str("the task is left out"),
        }
    }
}

/// Desktops, and how episodes are played on them.
#[derive(Debug)]
pub struct Collector {
    /// How episodes are collected; may be changed between collections.
    pub options: CollectOptions,
    pool: Pool,
    /// Episodes begun for a collection to come, by their numbers.
    ahead: BTreeMap<u64, Living>,
    next_number: u64,
    collections: u64,
    stop: StopSwitch,
    /// After the pool, so that what desktops hold themselves is gone before.
    teardown: Option<Teardown>,
}

/// Removes what desktops may have left outside of this program.
pub type RemoveAll = dyn Fn() -> Result<(), TrainError> + Send + Sync;

/// Does so once, however the collector goes.
struct Teardown(Option<Arc<RemoveAll>>);

impl fmt::Debug for Teardown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teardown")
    }
}

impl Teardown {
    fn now(&mut self) -> Result<(), TrainError> {
        self.0.take().map_or(Ok(()), |remove| remove())
    }
}

impl Drop for Teardown {
    fn drop(&mut self) {
        // whoever wants to know closes the collector; what is left is removed by the next start
        let _ = self.now();
    }
}

impl Collector {
    /// A collector with so many desktops; they start with the first collection.
    pub fn new(factory: Arc<DesktopFactory>, desktops: usize, options: CollectOptions) -> Self {
        let pool = Pool::new(factory, desktops.max(1));
        let (stop, teardown) = (StopSwitch::default(), None);
        Self { options, pool, ahead: BTreeMap::new(), next_number: 0, collections: 0, stop, teardown }
    }

    /// The same that gives its episodes up, with [`TrainError::Interrupted`], once a switch is on.
    #[must_use]
    pub fn stopped_by(self, stop: StopSwitch) -> Self {
        Self { stop, ..self }
    }

    /// The same that removes what its desktops leave outside of this program, when it goes.
    #[must_use]
    pub fn removing(self, all: Arc<RemoveAll>) -> Self {
        Self { teardown: Some(Teardown(Some(all))), ..self }
    }

    /// Ends all desktops; says what could not be removed.
    pub fn close(self) -> Result<(), TrainError> {
        let Self { pool, teardown, .. } = self;
        drop(pool);
        teardown.map_or(Ok(()), |mut teardown| teardown.now())
    }

    /// Resets free desktops for the first episodes of a collection to come, and does not wait for them: the desktops get
    /// ready while a learner works. Does nothing if that has been done already, or before the first collection.
    pub fn prepare(&mut self, groups: &[GroupPlan]) {
        if !self.ahead.is_empty() {
            return;
        }
        let plans = groups.iter().flat_map(|group| &group.episodes);
        for (place, plan) in self.pool.idle().into_iter().zip(plans) {
            let waiting = Waiting { group: 0, index: 0, plan: Arc::new(plan.clone()) };
            let (number, limit) = (self.next_number, self.options.reset);
            self.next_number += 1;
            self.pool.call(place, number, waiting.reset(limit), limit);
            self.ahead.insert(number, Living { ahead: true, ..Living::new(place, waiting) });
        }
    }

    /// Plays groups to their ends.
    pub fn collect(
        &mut self,
        policy: &mut dyn Policy,
        groups: Vec<GroupPlan>,
        progress: &mut (dyn FnMut(CollectEvent) + Send),
    ) -> Result<Collected, TrainError> {
        self.collections += 1;
        let collection = self.collections;
        let (questions, inbox) = channel();
        let events = self.pool.events();
        let running = self.options.running.or_else(|| policy.capacity());
        let before = policy.cache_use();
        let less = "a smaller `model.cache_gib`, `collect.running` or `model.memory_gib`";
        let play = || {
            std::thread::scope(|scope| {
                let playing = scope.spawn(|| {
                    let mut session = Session::new(self, groups, running, questions, progress);
                    session.play()?;
                    Ok(session.end())
                });
                // here, because libraries keep what they have found out about shapes for the thread that asks: the next
                // collection finds it
                thinking::think(policy, &inbox, &events, collection);
                playing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        };
        let result = guarded("collecting", less, play);
        policy.abandon();
        let (groups, tally): (Vec<GroupState>, _) = result?;
        let (cache, closed) = (policy.cache_use(), tally.closed(self.pool.len()));
        let (prompt_found, prompt_lost) = (cache.found - before.found, cache.lost - before.lost);
        let report = CollectReport { prompt_found, prompt_lost, ..closed };
        let groups = groups.into_iter().map(|group| group.played(policy)).collect::<Result<_, _>>()?;
        Ok(Collected { groups, report })
    }
}
