//! Collecting for an iteration: plan its groups, send them to the rollout worker, wait for the result.
//!
//! With `effort.probe_rollouts` a group begins with some of its rollouts, and the others follow only if the rewards of these
//! differ.
//!
//! An overlapped run starts the collection of the next iterations before it learns from this one, so they are sampled
//! with weights that are up to `collect.staleness` versions old.

use super::Trainer;
use super::state::PlannedTasks;
use crate::TrainError;
use crate::collect::{
    CollectEvent, Collected, CompletedGroup, DesktopFailure, FailureKind, GroupPlan, GroupSize, Planner,
    Worlds,
};
use crate::episode::CompletedEpisode;
use crate::run::events::{CollectProgress, RunEvent};
use crate::run::recording::Recorder;
use crate::run::recording::status::Phase;
use arpo_core::advantage::has_spread;
use arpo_core::config::CollectMode;
use arpo_core::replay::all_failed;
use arpo_core::reward::{RewardConfig, reward};
use arpo_core::task::TaskId;
use arpo_core::trajectory::PolicyVersion;
use std::collections::BTreeSet;
use std::sync::Arc;

/// An iteration that is being collected.
#[derive(Debug)]
pub(super) struct Pending {
    iteration: u64,
    episodes: usize,
    /// The rollouts of its groups that are not collected yet.
    rest: Vec<GroupPlan>,
}

/// What was collected for an iteration.
pub(super) struct CollectedIteration {
    pub(super) sampled_with: PolicyVersion,
    pub(super) collected: Collected,
    /// The rollouts of its groups that are not collected yet.
    rest: Vec<GroupPlan>,
}

