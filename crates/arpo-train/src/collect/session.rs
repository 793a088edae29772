//! One collection: what happens to each episode next. When it happens is decided by the order.
//!
//! An episode is reset, then asked about, answered and acted in turns, then judged. Four things can be done at any time,
//! each for all episodes that are ready for it and in the order of their numbers: [`Session::reset_idle`],
//! [`Session::ask_ready`], [`Session::act_answered`] and [`Session::evaluate_over`]. [`Session::handle`] takes in what
//! came of them.

use super::desktop::{Call, Done, Failure};
use super::plan::GroupPlan;
use super::pool::{News, Pool};
use super::report::{FailureKind, Tally};
use super::thinking::{Answered, Thought};
use super::{CollectEvent, CollectOptions, Collector, LostEpisode, PlayedGroup};
use crate::TrainError;
use crate::episode::{Ended, EpisodePlan, EpisodeTimings, History, on_screen};
use crate::policy::{Policy, Question, Ticket};
use arpo_agent::geometry::Size;
use arpo_agent::parse::parse;
use arpo_core::action::Action;
use arpo_core::task::TaskId;
use arpo_core::trajectory::Outcome;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
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
    group: usize,
    index: usize,
    actions: Vec<Vec<Action>>,
    /// It has been asked about.
    asked: bool,
    began: Instant,
    asked_at: Instant,
    timings: EpisodeTimings,
}

impl Living {
    fn ended(self, outcome: Outcome, score: f64) -> Ended {
        let timings = EpisodeTimings { total: self.began.elapsed(), ..self.timings };
        Ended { history: self.history, actions: self.actions, outcome, score, timings }
    }
}

/// An episode that has not begun.
#[derive(Debug)]
struct Waiting {
    group: usize,
    /// Its place in the group, spares behind the others.
    index: usize,
    plan: Arc<EpisodePlan>,
}

/// What has come of a group.
#[derive(Debug)]
pub(super) struct GroupState {
    task: TaskId,
    planned: usize,
    next_index: usize,
    spares: VecDeque<EpisodePlan>,
    ended: Vec<(usize, Ended)>,
    lost: Vec<(usize, Ended, Failure)>,
    bad_task: Option<String>,
}

impl GroupState {
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

/// One collection.
pub(super) struct Session<'a> {
    pub(super) options: &'a CollectOptions,
    pub(super) pool: &'a mut Pool,
    pub(super) living: BTreeMap<u64, Living>,
    /// Questions not yet answered.
    pub(super) thinking: usize,
    waiting: VecDeque<Waiting>,
    groups: Vec<GroupState>,
    questions: Sender<Vec<Question>>,
    tally: Tally,
    next_number: &'a mut u64,
    collection: u64,
    progress: &'a mut dyn FnMut(CollectEvent),
}

impl<'a> Session<'a> {
    pub(super) fn new(
        collector: &'a mut Collector,
        plans: Vec<GroupPlan>,
        questions: Sender<Vec<Question>>,
        progress: &'a mut dyn FnMut(CollectEvent),
    ) -> Self {
        let Collector { options, pool, ahead, next_number, collections } = collector;
        ahead.clear();
        pool.begin(|_| false);
        let mut waiting = VecDeque::new();
        let group = |(number, plan): (usize, GroupPlan)| {
            let planned = plan.episodes.len();
            waiting.extend(plan.episodes.into_iter().enumerate().map(|(index, plan)| Waiting {
                group: number,
                index,
                plan: Arc::new(plan),
            }));
            GroupState {
                task: plan.task.id.clone(),
                planned,
                next_index: planned,
                spares: plan.spares.into(),
                ended: vec![],
                lost: vec![],
                bad_task: None,
            }
        };
        let groups = plans.into_iter().enumerate().map(group).collect();
        Self {
            options,
            pool,
            living: BTreeMap::new(),
            thinking: 0,
            waiting,
            groups,
            questions,
            tally: Tally::default(),
            next_number,
            collection: *collections,
            progress,
        }
    }

    /// What has come of it.
    pub(super) fn end(mut self) -> (Vec<GroupState>, Tally) {
        let partial = |group: &&GroupState| group.ended.len() < group.planned;
        self.tally.report.partial_groups = self.groups.iter().filter(partial).count();
        self.tally.report.quarantined = self.pool.quarantined();
        (self.groups, self.tally)
    }

