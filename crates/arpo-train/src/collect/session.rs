//! One collection: the state machine of its episodes. `synchronisation` decides when each transition happens.
//!
//! An episode is a reset, then turns of a request, a response and its actions, then an evaluation. Four methods start
//! work, each for all episodes that are ready for it and in the order of their numbers: [`Session::start_resets`],
//! [`Session::request_responses`], [`Session::start_actions`] and [`Session::start_evaluations`]. [`Session::handle`]
//! handles the results.

use super::board::{Board, DesktopNow};
use super::desktop::{Call, Done, Failure};
use super::generation::{GeneratedResponse, PolicyEvent, PolicyMessage, PolicyReport};
use super::plan::GroupPlan;
use super::pool::{Failed, Pool, PoolEvent};
use super::report::{FailureKind, Tally};
use super::state::{ActiveEpisode, GroupState, Phase, QueuedEpisode};
use super::{CollectEvent, CollectOptions, Collector, DesktopFailure, Remedy};
use crate::TrainError;
use crate::episode::{EpisodeScreen, History};
use crate::policy::{GenerationRequest, RequestId};
use crate::run::stop::StopSwitch;
use arpo_agent::geometry::Size;
use arpo_core::trajectory::Outcome;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// One collection.
pub(super) struct Session<'a> {
    pub(super) options: &'a CollectOptions,
    /// Most concurrent episodes.
    running: usize,
    pub(super) pool: &'a mut Pool,
    pub(super) active: BTreeMap<u64, ActiveEpisode>,
    /// Pending requests.
    pub(super) generating: usize,
    waiting: VecDeque<QueuedEpisode>,
    groups: Vec<GroupState>,
    /// Messages to the policy.
    policy: Sender<PolicyMessage>,
    tally: Tally,
    next_number: &'a mut u64,
    collection: u64,
    stop: &'a StopSwitch,
    board: &'a Board,
    progress: &'a mut (dyn FnMut(CollectEvent) + Send),
}

impl<'a> Session<'a> {
    pub(super) fn new(
        collector: &'a mut Collector,
        plans: Vec<GroupPlan>,
        running: Option<usize>,
        policy: Sender<PolicyMessage>,
        progress: &'a mut (dyn FnMut(CollectEvent) + Send),
    ) -> Self {
        let Collector { options, pool, ahead, next_number, collections, stop, board, .. } = collector;
        let (mut waiting, mut groups) = (VecDeque::new(), Vec::new());
        for (number, plan) in plans.into_iter().enumerate() {
            let (group, episodes) = GroupState::new(number, plan);
            groups.push(group);
            waiting.extend(episodes);
        }
        let mut active = BTreeMap::new();
        // a desktop reset in advance for an episode that is not planned is released when its reset ends
        for (number, mut begun) in std::mem::take(ahead) {
            let wanted = |one: &QueuedEpisode| one.plan == begun.history.plan;
            if let Some(one) = waiting.iter().position(wanted).and_then(|at| waiting.remove(at)) {
                (begun.group, begun.index) = (one.group, one.index);
                active.insert(number, begun);
            }
        }
        pool.begin();
        Self {
            options,
            // with none at all, a collection would wait for ever
            running: running.unwrap_or(usize::MAX).max(1),
            pool,
            active,
            generating: 0,
            waiting,
            groups,
            policy,
            tally: Tally::default(),
            next_number,
            collection: *collections,
            stop,
            board,
            progress,
        }
    }

    /// The groups and statistics of the finished collection.
    pub(super) fn end(mut self) -> (Vec<GroupState>, Tally) {
        self.tally.report.partial_groups = self.groups.iter().filter(|group| group.is_partial()).count();
        self.tally.report.quarantined = self.pool.quarantined();
        // the last answer of a collection is not one of its middle
        self.board.ask();
        self.answer_board();
        (self.groups, self.tally)
    }

    /// The groups of a collection that did not come to its end, with the episodes that have ended.
    pub(super) fn into_groups(self) -> Vec<GroupState> {
        self.groups
    }