impl Trainer<'_> {
    /// Collects the groups of an iteration; an overlapped run also starts later ones.
    pub(super) fn collect_groups(&mut self, number: u64) -> Result<CollectedIteration, TrainError> {
        let ahead = match self.config.collect.mode {
            CollectMode::Synchronous => 0,
            CollectMode::Overlapped => self.config.collect.staleness,
        };
        if self.pending.is_empty() && self.finished_ahead.is_empty() {
            self.begin(number, 0);
        }
        let mut collected = self.wait_for_groups(number)?;
        let mut rounds = 1;
        let wanted = self.config.effort.informative_groups;
        while informative(&collected.collected, &self.config.reward) < wanted
            && rounds <= self.config.effort.extra_rounds
        {
            self.begin(number, rounds);
            let more = self.wait_for_groups(number)?.collected;
            collected.collected.groups.extend(more.groups);
            collected.collected.report.add(&more.report);
            rounds += 1;
        }
        let begun = self.pending.iter().map(|pending| pending.iteration);
        let newest =
            begun.chain(self.finished_ahead.iter().map(|(iteration, _)| *iteration)).fold(number, u64::max);
        for later in newest + 1..=(number + ahead).min(self.config.iterations.saturating_sub(1)) {
            self.begin(later, 0);
        }
        Ok(collected)
    }

    fn begin(&mut self, iteration: u64, round: usize) {
        let (plans, rest) = self.plans(iteration, round);
        self.start(iteration, plans, rest);
    }

    fn start(&mut self, iteration: u64, plans: Vec<GroupPlan>, rest: Vec<GroupPlan>) {
        let episodes = plans.iter().map(|plan| plan.episodes.len()).sum();
        self.worker.collect(plans);
        self.pending.push_back(Pending { iteration, episodes, rest });
    }

    /// Waits for the groups of an iteration, those that are worth it with all their rollouts.
    fn wait_for_groups(&mut self, number: u64) -> Result<CollectedIteration, TrainError> {
        let mut begun = self.wait_for(number)?;
        let groups = &mut begun.collected.groups;
        let rest = std::mem::take(&mut begun.rest).into_iter().enumerate();
        let (indices, plans): (Vec<usize>, Vec<GroupPlan>) = rest
            .filter(|(index, plan)| {
                groups.get(*index).is_some_and(|group| self.goes_on(group)) && !plan.episodes.is_empty()
            })
            .unzip();
        if !plans.is_empty() {
            self.start(number, plans, vec![]);
            let more = self.wait_for(number)?.collected;
            for (index, other) in indices.into_iter().zip(more.groups) {
                if let Some(group) = groups.get_mut(index) {
                    group.episodes.extend(other.episodes);
                    group.lost.extend(other.lost);
                }
            }
            begun.collected.report.add(&more.report);
        }
        Ok(begun)
    }

    /// Whether a group is worth its other rollouts: its first ones differ, or too few of them came to tell, or all failed and
    /// a stored success may be injected, for which the whole group must have failed.
    fn goes_on(&self, group: &CompletedGroup) -> bool {
        let scores: Vec<f64> = group.episodes.iter().map(|episode| episode.trajectory.score).collect();
        let may_be_injected = self.config.replay.enabled
            && all_failed(&scores, &self.config.replay)
            && self.state.replay.successes(&group.task).len() > 0;
        let is_worth_it = scores.len() < 2 || differs(group, &self.config.reward) || may_be_injected;
        is_worth_it && group.bad_task.is_none()
    }

    /// Waits for an iteration's collection; later ones that end first are kept.
    fn wait_for(&mut self, iteration: u64) -> Result<CollectedIteration, TrainError> {
        if let Some(index) = self.finished_ahead.iter().position(|(of, _)| *of == iteration)
            && let Some((_, collected)) = self.finished_ahead.remove(index)
        {
            return Ok(collected);
        }
        while let Some(pending) = self.pending.pop_front() {
            let of = pending.iteration;
            let collected = self.wait(pending)?;
            if of == iteration {
                return Ok(collected);
            }
            self.finished_ahead.push_back((of, collected));
        }
        Err(TrainError::Internal(format!("no collection was started for iteration {}", iteration + 1)))
    }

    /// Waits for the oldest collection, reporting its progress.
    fn wait(&mut self, pending: Pending) -> Result<CollectedIteration, TrainError> {
        let Pending { iteration, episodes: total, rest } = pending;
        let mut progress = CollectProgress { iteration: iteration + 1, total, ..CollectProgress::default() };
        let reward = &self.config.reward;
        self.recorder.phase(Phase::Collect, iteration + 1, total);
        let Self { observer, worker, unplayable, recorder, .. } = self;
        let (sampled_with, collected) = worker.collected(&mut |event| match event {
            CollectEvent::Ended { score, running, .. } => {
                progress.running = running;
                progress.finished += usize::from(score.is_some());
                progress.successes += usize::from(score.is_some_and(|score| reward.is_success(score)));
                recorder.progress(progress.finished, progress.successes);
                observer(RunEvent::CollectProgress(progress.clone()));
            }
            CollectEvent::Failed(failure) => {
                *progress.failures.entry(failure.kind).or_default() += 1;
                report_failure(failure, iteration + 1, unplayable, recorder, observer);
                observer(RunEvent::CollectProgress(progress.clone()));
            }
        })?;
        Ok(CollectedIteration { sampled_with, collected, rest })
    }

    /// The tasks of an iteration, drawn once: a resumed run collects the tasks that were planned before.
    fn tasks_of(&mut self, iteration: u64, round: usize) -> Vec<TaskId> {
        if round == 0
            && let Some(planned) = self.state.planned.iter().find(|planned| planned.iteration == iteration)
        {
            return planned.tasks.clone();
        }
        let tasks = self.tasks.draw(&mut self.state, self.config);
        if round == 0 {
            self.state.planned.push_back(PlannedTasks { iteration, tasks: tasks.clone() });
        }
        tasks
    }

    /// The groups of the next tasks: the rollouts that are collected first, and the rest of them. The members of a group
    /// share one world.
    pub(super) fn plans(&mut self, iteration: u64, round: usize) -> (Vec<GroupPlan>, Vec<GroupPlan>) {
        let config = self.config;
        let tasks = self.tasks_of(iteration, round);
        let planner = Planner {
            seed: config.seed,
            step: iteration,
            worlds: Worlds::Shared { of: config.tasks.worlds },
            faulty: config.faults.any(),
        };
        let group = |(number, id): (usize, TaskId)| {
            let size = GroupSize {
                episodes: self.state.effort.rollouts(&id, config.collect.group_size, &config.effort),
                refills: config.collect.refills,
                max_steps: self.state.effort.turns(&id, config.collect.max_steps, &config.effort),
                first_index: round * (config.collect.group_size + config.collect.refills),
            };
            let number = (round * config.collect.tasks + number) as u64;
            Some(planner.group(&self.tasks.get(&id)?, number, size))
        };
        let groups = tasks.into_iter().enumerate().filter_map(group).collect();
        divided(groups, config.effort.probe_rollouts)
    }
}

