//! One iteration: collect episodes, assemble a batch, make the updates; then evaluate the agent and save the run, if due.

use super::Trainer;
use super::collecting::CollectedIteration;
use super::handover::FreshEpisode;
use super::metrics_line::{Iteration, Seconds, line, per_second};
use super::state::IterationInProgress;
use crate::TrainError;
use crate::batch::{RolloutGroup, TrainingBatch, assemble};
use crate::collect::{CollectReport, Collected};
use crate::memory::guarded;
use crate::memory_plan::MemoryPlan;
use crate::run::events::{Evaluation, IterationDone, Notice, RunEvent};
use crate::run::recording::status::Phase;
use crate::updates::{RunPosition, Updates, learn};
use arpo_core::replay::ReplayBuffer;
use arpo_core::trajectory::PolicyVersion;
use arpo_env::faults::Fault;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

impl Trainer<'_> {
    /// One iteration, or the rest of one that the run was stopped in.
    pub(super) fn iterate(&mut self) -> Result<(), TrainError> {
        let mut iteration = match self.state.unfinished.take() {
            Some(unfinished) => *unfinished,
            None => self.collect(self.state.iteration)?,
        };
        match self.learn_and_evaluate(&mut iteration) {
            Err(TrainError::Interrupted) => {
                self.state.unfinished = Some(Box::new(iteration));
                Err(TrainError::Interrupted)
            }
            Ok(evaluation) => self.complete(iteration, evaluation),
            Err(error) => Err(error),
        }
    }

    /// Collects the episodes of an iteration; if interrupted, the run's state stays as before.
    fn collect(&mut self, number: u64) -> Result<IterationInProgress, TrainError> {
        let began = Instant::now();
        let before = self.state.clone();
        let CollectedIteration { sampled_with, collected, .. } = match self.collect_groups(number) {
            Err(TrainError::Interrupted) => {
                self.state = before;
                return Err(TrainError::Interrupted);
            }
            collected => collected?,
        };
        // counted now, before desktops are reset for the next iteration: a run that resumes here resets them again
        let faults = self.new_faults();
        let collect_seconds = began.elapsed().as_secs_f64();
        let staleness = self.state.version().0.saturating_sub(sampled_with.0);
        let tasks = task_means(&collected);
        let report = collected.report.clone();
        if let Some(message) = cache_too_small(&report, &self.plan) {
            (self.observer)(RunEvent::Notice(Notice { message }));
        }
        let TrainingBatch { samples, report: batch, .. } = self.training_batch(collected, number);
        Ok(IterationInProgress {
            planned_with: Some(self.config.to_toml()),
            samples,
            updates: Updates::default(),
            batch,
            collected: report,
            tasks,
            staleness,
            faults,
            collect_seconds,
            learn_seconds: 0.0,
        })
    }

    /// Makes the remaining updates, and evaluates the agent if due; returns the evaluation and its duration.
    fn learn_and_evaluate(
        &mut self,
        iteration: &mut IterationInProgress,
    ) -> Result<(Option<Evaluation>, f64), TrainError> {
        let number = self.state.iteration;
        let learning = Instant::now();
        let every = self.config.evaluation.every;
        let last = number + 1 == self.config.iterations;
        let evaluates = every > 0 && (last || (number + 1).is_multiple_of(every));
        if !last && !evaluates && self.pending.is_empty() && self.finished_ahead.is_empty() {
            let (plans, _) = self.plans(number + 1, 0);
            self.worker.prepare(plans);
        }
        let position = RunPosition { iteration: number, updates_before: self.state.updates };
        let advice = if self.config.model.activation_gib > 0.0 {
            "a smaller `model.activation_gib`, or 0"
        } else {
            "a smaller `model.memory_gib`, `agent.max_screenshots` or `agent.max_tokens`"
        };
        self.recorder.phase(Phase::Learn, number + 1, 0);
        let (learner, samples) = (self.learner.as_mut(), &iteration.samples);
        let learnt = guarded("learning", advice, || {
            learn(learner, samples, &mut iteration.updates, &self.screens, position, self.config)
        });
        iteration.learn_seconds += learning.elapsed().as_secs_f64();
        learnt?;
        self.worker.publish(self.learner.weights(), PolicyVersion(number + 1));
        let evaluating = Instant::now();
        let evaluation = if evaluates { Some(self.evaluate(number + 1, last)?) } else { None };
        Ok((evaluation, evaluating.elapsed().as_secs_f64()))
    }

    /// Records an iteration, and saves the run if due.
    fn complete(
        &mut self,
        iteration: IterationInProgress,
        (evaluation, evaluate_seconds): (Option<Evaluation>, f64),
    ) -> Result<(), TrainError> {
        let IterationInProgress {
            samples, mut updates, batch, collected, tasks, staleness, mut faults, ..
        } = iteration;
        let number = self.state.iteration;
        self.hand_over_tokens(number + 1, &samples, updates.take_ratios());
        self.state.updates += updates.done() as u64;
        self.state.skipped = self.learner.skipped();
        self.state.iteration += 1;
        self.state.planned.retain(|planned| planned.iteration > number);
        self.screens.keep_only(self.state.replay.iter().map(Arc::as_ref))?;
        if evaluation.is_some() {
            for (fault, count) in self.new_faults() {
                *faults.entry(fault).or_default() += count;
            }
        }
        let (collect, learn) = (iteration.collect_seconds, iteration.learn_seconds);
        let seconds =
            Seconds { all: collect + learn + evaluate_seconds, collect, learn, evaluate: evaluate_seconds };
        let learnt = updates.report();
        self.metrics.append(&line(&Iteration {
            number: self.state.iteration,
            batch: &batch,
            learnt: &learnt,
            collected: &collected,
            tasks: &tasks,
            staleness,
            stored: self.state.replay.len(),
            faults: &faults,
            evaluation: evaluation.as_ref(),
            seconds,
        }))?;
        let best = evaluation.as_ref().is_some_and(|evaluation| evaluation.best);
        let last = self.state.iteration == self.config.iterations;
        let save = last || best || self.state.iteration.is_multiple_of(self.config.checkpoints.every);
        let checkpoint = if save { Some(self.save(best)?) } else { None };
        self.pass_on_notices();
        (self.observer)(RunEvent::IterationDone(IterationDone {
            iteration: self.state.iteration,
            of: self.config.iterations,
            seconds: seconds.all,
            collect_seconds: collect,
            success: batch.score,
            reward: batch.reward,
            entropy: learnt.entropy,
            kl: learnt.statistics.policy_kl(),
            gradient_norm: (learnt.updates > 0).then_some(learnt.gradient_norm),
            episodes: collected.episodes,
            informative: (batch.informative, batch.groups),
            informative_per_second: per_second(batch.informative, collect + learn),
            replayed: batch.replay_ages.len(),
            environment_errors: collected.lost,
            evaluation,
            checkpoint,
        }));
        Ok(())
    }

    /// Assembles the training batch of an iteration; records successes and effort.
    fn training_batch(&mut self, mut collected: Collected, iteration: u64) -> TrainingBatch {
        let mut groups = Vec::with_capacity(collected.groups.len());
        let keeps_episodes = self.recorder.keeps_episodes();
        let lost = FreshEpisode::lost(&mut collected);
        let mut fresh = vec![];
        // an endless run never repeats a task, so its records would only grow
        let tasks_repeat = !self.config.tasks.endless;
        self.state.episodes += collected.report.episodes;
        self.state.environment_errors += collected.report.lost;
        for (number, group) in collected.groups.into_iter().enumerate() {
            let mut trajectories = Vec::with_capacity(group.episodes.len());
            for episode in group.episodes {
                let success = self.config.reward.is_success(episode.trajectory.score);
                if tasks_repeat {
                    self.state.sampler.record(&group.task, success, &self.config.task_sampling);
                    self.state.effort.record(&group.task, success, episode.trajectory.steps.len());
                }
                if self.config.task_sampling.weighs_templates() {
                    let template = self.tasks.template(&group.task);
                    self.state.templates.record(&template, success, &self.config.task_sampling);
                }
                self.screens.add(&episode.trajectory, &episode.screens);
                let trajectory = Arc::new(episode.trajectory);
                if keeps_episodes {
                    fresh.push(FreshEpisode::new(number, &trajectory, episode.screens));
                }
                trajectories.push(trajectory);
            }
            groups.push(RolloutGroup { task: group.task, trajectories });
        }
        let version = self.state.version();
        let mut discarded = ReplayBuffer::default();
        let replay = if tasks_repeat { &mut self.state.replay } else { &mut discarded };
        let batch = assemble(groups, replay, version, iteration, self.config);
        fresh.extend(lost);
        self.hand_over(iteration + 1, fresh, &batch);
        batch
    }

    /// Faults injected since the last call.
    pub(super) fn new_faults(&mut self) -> BTreeMap<Fault, u64> {
        let all = self.faults.injected();
        let before = std::mem::replace(&mut self.faults_reported, all.clone());
        let new = |(fault, count)| (fault, count - before.get(&fault).copied().unwrap_or(0));
        all.into_iter().map(new).filter(|(_, count)| *count > 0).collect()
    }
}