    /// No episode is queued or active.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.active.is_empty()
    }

    /// Episodes are queued for a desktop.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// An error if episodes are queued and all desktops are quarantined.
    pub(super) fn check_desktops(&self) -> Result<(), TrainError> {
        let desktops = self.pool.len();
        if self.has_waiting() && self.pool.quarantined() == desktops {
            return Err(TrainError::NoDesktop { desktops, reason: self.pool.last_failure().to_owned() });
        }
        Ok(())
    }

    /// Starts the next queued episodes on free desktops.
    pub(super) fn start_resets(&mut self) {
        for slot in self.pool.idle() {
            let Some(queued) = self.waiting.pop_front() else { return };
            let number = *self.next_number;
            *self.next_number += 1;
            self.pool.call(slot, number, queued.reset(self.options.reset), self.options.reset);
            self.active.insert(number, ActiveEpisode::new(slot, queued));
            if self.waiting.is_empty() {
                self.tally.all_begun(self.pool.in_calls());
            }
        }
    }

    /// Requests responses for all ready episodes, in one batch; new episodes beyond the limit of concurrent ones wait.
    pub(super) fn request_responses(&mut self) {
        let is_running = |one: &&ActiveEpisode| {
            one.requested && !matches!(one.phase, Phase::ToEvaluate(_) | Phase::Evaluating(_))
        };
        let mut running = self.active.values().filter(is_running).count();
        let mut batch = Vec::new();
        for (&number, active) in &mut self.active {
            if active.phase != Phase::Ready || (!active.requested && running >= self.running) {
                continue;
            }
            running += usize::from(!active.requested);
            active.requested = true;
            active.requested_at = Instant::now();
            active.phase = Phase::Generating;
            batch.push(GenerationRequest { id: RequestId(number), history: active.history.clone() });
        }
        self.generating += batch.len();
        if !batch.is_empty() {
            // a policy that has stopped has reported it
            let _ = self.policy.send(PolicyMessage::Requests(batch));
        }
    }

    /// Executes the actions of the responses.
    pub(super) fn start_actions(&mut self) {
        let each = self.options.step;
        for (&number, active) in &mut self.active {
            let (Phase::ToAct(actions), Some(response)) =
                (&mut active.phase, active.history.responses.last())
            else {
                continue;
            };
            let (response, actions) = (Arc::clone(response), std::mem::take(actions));
            let limit = each * u32::try_from(actions.len()).unwrap_or(u32::MAX);
            active.phase = Phase::Acting;
            self.pool.call(active.slot, number, Call::Act { response, actions, each }, limit);
        }
    }

    /// Evaluates the finished episodes.
    pub(super) fn start_evaluations(&mut self) {
        let limit = self.options.evaluate;
        for (&number, active) in &mut self.active {
            if let Phase::ToEvaluate(outcome) = &active.phase {
                active.phase = Phase::Evaluating(outcome.clone());
                let call = Call::Evaluate { deadline: Instant::now() + limit };
                self.pool.call(active.slot, number, call, limit);
            }
        }
    }

    /// The next event; waits for it if `wait`.
    pub(super) fn next_event(&mut self, wait: bool) -> Result<Option<PoolEvent>, TrainError> {
        loop {
            if self.stop.requested() {
                return Err(TrainError::Interrupted);
            }
            self.answer_board();
            match self.pool.next_event(self.options, &mut self.tally, wait, self.stop) {
                None if wait => {}
                Some(PoolEvent::Policy(event)) if event.collection != self.collection => {}
                Some(PoolEvent::Policy(PolicyEvent { what: PolicyReport::Failed(error), .. })) => {
                    return Err(error);
                }
                Some(PoolEvent::Policy(PolicyEvent { what: PolicyReport::Stopped, .. })) => {
                    return Err(TrainError::Internal(
                        "the policy stopped while requests were pending".into(),
                    ));
                }
                event => {
                    if let Some(PoolEvent::Policy(PolicyEvent {
                        what: PolicyReport::Step { completed, lost, busy },
                        ..
                    })) = &event
                    {
                        self.generating -= completed.len() + lost.len();
                        self.tally.report.passes += 1;
                        self.tally.policy_busy += *busy;
                    }
                    return Ok(event);
                }
            }
        }
    }

    /// Tells whoever has asked what the desktops are doing.
    fn answer_board(&self) {
        self.board.answer_if_asked(|| {
            let mut desktops = self.pool.states();
            for active in self.active.values() {
                if let Some(desktop) = desktops.get_mut(active.slot) {
                    *desktop = DesktopNow { host: desktop.host.take(), ..DesktopNow::in_episode(active) };
                }
            }
            desktops
        });
    }

    /// Handles an event.
    pub(super) fn handle(&mut self, event: PoolEvent) {
        match event {
            PoolEvent::Policy(PolicyEvent { what: PolicyReport::Step { completed, lost, .. }, .. }) => {
                for generated in completed {
                    self.on_response(generated);
                }
                for (RequestId(number), reason) in lost {
                    self.on_no_response(number, reason);
                }
            }
            PoolEvent::Policy(_) => {}
            PoolEvent::Call { slot, episode, busy, result } => self.on_call_done(slot, episode, busy, result),
        }
    }

    fn on_response(&mut self, generated: GeneratedResponse) {
        let GeneratedResponse { id: RequestId(number), response, format, seen } = generated;
        let Some(active) = self.active.get_mut(&number) else { return };
        active.timings.policy += active.requested_at.elapsed();
        self.tally.report.steps += 1;
        self.tally.report.tokens += response.tokens.len();
        // a response that was cut off may still hold its action
        let parsed = format.grammar.parse(&response.text).map_err(|error| {
            if response.complete {
                error.to_string()
            } else {
                format!("too long: no end within {} tokens; {error}", response.tokens.len())
            }
        });
        active.history.responses.push(Arc::new(response));
        match parsed {
            Ok(parsed) => {
                let size = active.history.screens.last().map_or((0, 0), EpisodeScreen::size);
                let screen = Size { width: size.0, height: size.1 };
                let on_screen = |action| format.coordinates.on_screen(action, seen, screen);
                let actions = parsed.actions.iter().map(on_screen).collect();
                active.phase = Phase::ToAct(actions);
                active.actions.push(parsed.actions);
            }
            Err(reason) => {
                active.actions.push(vec![]);
                let outcome = Outcome::Unparsable { reason };
                if self.options.evaluate_unparsable {
                    active.phase = Phase::ToEvaluate(outcome);
                } else {
                    self.finish(number, outcome, 0.0);
                }
            }
        }
    }

    /// Ends an episode whose response will not come. Its desktop is healthy.
    fn on_no_response(&mut self, number: u64, reason: String) {
        let Some(active) = self.active.get(&number) else { return };
        let kind = FailureKind::NoResponse;
        self.tally.failure(kind);
        let group = &self.groups[active.group];
        (self.progress)(CollectEvent::Failed(DesktopFailure {
            desktop: active.slot,
            task: Some(group.task.clone()),
            kind,
            reason: reason.clone(),
            remedy: if group.has_refill() { Remedy::EpisodeReplaced } else { Remedy::EpisodeDropped },
        }));
        self.fail_episode(number, Failure { kind, reason });
    }

    fn on_call_done(
        &mut self,
        slot: usize,
        episode: Option<u64>,
        busy: Duration,
        result: Result<Done, Failed>,
    ) {
        if let Err(Failed { failure, remedy }) = &result {
            self.tally.failure(failure.kind);
            let Failure { kind, reason } = failure.clone();
            let active = episode.and_then(|number| self.active.get(&number));
            let task = active.map(|active| self.groups[active.group].task.clone());
            let failed = DesktopFailure { desktop: slot, task, kind, reason, remedy: *remedy };
            (self.progress)(CollectEvent::Failed(failed));
        }
        let Some((number, active)) = episode.and_then(|number| Some((number, self.active.get_mut(&number)?)))
        else {
            // a start, or an episode of an abandoned collection
            self.tally.desktops_busy += busy;
            self.pool.release(slot);
            return;
        };
        active.timings.desktop += busy;
        // a reset before this collection does not count as its work
        if !std::mem::take(&mut active.ahead) {
            self.tally.desktops_busy += busy;
        }
        match result {
            Ok(Done::Started) => {}
            Ok(Done::Reset(screen)) => {
                active.history.screens.push(screen);
                active.phase = Phase::Ready;
            }
            Ok(Done::Acted { screen, terminated, truncated }) => {
                let History { plan, responses, screens } = &mut active.history;
                active.phase = if terminated {
                    Phase::ToEvaluate(Outcome::Finished {})
                } else if truncated || responses.len() >= plan.max_steps {
                    Phase::ToEvaluate(Outcome::StepLimit {})
                } else {
                    screens.push(screen);
                    Phase::Ready
                };
            }
            Ok(Done::Evaluated(score)) => {
                if let Phase::Evaluating(outcome) = active.phase.clone() {
                    self.finish(number, outcome, score);
                }
            }
            Err(Failed { failure, .. }) => self.fail_episode(number, failure),
        }
    }

    /// An episode that has ended: its desktop is free, and the policy may forget it.
    fn remove(&mut self, number: u64) -> Option<ActiveEpisode> {
        let active = self.active.remove(&number)?;
        self.pool.release(active.slot);
        // a policy that has stopped has reported it
        let _ = self.policy.send(PolicyMessage::Ended(active.history.plan.id.clone()));
        Some(active)
    }

    fn finish(&mut self, number: u64, outcome: Outcome, score: f64) {
        let Some(active) = self.remove(number) else { return };
        self.tally.report.episodes += 1;
        let (group, index) = (active.group, active.index);
        let ended = active.ended(outcome, score, self.options.keep_screens);
        self.groups[group].ended.push((index, ended));
        self.report_end(group, Some(score));
    }

    /// Ends an episode whose desktop failed; a refill replaces it, unless the task is the cause or no refill is left.
    fn fail_episode(&mut self, number: u64, failure: Failure) {
        let Some(active) = self.remove(number) else { return };
        let (number, index) = (active.group, active.index);
        let group = &mut self.groups[number];
        if failure.kind == FailureKind::BadTask {
            self.tally.report.unplayable += 1;
            group.give_up(failure.reason.clone());
            self.waiting.retain(|queued| queued.group != number);
        } else {
            self.tally.report.lost += 1;
            if let Some(refill) = group.next_refill(number) {
                self.tally.report.refilled += 1;
                self.waiting.push_front(refill);
            }
        }
        let outcome = Outcome::EnvironmentError { reason: format!("{}: {}", failure.kind, failure.reason) };
        group.lost.push((index, active.ended(outcome, 0.0, self.options.keep_screens), failure));
        self.report_end(number, None);
    }

    fn report_end(&mut self, group: usize, score: Option<f64>) {
        let task = self.groups[group].task.clone();
        let (running, waiting) = (self.active.len(), self.waiting.len());
        (self.progress)(CollectEvent::Ended { task, score, running, waiting });
    }
}
