//! One collection: what happens to each episode next. When it happens is decided by the order.
//!
//! An episode is reset, then asked about, answered and acted in turns, then judged. Four things can be done at any time,
//! each for all episodes that are ready for it and in the order of their numbers: [`Session::reset_idle`],
//! [`Session::ask_ready`], [`Session::act_answered`] and [`Session::evaluate_over`]. [`Session::handle`] takes in what
//! came of them.

use super::desktop::{Call, Done, Failure};
use super::plan::GroupPlan;
use super::pool::{Failed, News, Pool};
use super::report::{FailureKind, Tally};
use super::state::{GroupState, Living, Stage, Waiting};
use super::thinking::{Answered, Thought, Told};
use super::{CollectEvent, CollectOptions, Collector, DesktopFailure};
use crate::TrainError;
use crate::episode::{History, on_screen};
use crate::policy::{Question, Ticket};
use crate::run::stop::StopSwitch;
use arpo_agent::geometry::Size;
use arpo_agent::parse::parse;
use arpo_core::trajectory::Outcome;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// One collection.
pub(super) struct Session<'a> {
    pub(super) options: &'a CollectOptions,
    /// Episodes under way at once at most.
    running: usize,
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
    stop: &'a StopSwitch,
    progress: &'a mut (dyn FnMut(CollectEvent) + Send),
}

impl<'a> Session<'a> {
    pub(super) fn new(
        collector: &'a mut Collector,
        plans: Vec<GroupPlan>,
        running: Option<usize>,
        questions: Sender<Vec<Question>>,
        progress: &'a mut (dyn FnMut(CollectEvent) + Send),
    ) -> Self {
        let Collector { options, pool, ahead, next_number, collections, stop, .. } = collector;
        let (mut waiting, mut groups) = (VecDeque::new(), Vec::new());
        for (number, plan) in plans.into_iter().enumerate() {
            let (group, episodes) = GroupState::new(number, plan);
            groups.push(group);
            waiting.extend(episodes);
        }
        let mut living = BTreeMap::new();
        // what was begun ahead and is not wanted is let go when its reset ends
        for (number, mut begun) in std::mem::take(ahead) {
            let wanted = |one: &Waiting| one.plan == begun.history.plan;
            if let Some(one) = waiting.iter().position(wanted).and_then(|at| waiting.remove(at)) {
                (begun.group, begun.index) = (one.group, one.index);
                living.insert(number, begun);
            }
        }
        pool.begin();
        Self {
            options,
            running: running.unwrap_or(usize::MAX),
            pool,
            living,
            thinking: 0,
            waiting,
            groups,
            questions,
            tally: Tally::default(),
            next_number,
            collection: *collections,
            stop,
            progress,
        }
    }