/// Divides groups into their first rollouts and the rest, each with half of the refills; with 0 there is no rest.
fn divided(groups: Vec<GroupPlan>, first: usize) -> (Vec<GroupPlan>, Vec<GroupPlan>) {
    if first == 0 {
        return (groups, vec![]);
    }
    let divide = |mut group: GroupPlan| {
        let episodes = group.episodes.split_off(first.min(group.episodes.len()));
        let refills = group.refills.split_off(group.refills.len().div_ceil(2));
        let rest = GroupPlan { task: Arc::clone(&group.task), episodes, refills };
        (group, rest)
    };
    groups.into_iter().map(divide).unzip()
}

/// Reports and records a desktop's failure each time, but a task that cannot be set up or evaluated only once.
pub(super) fn report_failure(
    failure: DesktopFailure,
    iteration: u64,
    unplayable: &mut BTreeSet<TaskId>,
    recorder: &Recorder,
    observer: &mut dyn FnMut(RunEvent),
) {
    if failure.kind == FailureKind::BadTask {
        let new = failure.task.as_ref().is_none_or(|task| unplayable.insert(task.clone()));
        if !new {
            return;
        }
    }
    recorder.failure(iteration, &failure);
    observer(RunEvent::DesktopFailed(failure));
}

/// Groups whose rewards differ.
fn informative(collected: &Collected, config: &RewardConfig) -> usize {
    collected.groups.iter().filter(|group| differs(group, config)).count()
}

fn differs(group: &CompletedGroup, config: &RewardConfig) -> bool {
    let scored = |episode: &CompletedEpisode| (episode.trajectory.score, episode.trajectory.well_formed);
    differ(&group.episodes.iter().map(scored).collect::<Vec<_>>(), config)
}

/// Whether the rewards of a group differ.
fn differ(group: &[(f64, bool)], config: &RewardConfig) -> bool {
    let rewards: Vec<f64> =
        group.iter().map(|&(score, well_formed)| reward(score, well_formed, config)).collect();
    has_spread(&rewards)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::task::Task;

    #[test]
    fn the_rest_of_a_group_is_held_back() {
        let task = Arc::new(Task {
            id: TaskId::new("t"),
            instruction: String::new(),
            application: String::new(),
            setup: serde_json::Value::Null,
            evaluator: serde_json::Value::Null,
        });
        let planner = Planner { seed: 1, step: 2, worlds: Worlds::Own, faulty: false };
        let group = |episodes| planner.group(&task, 0, GroupSize::new(episodes, 3, 5));
        let (first, rest) = divided(vec![group(8), group(3)], 4);
        let counts = |plans: &[GroupPlan]| -> Vec<(usize, usize)> {
            plans.iter().map(|plan| (plan.episodes.len(), plan.refills.len())).collect()
        };
        assert_eq!((counts(&first), counts(&rest)), (vec![(4, 2), (3, 2)], vec![(4, 1), (0, 1)]));
        let joined = [first[0].episodes.clone(), rest[0].episodes.clone()].concat();
        assert_eq!(joined, group(8).episodes, "the same rollouts as without probes");
        assert_eq!(divided(vec![group(8)], 0), (vec![group(8)], vec![]));
    }

    /// Rewards count, not scores: an unparsable response matters if it is penalised.
    #[test]
    fn groups_are_compared_by_their_rewards() {
        let penalty = |format_weight| RewardConfig { format_weight, ..RewardConfig::default() };
        let group = [(0.0, true), (0.0, false)];
        assert!(differ(&group, &penalty(0.5)) && !differ(&group, &penalty(0.0)));
        // 1 - 1 and 0: different scores, equal rewards
        let group = [(1.0, false), (0.0, true)];
        assert!(!differ(&group, &penalty(1.0)) && differ(&group, &penalty(0.5)));
    }
}