    /// Nothing is left to play.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.living.is_empty()
    }

    /// Episodes wait for a desktop.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// An error if episodes wait and no desktop can be had.
    pub(super) fn check_desktops(&self) -> Result<(), TrainError> {
        let desktops = self.pool.len();
        if self.has_waiting() && self.pool.quarantined() == desktops {
            return Err(TrainError::NoDesktop { desktops, reason: self.pool.last_failure().to_owned() });
        }
        Ok(())
    }

    /// The next episodes on free desktops.
    pub(super) fn reset_idle(&mut self) {
        for place in self.pool.idle() {
            let Some(Waiting { group, index, plan }) = self.waiting.pop_front() else { return };
            let number = *self.next_number;
            *self.next_number += 1;
            let now = Instant::now();
            let (task, seed) = (Arc::clone(&plan.task), plan.world_seed);
            let call = Call::Reset { task, seed, deadline: now + self.options.reset };
            self.pool.call(place, number, call, self.options.reset);
            let living = Living {
                place,
                history: History { plan, screens: vec![], answers: vec![] },
                stage: Stage::Resetting,
                group,
                index,
                actions: vec![],
                asked: false,
                began: now,
                asked_at: now,
                timings: EpisodeTimings::default(),
            };
            self.living.insert(number, living);
        }
    }

    /// Questions about all that is ready, in one message; episodes that would be too many do not begin yet.
    pub(super) fn ask_ready(&mut self) {
        let under_way =
            |one: &&Living| one.asked && !matches!(one.stage, Stage::Over(_) | Stage::Evaluating(_));
        let mut running = self.living.values().filter(under_way).count();
        let most = self.options.running.unwrap_or(usize::MAX);
        let mut batch = Vec::new();
        for (&number, living) in &mut self.living {
            if living.stage != Stage::Ready || (!living.asked && running >= most) {
                continue;
            }
            running += usize::from(!living.asked);
            living.asked = true;
            living.asked_at = Instant::now();
            living.stage = Stage::Thinking;
            batch.push(Question { ticket: Ticket(number), history: living.history.clone() });
        }
        self.thinking += batch.len();
        if !batch.is_empty() {
            // a policy that is gone has said so
            let _ = self.questions.send(batch);
        }
    }

    /// What was answered is done.
    pub(super) fn act_answered(&mut self) {
        let each = self.options.step;
        for (&number, living) in &mut self.living {
            if let Stage::Answered(actions) = &mut living.stage {
                let actions = std::mem::take(actions);
                let limit = each * u32::try_from(actions.len()).unwrap_or(u32::MAX);
                living.stage = Stage::Acting;
                self.pool.call(living.place, number, Call::Act { actions, each }, limit);
            }
        }
    }

    /// What is over is judged.
    pub(super) fn evaluate_over(&mut self) {
        let limit = self.options.evaluate;
        for (&number, living) in &mut self.living {
            if let Stage::Over(outcome) = &living.stage {
                living.stage = Stage::Evaluating(outcome.clone());
                let call = Call::Evaluate { deadline: Instant::now() + limit };
                self.pool.call(living.place, number, call, limit);
            }
        }
    }

    /// What is new; waits for it if `wait`.
    pub(super) fn news(&mut self, wait: bool) -> Result<Option<News>, TrainError> {
        let news = self.pool.news(self.options, &mut self.tally, wait);
        match news {
            Some(News::Policy(Thought::Failed(error))) => Err(error),
            Some(News::Policy(Thought::Gone { collection })) if collection == self.collection => {
                Err(TrainError::Options("the policy's thread ended".into()))
            }
            Some(News::Policy(Thought::Pass { answered, busy })) => {
                self.thinking -= answered.len().min(self.thinking);
                self.tally.report.passes += 1;
                self.tally.policy_busy += busy;
                Ok(Some(News::Policy(Thought::Pass { answered, busy })))
            }
            other => Ok(other),
        }
    }

    /// Takes in what is new.
    pub(super) fn handle(&mut self, news: News) {
        match news {
            News::Policy(Thought::Pass { answered, .. }) => {
                for answered in answered {
                    self.answered(answered);
                }
            }
            News::Policy(Thought::Failed(_) | Thought::Gone { .. }) => {}
            News::Call { place, episode, busy, result } => self.called(place, episode, busy, result),
        }
    }

    fn answered(&mut self, answered: Answered) {
        let Answered { ticket: Ticket(number), answer, seen } = answered;
        let Some(living) = self.living.get_mut(&number) else { return };
        living.timings.policy += living.asked_at.elapsed();
        self.tally.report.steps += 1;
        self.tally.report.tokens += answer.tokens.len();
        let parsed = if answer.complete {
            parse(&answer.text).map_err(|error| error.to_string())
        } else {
            Err(format!("too long: no end within {} tokens", answer.tokens.len()))
        };
        living.history.answers.push(Arc::new(answer));
        match parsed {
            Ok(response) => {
                let size = living.history.screens.last().map_or((0, 0), |screen| screen.image.dimensions());
                let screen = Size { width: size.0, height: size.1 };
                let actions = response.actions.iter().map(|action| on_screen(action, seen, screen)).collect();
                living.stage = Stage::Answered(actions);
                living.actions.push(response.actions);
            }
            Err(reason) => {
                living.actions.push(vec![]);
                self.finish(number, Outcome::Unparsable { reason }, 0.0);
            }
        }
    }

    fn called(&mut self, place: usize, episode: Option<u64>, busy: Duration, result: Result<Done, Failure>) {
        self.tally.desktops_busy += busy;
        if let Err(failure) = &result {
            self.tally.failure(failure.kind);
            let Failure { kind, reason } = failure.clone();
            (self.progress)(CollectEvent::Failed { desktop: place, kind, reason });
        }
        let Some((number, living)) = episode.and_then(|number| Some((number, self.living.get_mut(&number)?)))
        else {
            // a start, or an episode of a collection that was given up
            self.pool.release(place);
            return;
        };
        living.timings.desktop += busy;
        match result {
            Ok(Done::Started) => {}
            Ok(Done::Reset(screen)) => {
                living.history.screens.push(screen);
                living.stage = Stage::Ready;
            }
            Ok(Done::Acted { screen, terminated, truncated }) => {
                let History { plan, answers, screens } = &mut living.history;
                living.stage = if terminated {
                    Stage::Over(Outcome::Finished {})
                } else if truncated || answers.len() >= plan.max_steps {
                    Stage::Over(Outcome::StepLimit {})
                } else {
                    screens.push(screen);
                    Stage::Ready
                };
            }
            Ok(Done::Evaluated(score)) => {
                if let Stage::Evaluating(outcome) = living.stage.clone() {
                    self.finish(number, outcome, score);
                }
            }
            Err(failure) => self.lose(number, failure),
        }
    }

    fn finish(&mut self, number: u64, outcome: Outcome, score: f64) {
        let Some(living) = self.living.remove(&number) else { return };
        self.pool.release(living.place);
        self.tally.report.episodes += 1;
        let (group, index) = (living.group, living.index);
        self.groups[group].ended.push((index, living.ended(outcome, score)));
        self.tell(group, Some(score));
    }

    /// An episode whose desktop failed: another takes its place, unless the task is to blame or there are no more.
    fn lose(&mut self, number: u64, failure: Failure) {
        let Some(living) = self.living.remove(&number) else { return };
        self.pool.release(living.place);
        self.tally.report.lost += 1;
        let (number, index) = (living.group, living.index);
        let group = &mut self.groups[number];
        if failure.kind == FailureKind::BadTask {
            group.bad_task = Some(failure.reason.clone());
            group.spares.clear();
            self.waiting.retain(|waiting| waiting.group != number);
        } else if let Some(spare) = group.spares.pop_front() {
            let index = group.next_index;
            group.next_index += 1;
            self.tally.report.refilled += 1;
            self.waiting.push_front(Waiting { group: number, index, plan: Arc::new(spare) });
        }
        let outcome = Outcome::EnvironmentError { reason: format!("{}: {}", failure.kind, failure.reason) };
        group.lost.push((index, living.ended(outcome, 0.0), failure));
        self.tell(number, None);
    }

    fn tell(&mut self, group: usize, score: Option<f64>) {
        let task = self.groups[group].task.clone();
        let (running, waiting) = (self.living.len(), self.waiting.len());
        (self.progress)(CollectEvent::Ended { task, score, running, waiting });
    }
}