    /// What has come of it.
    pub(super) fn end(mut self) -> (Vec<GroupState>, Tally) {
        self.tally.report.partial_groups = self.groups.iter().filter(|group| group.is_partial()).count();
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
            let Some(waiting) = self.waiting.pop_front() else { return };
            let number = *self.next_number;
            *self.next_number += 1;
            self.pool.call(place, number, waiting.reset(self.options.reset), self.options.reset);
            self.living.insert(number, Living::new(place, waiting));
            if self.waiting.is_empty() {
                self.tally.all_begun(self.pool.in_calls());
            }
        }
    }

    /// Questions about all that is ready, in one message; episodes that would be too many do not begin yet.
    pub(super) fn ask_ready(&mut self) {
        let under_way =
            |one: &&Living| one.asked && !matches!(one.stage, Stage::Over(_) | Stage::Evaluating(_));
        let mut running = self.living.values().filter(under_way).count();
        let mut batch = Vec::new();
        for (&number, living) in &mut self.living {
            if living.stage != Stage::Ready || (!living.asked && running >= self.running) {
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
            let (Stage::Answered(actions), Some(answer)) = (&mut living.stage, living.history.answers.last())
            else {
                continue;
            };
            let (answer, actions) = (Arc::clone(answer), std::mem::take(actions));
            let limit = each * u32::try_from(actions.len()).unwrap_or(u32::MAX);
            living.stage = Stage::Acting;
            self.pool.call(living.place, number, Call::Act { answer, actions, each }, limit);
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
        loop {
            if self.stop.asked() {
                return Err(TrainError::Interrupted);
            }
            match self.pool.news(self.options, &mut self.tally, wait, self.stop) {
                None if wait => {}
                Some(News::Policy(thought)) if thought.collection != self.collection => {}
                Some(News::Policy(Thought { what: Told::Failed(error), .. })) => return Err(error),
                Some(News::Policy(Thought { what: Told::Gone, .. })) => {
                    return Err(TrainError::Options("the policy stopped thinking".into()));
                }
                news => {
                    if let Some(News::Policy(Thought { what: Told::Pass { answered, busy }, .. })) = &news {
                        self.thinking -= answered.len();
                        self.tally.report.passes += 1;
                        self.tally.policy_busy += *busy;
                    }
                    return Ok(news);
                }
            }
        }
    }

    /// Takes in what is new.
    pub(super) fn handle(&mut self, news: News) {
        match news {
            News::Policy(Thought { what: Told::Pass { answered, .. }, .. }) => {
                for answered in answered {
                    self.answered(answered);
                }
            }
            News::Policy(_) => {}
            News::Call { place, episode, busy, result } => self.called(place, episode, busy, result),
        }
    }

    fn answered(&mut self, answered: Answered) {
        let Answered { ticket: Ticket(number), answer, seen } = answered;
        let Some(living) = self.living.get_mut(&number) else { return };
        living.timings.policy += living.asked_at.elapsed();
        self.tally.report.steps += 1;
        self.tally.report.tokens += answer.tokens.len();
        // one that was cut off may have said all that matters
        let parsed = parse(&answer.text).map_err(|error| {
            if answer.complete {
                error.to_string()
            } else {
                format!("too long: no end within {} tokens; {error}", answer.tokens.len())
            }
        });
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
                let outcome = Outcome::Unparsable { reason };
                if self.options.judge_unparsable {
                    living.stage = Stage::Over(outcome);
                } else {
                    self.finish(number, outcome, 0.0);
                }
            }
        }
    }

    fn called(&mut self, place: usize, episode: Option<u64>, busy: Duration, result: Result<Done, Failed>) {
        if let Err(Failed { failure, remedy }) = &result {
            self.tally.failure(failure.kind);
            let Failure { kind, reason } = failure.clone();
            let living = episode.and_then(|number| self.living.get(&number));
            let task = living.map(|living| self.groups[living.group].task.clone());
            let failed = DesktopFailure { desktop: place, task, kind, reason, remedy: *remedy };
            (self.progress)(CollectEvent::Failed(failed));
        }
        let Some((number, living)) = episode.and_then(|number| Some((number, self.living.get_mut(&number)?)))
        else {
            // a start, or an episode of a collection that was given up
            self.tally.desktops_busy += busy;
            self.pool.release(place);
            return;
        };
        living.timings.desktop += busy;
        // a reset before this collection is no work of it
        if !std::mem::take(&mut living.ahead) {
            self.tally.desktops_busy += busy;
        }
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
            Err(Failed { failure, .. }) => self.lose(number, failure),
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
        let (number, index) = (living.group, living.index);
        let group = &mut self.groups[number];
        if failure.kind == FailureKind::BadTask {
            self.tally.report.unplayable += 1;
            group.give_up(failure.reason.clone());
            self.waiting.retain(|waiting| waiting.group != number);
        } else {
            self.tally.report.lost += 1;
            if let Some(spare) = group.spare(number) {
                self.tally.report.refilled += 1;
                self.waiting.push_front(spare);
            }
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
