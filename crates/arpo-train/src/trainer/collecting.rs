//! Collecting for an iteration: plan its groups, send them to the rollout worker, wait for the result.
//!
//! An overlapped run starts the collection of the next iterations before it learns from this one, so they are sampled
//! with weights that are up to `collect.staleness` versions old.

use super::Trainer;
use super::state::PlannedTasks;
use crate::TrainError;
use crate::collect::{
    CollectEvent, Collected, DesktopFailure, FailureKind, GroupPlan, GroupSize, Planner, Worlds,
};
use crate::episode::CompletedEpisode;
use crate::run::events::{CollectProgress, RunEvent};
use crate::run::recording::Recorder;
use crate::run::recording::status::Phase;
use arpo_core::advantage::has_spread;
use arpo_core::config::CollectMode;
use arpo_core::reward::{RewardConfig, reward};
use arpo_core::task::TaskId;
use arpo_core::trajectory::PolicyVersion;
use std::collections::BTreeSet;

/// An iteration that is being collected.
#[derive(Debug)]
pub(super) struct Pending {
    iteration: u64,
    episodes: usize,
}

/// What was collected for an iteration.
pub(super) struct CollectedIteration {
    pub(super) sampled_with: PolicyVersion,
    pub(super) collected: Collected,
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
        let mut collected = self.wait_for(number)?;
        let mut rounds = 1;
        let wanted = self.config.effort.informative_groups;
        while informative(&collected.collected, &self.config.reward) < wanted
            && rounds <= self.config.effort.extra_rounds
        {
            let plans = self.plans(number, rounds);
            let episodes = plans.iter().map(|plan| plan.episodes.len()).sum();
            self.worker.collect(plans);
            self.pending.push_back(Pending { iteration: number, episodes });
            let more = self.wait_for(number)?.collected;
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
        let plans = self.plans(iteration, round);
        let episodes = plans.iter().map(|plan| plan.episodes.len()).sum();
        self.worker.collect(plans);
        self.pending.push_back(Pending { iteration, episodes });
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
            let collected = self.wait(&pending)?;
            if of == iteration {
                return Ok(collected);
            }
            self.finished_ahead.push_back((of, collected));
        }
        Err(TrainError::Internal(format!("no collection was started for iteration {}", iteration + 1)))
    }

    /// Waits for the oldest collection, reporting its progress.
    fn wait(&mut self, pending: &Pending) -> Result<CollectedIteration, TrainError> {
        let Pending { iteration, episodes: total } = *pending;
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
        Ok(CollectedIteration { sampled_with, collected })
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

    /// The groups of the next tasks. The members of a group share one world.
    pub(super) fn plans(&mut self, iteration: u64, round: usize) -> Vec<GroupPlan> {
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
                spares: config.collect.refills,
                max_steps: self.state.effort.turns(&id, config.collect.max_steps, &config.effort),
                first_index: round * (config.collect.group_size + config.collect.refills),
            };
            let number = (round * config.collect.tasks + number) as u64;
            Some(planner.group(&self.tasks.get(&id)?, number, size))
        };
        tasks.into_iter().enumerate().filter_map(group).collect()
    }
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
    let scored = |episode: &CompletedEpisode| (episode.trajectory.score, episode.trajectory.well_formed);
    let groups = collected.groups.iter().map(|group| group.episodes.iter().map(scored).collect());
    groups.filter(|group: &Vec<(f64, bool)>| differ(group, config)).count()
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
