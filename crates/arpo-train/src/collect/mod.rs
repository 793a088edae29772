//! Collecting: groups of episodes on many desktops in parallel.
//!
//! One thread per desktop, the caller's thread for the policy, and the collector's thread between them, which never waits
//! for a single desktop. A desktop that fails or overruns loses its episode and is replaced; the run continues.
//!
//! | to change | look in |
//! |---|---|
//! | synchronisation: who waits for whom | `synchronisation` |
//! | the next call of an episode, lost episodes and their replacement | `session`, `state` |
//! | replacing, back-off, quarantine, deadlines | `pool` |
//! | what a desktop does on its thread, which screenshots are rejected | `desktop` |
//! | how responses are generated | `generation` |
//! | the statistics of a collection | [`report`] |
//! | what desktops are doing now | [`board`] |
//! | which episodes are collected | [`plan`] |

pub mod board;
mod desktop;
mod generation;
pub mod plan;
mod pool;
pub mod report;
mod session;
mod state;
mod synchronisation;

pub use plan::{GroupPlan, GroupSize, Planner, Worlds};
pub use report::{CollectReport, FailureKind, HostReport};

use crate::TrainError;
use crate::episode::CompletedEpisode;
use crate::memory::guarded;
use crate::policy::Policy;
use crate::run::stop::StopSwitch;
use arpo_core::config::{Config, Order};
use arpo_core::task::TaskId;
use arpo_suite::EnvironmentSource;
use board::Board;
use pool::Pool;
use serde::Serialize;
use session::Session;
use state::{ActiveEpisode, GroupState, QueuedEpisode};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// What helps if the policy runs out of memory.
pub(crate) const MEMORY_ADVICE: &str = "a smaller `model.cache_gib`, `collect.running` or `model.memory_gib`";

/// How episodes are collected.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectOptions {
    /// Synchronisation: who waits for whom.
    pub order: Order,
    /// Most concurrent episodes; `None`: as many as fit into the policy's cache.
    pub running: Option<usize>,
    /// Longest start of a desktop.
    pub start: Duration,
    /// Longest reset.
    pub reset: Duration,
    /// Longest action.
    pub step: Duration,
    /// Longest evaluation.
    pub evaluate: Duration,
    /// Wait after a second failure in a row; doubles with each further one.
    pub back_off: Duration,
    /// Failures in a row after which a desktop is not replaced.
    pub quarantine_after: usize,
    /// Evaluate the desktop even if an unparsable response ended the episode.
    pub evaluate_unparsable: bool,
    /// Keep the screenshots of episodes that have ended; otherwise only what refers to them. Those of an episode of 15 turns take
    /// megabytes, and a collection has thousands of episodes.
    pub keep_screens: bool,
}

impl From<&Config> for CollectOptions {
    fn from(config: &Config) -> Self {
        let evaluate_unparsable = config.reward.judge_unparsable;
        let config = &config.collect;
        Self {
            evaluate_unparsable,
            keep_screens: true,
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

/// An episode that a failure ended; its trajectory is incomplete and never trained on.
#[derive(Debug, Clone)]
pub struct LostEpisode {
    /// Its steps until the failure.
    pub episode: CompletedEpisode,
    /// What failed.
    pub kind: FailureKind,
    /// The desktop's error message.
    pub reason: String,
}

/// A collected group.
#[derive(Debug, Clone)]
pub struct CompletedGroup {
    /// Its task.
    pub task: TaskId,
    /// Completed episodes, in the order of their plans; fewer than planned if too many were lost.
    pub episodes: Vec<CompletedEpisode>,
    /// Episodes that a failure ended.
    pub lost: Vec<LostEpisode>,
    /// Why the task cannot be set up or evaluated, if so; the remaining episodes were dropped.
    pub bad_task: Option<String>,
}

/// The groups of a collection.
#[derive(Debug, Clone)]
pub struct Collected {
    /// In the order of their plans.
    pub groups: Vec<CompletedGroup>,
    /// Statistics.
    pub report: CollectReport,
}

/// A progress event of a collection.
#[derive(Debug, Clone, PartialEq)]
pub enum CollectEvent {
    /// An episode has ended.
    Ended {
        /// Its task.
        task: TaskId,
        /// Its score; `None` if a failure ended it.
        score: Option<f64>,
        /// Active episodes.
        running: usize,
        /// Episodes that have not begun.
        waiting: usize,
    },
    /// A desktop failed, or a task cannot be set up or evaluated.
    Failed(DesktopFailure),
}

/// A failure of a desktop, or of a task on it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DesktopFailure {
    /// Which desktop.
    pub desktop: usize,
    /// The task of its episode, if it had one.
    pub task: Option<TaskId>,
    /// How it failed.
    pub kind: FailureKind,
    /// Error message.
    pub reason: String,
    /// What is done about it.
    pub remedy: Remedy,
}

/// What is done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Another desktop takes its slot after this many seconds.
    Replaced {
        /// 0 for at once.
        after_seconds: f64,
    },
    /// It failed too often in a row and is not replaced until the next collection.
    Quarantined,
    /// The desktop is healthy; the task is skipped.
    TaskSkipped,
    /// The desktop is healthy; a refill takes the place of the episode.
    EpisodeReplaced,
    /// The desktop is healthy; no refill is left, and the group stays smaller.
    EpisodeDropped,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replaced { after_seconds } if *after_seconds < 0.5 => f.write_str("replaced"),
            Self::Replaced { after_seconds } => write!(f, "replaced in {after_seconds:.0} s"),
            Self::Quarantined => f.write_str("quarantined for the rest of this collection"),
            Self::TaskSkipped => f.write_str("the task is skipped"),
            Self::EpisodeReplaced => f.write_str("another episode takes its place"),
            Self::EpisodeDropped => f.write_str("no refill is left, so its group stays smaller"),
        }
    }
}

