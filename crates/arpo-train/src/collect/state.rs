//! What a collection knows of its episodes and groups: those that wait, those under way, those that have ended.

use super::desktop::{Call, Failure};
use super::plan::GroupPlan;
use super::{LostEpisode, PlayedGroup};
use crate::TrainError;
use crate::episode::{Ended, EpisodePlan, EpisodeTimings, History};
use crate::policy::Policy;
use arpo_core::action::Action;
use arpo_core::task::TaskId;
use arpo_core::trajectory::Outcome;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an episode waits for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stage {
    Resetting,
    /// To be asked about.
    Ready,
    Thinking,
    /// To be acted, in pixels of the screen.
    Answered(Vec<Action>),
    Acting,
    /// To be judged.
    Over(Outcome),
    Evaluating(Outcome),
}

/// An episode under way.
#[derive(Debug)]
pub(super) struct Living {
    pub(super) place: usize,
    pub(super) history: History,
    pub(super) stage: Stage,
    pub(super) group: usize,
    pub(super) index: usize,
    pub(super) actions: Vec<Vec<Action>>,
    /// It was reset before the collection began.
    pub(super) ahead: bool,
    /// It has been asked about.
    pub(super) asked: bool,
    pub(super) asked_at: Instant,
    pub(super) timings: EpisodeTimings,
    pub(super) began: Instant,
}

impl Living {
    /// An episode that is being reset on the desktop at `place`.
    pub(super) fn new(place: usize, waiting: Waiting) -> Self {
        let Waiting { group, index, plan } = waiting;
        let now = Instant::now();
        Self {
            place,
            history: History { plan, screens: vec![], answers: vec![] },
            stage: Stage::Resetting,
            group,
            index,
            actions: vec![],
            ahead: false,
            asked: false,
            asked_at: now,
            timings: EpisodeTimings::default(),
            began: now,
        }
    }

    pub(super) fn ended(self, outcome: Outcome, score: f64) -> Ended {
        let timings = EpisodeTimings { total: self.began.elapsed(), ..self.timings };
        Ended { history: self.history, actions: self.actions, outcome, score, timings }
    }
}

/// An episode that has not begun.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) group: usize,
    /// Its place in the group, spares behind the others.
    pub(super) index: usize,
    pub(super) plan: Arc<EpisodePlan>,
}

impl Waiting {
    /// How its desktop is reset.
    pub(super) fn reset(&self, limit: Duration) -> Call {
        let (task, seed) = (Arc::clone(&self.plan.task), self.plan.world_seed);
        Call::Reset { task, seed, deadline: Instant::now() + limit }
    }
}

/// What has come of a group.
#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) task: TaskId,
    pub(super) ended: Vec<(usize, Ended)>,
    pub(super) lost: Vec<(usize, Ended, Failure)>,
    pub(super) bad_task: Option<String>,
    planned: usize,
    next_index: usize,
    spares: VecDeque<EpisodePlan>,
}

impl GroupState {
    /// The `number`-th group, and its episodes.
    pub(super) fn new(number: usize, plan: GroupPlan) -> (Self, impl Iterator<Item = Waiting>) {
        let planned = plan.episodes.len();
        let group = Self {
            task: plan.task.id.clone(),
            ended: vec![],
            lost: vec![],
            bad_task: None,
            planned,
            next_index: planned,
            spares: plan.spares.into(),
        };
        let waiting = move |(index, plan)| Waiting { group: number, index, plan: Arc::new(plan) };
        (group, plan.episodes.into_iter().enumerate().map(waiting))
    }

    /// It came to nothing, or to less than was planned.
    pub(super) fn is_partial(&self) -> bool {
        self.ended.len() < self.planned
    }

    /// An episode in the place of a lost one, if there is another; `number` is the group's.
    pub(super) fn spare(&mut self, number: usize) -> Option<Waiting> {
        let plan = Arc::new(self.spares.pop_front()?);
        let index = self.next_index;
        self.next_index += 1;
        Some(Waiting { group: number, index, plan })
    }

    /// The task cannot be played: no more is tried.
    pub(super) fn give_up(&mut self, reason: String) {
        self.bad_task = Some(reason);
        self.spares.clear();
    }

    /// Writes its episodes down.
    pub(super) fn played(mut self, policy: &dyn Policy) -> Result<PlayedGroup, TrainError> {
        self.ended.sort_by_key(|(index, _)| *index);
        self.lost.sort_by_key(|(index, ..)| *index);
        let version = policy.version();
        let play = |ended: Ended| ended.played(version, |history| policy.transcript(history));
        let lose = |(_, ended, Failure { kind, reason }): (_, Ended, _)| {
            Ok(LostEpisode { played: play(ended)?, kind, reason })
        };
        Ok(PlayedGroup {
            task: self.task,
            episodes: self.ended.into_iter().map(|(_, ended)| play(ended)).collect::<Result<_, _>>()?,
            lost: self.lost.into_iter().map(lose).collect::<Result<_, TrainError>>()?,
            bad_task: self.bad_task,
        })
    }
}