/// Share of the possible cache hits below which the user gets a notice.
const ENOUGH_HITS: f64 = 0.7;

fn cache_too_small(report: &CollectReport, plan: &MemoryPlan) -> Option<String> {
    let share = report.cache_hit_rate();
    (share < ENOUGH_HITS).then(|| {
        format!(
            "the KV cache is too small: {:.0} % of the reusable prompt tokens were computed again; expected a \
             `collect.running` below {} or a `model.cache_gib` above {:.1}",
            (1.0 - share) * 100.0,
            plan.running,
            plan.cache_bytes as f64 / f64::from(1 << 30)
        )
    })
}

fn task_means(collected: &Collected) -> BTreeMap<String, f64> {
    collected
        .groups
        .iter()
        .filter(|group| !group.episodes.is_empty())
        .map(|group| {
            let sum: f64 = group.episodes.iter().map(|episode| episode.trajectory.score).sum();
            (group.task.to_string(), sum / group.episodes.len() as f64)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_plan::{DeviceMemory, Work};
    use arpo_agent::geometry::Size;
    use arpo_core::config::Config;

    #[test]
    fn a_cache_that_is_too_small_is_reported() {
        let screen = Size { width: 168, height: 140 };
        let model = arpo_model::config::pocket();
        let plan =
            MemoryPlan::new(&model, &Config::default(), screen, DeviceMemory::Cpu(None), Work::Training);
        let report = |cache_hits, recomputed| CollectReport { cache_hits, recomputed, ..Default::default() };
        assert_eq!(cache_too_small(&report(0, 0), &plan), None);
        assert_eq!(cache_too_small(&report(80, 20), &plan), None);
        let reported = cache_too_small(&report(24, 76), &plan).unwrap();
        assert!(
            reported.starts_with("the KV cache is too small: 76 % of the reusable prompt tokens"),
            "{reported}"
        );
        assert!(
            reported.ends_with("expected a `collect.running` below 64 or a `model.cache_gib` above 0.5"),
            "{reported}"
        );
    }
}