/// Collects episodes on the desktops of a source.
#[derive(Debug)]
pub struct Collector {
    /// How episodes are collected; may be changed between collections.
    pub options: CollectOptions,
    pool: Pool,
    /// Most desktops.
    most: usize,
    /// Episodes reset in advance for the next collection, by number.
    ahead: BTreeMap<u64, ActiveEpisode>,
    /// The groups of the last collection, if it did not come to its end.
    unfinished: Vec<GroupState>,
    next_number: u64,
    collections: u64,
    stop: StopSwitch,
    board: Arc<Board>,
    /// Declared after the pool, so that desktops are dropped first.
    source: ClosedOnDrop,
}

/// Closes a source once, however the collector ends.
struct ClosedOnDrop(Option<Arc<dyn EnvironmentSource>>);

impl fmt::Debug for ClosedOnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClosedOnDrop")
    }
}

impl ClosedOnDrop {
    fn close(&mut self) -> Result<(), TrainError> {
        self.0.take().map_or(Ok(()), |source| Ok(source.close()?))
    }
}

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        // callers that need the error use `Collector::close`; leftovers are removed at the next start
        let _ = self.close();
    }
}

impl Collector {
    /// A collector with this many desktops, or as many as the source has room for; they start with the first collection.
    pub fn new(source: Arc<dyn EnvironmentSource>, desktops: usize, options: CollectOptions) -> Self {
        let most = desktops.max(1);
        let pool = Pool::new(Arc::clone(&source), most);
        let (stop, board, source) = (StopSwitch::default(), Arc::default(), ClosedOnDrop(Some(source)));
        let (ahead, unfinished, next_number, collections) = (BTreeMap::new(), vec![], 0, 0);
        Self { options, pool, most, ahead, unfinished, next_number, collections, stop, board, source }
    }

    /// Where to ask what the desktops are doing.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Abandons its episodes with [`TrainError::Interrupted`] once the switch is on.
    #[must_use]
    pub fn stopped_by(self, stop: StopSwitch) -> Self {
        Self { stop, ..self }
    }

    /// Shuts all desktops down; an error names what could not be removed.
    pub fn close(self) -> Result<(), TrainError> {
        let Self { pool, mut source, .. } = self;
        drop(pool);
        source.close()
    }

    /// Resets free desktops for the first episodes of the next collection without waiting for them, so that the resets
    /// overlap with an update. Does nothing if called twice, or before the first collection.
    pub fn prepare(&mut self, groups: &[GroupPlan]) {
        if !self.ahead.is_empty() {
            return;
        }
        let plans = groups.iter().flat_map(|group| &group.episodes);
        for (slot, plan) in self.pool.idle().into_iter().zip(plans) {
            let queued = QueuedEpisode { group: 0, index: 0, plan: Arc::new(plan.clone()) };
            let (number, limit) = (self.next_number, self.options.reset);
            self.next_number += 1;
            self.pool.call(slot, number, queued.reset(limit), limit);
            self.ahead.insert(number, ActiveEpisode { ahead: true, ..ActiveEpisode::new(slot, queued) });
        }
    }

    /// Runs all episodes of the groups.
    pub fn collect(
        &mut self,
        policy: &mut dyn Policy,
        groups: Vec<GroupPlan>,
        progress: &mut (dyn FnMut(CollectEvent) + Send),
    ) -> Result<Collected, TrainError> {
        self.collections += 1;
        let collection = self.collections;
        // workers may have joined
        self.pool.grow(self.most);
        let hosts = self.pool.hosts();
        let (messages, inbox) = channel();
        let events = self.pool.events();
        let running = self.options.running.or_else(|| policy.max_episodes());
        let before = policy.cache_use();
        let mut unfinished = vec![];
        let run = || {
            std::thread::scope(|scope| {
                let session = scope.spawn(|| {
                    let mut session = Session::new(self, groups, running, messages, progress);
                    match session.run() {
                        Ok(()) => Ok(session.end()),
                        Err(error) => {
                            if matches!(error, TrainError::Interrupted) {
                                unfinished = session.into_groups();
                            }
                            Err(error)
                        }
                    }
                });
                // on the caller's thread, because libraries cache decisions about shapes per thread: the next
                // collection reuses them
                generation::serve(policy, &inbox, &events, collection);
                session.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        };
        let result = guarded("collecting", MEMORY_ADVICE, run);
        policy.cancel_all();
        self.unfinished = unfinished;
        let (groups, tally): (Vec<GroupState>, _) = result?;
        let (cache, closed) = (policy.cache_use(), tally.closed(self.pool.len()));
        let (cache_hits, recomputed) = (cache.hits - before.hits, cache.recomputed - before.recomputed);
        let hosts = report::hosts_between(&hosts, self.pool.hosts());
        let report = CollectReport { cache_hits, recomputed, hosts, ..closed };
        let groups = groups.into_iter().map(|group| group.completed(policy)).collect::<Result<_, _>>()?;
        Ok(Collected { groups, report })
    }

    /// The groups of a collection that ended with [`TrainError::Interrupted`], with the episodes that had ended by then; the
    /// policy is the one they were collected with.
    pub fn take_ended(&mut self, policy: &dyn Policy) -> Result<Vec<CompletedGroup>, TrainError> {
        std::mem::take(&mut self.unfinished).into_iter().map(|group| group.completed(policy)).collect()
    }
}
