//! The state of a collection: its queued, active and ended episodes, and its groups.

use super::desktop::{Call, Failure};
use super::plan::GroupPlan;
use super::{CompletedGroup, LostEpisode};
use crate::TrainError;
use crate::episode::{Ended, EpisodePlan, EpisodeTimings, History};
use crate::policy::Policy;
use arpo_core::action::Action;
use arpo_core::task::TaskId;
use arpo_core::trajectory::Outcome;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The phase of an episode.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Phase {
    Resetting,
    /// A response is to be requested.
    Ready,
    Generating,
    /// Actions to execute, in pixels of the screen.
    ToAct(Vec<Action>),
    Acting,
    /// To be evaluated.
    ToEvaluate(Outcome),
    Evaluating(Outcome),
}

/// An active episode.
#[derive(Debug)]
pub(super) struct ActiveEpisode {
    /// The slot of its desktop.
    pub(super) slot: usize,
    pub(super) history: History,
    pub(super) phase: Phase,
    pub(super) group: usize,
    pub(super) index: usize,
    pub(super) actions: Vec<Vec<Action>>,
    /// It was reset before the collection began.
    pub(super) ahead: bool,
    /// A response has been requested.
    pub(super) requested: bool,
    pub(super) requested_at: Instant,
    pub(super) timings: EpisodeTimings,
    pub(super) began: Instant,
}

impl ActiveEpisode {
    /// An episode that is being reset on the desktop at `slot`.
    pub(super) fn new(slot: usize, queued: QueuedEpisode) -> Self {
        let QueuedEpisode { group, index, plan } = queued;
        let now = Instant::now();
        Self {
            slot,
            history: History { plan, screens: vec![], responses: vec![] },
            phase: Phase::Resetting,
            group,
            index,
            actions: vec![],
            ahead: false,
            requested: false,
            requested_at: now,
            timings: EpisodeTimings::default(),
            began: now,
        }
    }

    pub(super) fn ended(mut self, outcome: Outcome, score: f64, keep_screens: bool) -> Ended {
        let timings = EpisodeTimings { total: self.began.elapsed(), ..self.timings };
        if !keep_screens {
            for screen in &mut self.history.screens {
                *screen = screen.referred_to();
            }
        }
        Ended { history: self.history, actions: self.actions, outcome, score, timings }
    }
}

/// An episode that has not begun.
#[derive(Debug)]
pub(super) struct QueuedEpisode {
    pub(super) group: usize,
    /// Its index in the group; refills come after the others.
    pub(super) index: usize,
    pub(super) plan: Arc<EpisodePlan>,
}

impl QueuedEpisode {
    /// The call that resets its desktop.
    pub(super) fn reset(&self, limit: Duration) -> Call {
        let (task, seed) = (Arc::clone(&self.plan.task), self.plan.world_seed);
        Call::Reset { task, seed, deadline: Instant::now() + limit }
    }
}

/// The state of a group.
#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) task: TaskId,
    pub(super) ended: Vec<(usize, Ended)>,
    pub(super) lost: Vec<(usize, Ended, Failure)>,
    pub(super) bad_task: Option<String>,
    planned: usize,
    next_index: usize,
    refills: VecDeque<EpisodePlan>,
}

impl GroupState {
    /// The `number`-th group, and its episodes.
    pub(super) fn new(number: usize, plan: GroupPlan) -> (Self, impl Iterator<Item = QueuedEpisode>) {
        let planned = plan.episodes.len();
        let group = Self {
            task: plan.task.id.clone(),
            ended: vec![],
            lost: vec![],
            bad_task: None,
            planned,
            next_index: planned,
            refills: plan.refills.into(),
        };
        let queued = move |(index, plan)| QueuedEpisode { group: number, index, plan: Arc::new(plan) };
        (group, plan.episodes.into_iter().enumerate().map(queued))
    }

    /// Fewer episodes than planned were completed.
    pub(super) fn is_partial(&self) -> bool {
        self.ended.len() < self.planned
    }

    /// A refill is left.
    pub(super) fn has_refill(&self) -> bool {
        !self.refills.is_empty()
    }

    /// A replacement for a lost episode, if a refill is left; `number` is the group's.
    pub(super) fn next_refill(&mut self, number: usize) -> Option<QueuedEpisode> {
        let plan = Arc::new(self.refills.pop_front()?);
        let index = self.next_index;
        self.next_index += 1;
        Some(QueuedEpisode { group: number, index, plan })
    }

    /// Gives up on the group because its task cannot be set up or evaluated.
    pub(super) fn give_up(&mut self, reason: String) {
        self.bad_task = Some(reason);
        self.refills.clear();
    }

    /// Turns its episodes into trajectories.
    pub(super) fn completed(mut self, policy: &dyn Policy) -> Result<CompletedGroup, TrainError> {
        self.ended.sort_by_key(|(index, _)| *index);
        self.lost.sort_by_key(|(index, ..)| *index);
        let version = policy.version();
        let complete = |ended: Ended| ended.completed(version, |history| policy.transcript(history));
        let lose = |(_, ended, Failure { kind, reason }): (_, Ended, _)| {
            Ok(LostEpisode { episode: complete(ended)?, kind, reason })
        };
        Ok(CompletedGroup {
            task: self.task,
            episodes: self.ended.into_iter().map(|(_, ended)| complete(ended)).collect::<Result<_, _>>()?,
            lost: self.lost.into_iter().map(lose).collect::<Result<_, TrainError>>()?,
            bad_task: self.bad_task,
        })
    }
}
