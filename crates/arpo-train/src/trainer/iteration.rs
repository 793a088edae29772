//! One iteration: its groups are planned, played, learnt from; then the agent is judged and the run saved, if it is
//! time.
//!
//! A synchronous run plays with the weights it has just learnt. An overlapped one has planned the next iterations before
//! it learns from this one, so they are played meanwhile with weights that are as many versions old.

use super::Trainer;
use super::evaluation::{self, Examination};
use super::evaluation_files::{self, EvaluatedSet, EvaluationFile};
use super::line::{Iteration, Seconds, line};
use super::setup::world_seed;
use super::state::{PlannedTasks, Unfinished};
use crate::TrainError;
use crate::collect::{CollectEvent, CollectReport, Collected, DesktopFailure, FailureKind, GroupPlan};
use crate::episode::{EpisodePlan, PlayedEpisode};
use crate::layout::Layout;
use crate::learn::{Place, Updates, learn};
use crate::lesson::{Lesson, Rollouts, lesson};
use crate::memory::guarded;
use crate::memory_plan::MemoryPlan;
use crate::run::episodes;
use crate::run::events::{CollectProgress, Evaluation, IterationDone, Notice, RunEvent};
use arpo_core::advantage::has_spread;
use arpo_core::config::CollectMode;
use arpo_core::random::{Purpose, stream};
use arpo_core::replay::ReplayBuffer;
use arpo_core::reward::{RewardConfig, reward};
use arpo_core::task::TaskId;
use arpo_core::trajectory::{EpisodeId, PolicyVersion};
use arpo_env::faults::Fault;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Plans that are being played.
#[derive(Debug)]
pub(super) struct Pending {
    iteration: u64,
    episodes: usize,
}

/// What was played for an iteration.
pub(super) struct Played {
    sampled_with: PolicyVersion,
    collected: Collected,
}

impl Trainer<'_> {
    /// One iteration, or the rest of one that the run was stopped in.
    pub(super) fn iterate(&mut self) -> Result<(), TrainError> {
        let mut iteration = match self.state.unfinished.take() {
            Some(unfinished) => *unfinished,
            None => self.collect(self.state.iteration)?,
        };
        match self.learn_and_judge(&mut iteration) {
            Err(TrainError::Interrupted) => {
                self.state.unfinished = Some(Box::new(iteration));
                Err(TrainError::Interrupted)
            }
            Ok(judged) => self.complete(iteration, judged),
            Err(error) => Err(error),
        }
    }

    /// Plays the episodes of an iteration; stopped meanwhile, it leaves the run as it was before.
    fn collect(&mut self, number: u64) -> Result<Unfinished, TrainError> {
        let began = Instant::now();
        let before = self.state.clone();
        let Played { sampled_with, collected } = match self.play(number) {
            Err(TrainError::Interrupted) => {
                self.state = before;
                return Err(TrainError::Interrupted);
            }
            played => played?,
        };
        // told now, before desktops get ready for the next: a run that goes on from here gets them ready again
        let faults = self.new_faults();
        let collect_seconds = began.elapsed().as_secs_f64();
        let staleness = self.state.version().0.saturating_sub(sampled_with.0);
        let tasks = task_means(&collected);
        let every = self.config.checkpoints.episodes_every;
        if every > 0 && (number + 1).is_multiple_of(every) {
            let played = collected.groups.iter().flat_map(|group| &group.episodes);
            episodes::write(self.folder.path(), number + 1, played)?;
        }
        let report = collected.report.clone();
        if let Some(message) = cache_too_small(&report, &self.plan) {
            (self.tell)(RunEvent::Notice(Notice { message }));
        }
        let Lesson { samples, report: lesson } = self.lesson(collected, number);
        Ok(Unfinished {
            samples,
            updates: Updates::default(),
            lesson,
            collected: report,
            tasks,
            staleness,
            faults,
            collect_seconds,
            learn_seconds: 0.0,
        })
    }

    /// Makes the updates that are left, and judges the agent if it is time: what was found, and how long it took.
    fn learn_and_judge(
        &mut self,
        iteration: &mut Unfinished,
    ) -> Result<(Option<Evaluation>, f64), TrainError> {
        let number = self.state.iteration;
        let learning = Instant::now();
        let every = self.config.evaluation.every;
        let last = number + 1 == self.config.iterations;
        let judges = every > 0 && (last || (number + 1).is_multiple_of(every));
        if !last && !judges && self.pending.is_empty() && self.early.is_empty() {
            let plans = self.plans(number + 1, 0);
            self.player.prepare(plans);
        }
        let place = Place { iteration: number, updates_before: self.state.updates };
        let layout = Layout {
            screens: &self.screens,
            processor: &self.agent.processor,
            features: self.features.as_ref(),
            micro_batch_tokens: self.config.model.micro_batch_tokens,
            stop: self.stop,
        };
        let less = if self.config.model.activation_gib > 0.0 {
            "a smaller `model.activation_gib`, or 0"
        } else {
            "a smaller `model.memory_gib`, `agent.max_screenshots` or `agent.max_tokens`"
        };
        let (reference, samples) = (self.reference.as_ref(), &iteration.samples);
        let learnt = guarded("learning", less, || {
            learn(&mut self.updater, reference, samples, &mut iteration.updates, &layout, place, self.config)
        });
        iteration.learn_seconds += learning.elapsed().as_secs_f64();
        learnt?;
        self.player.publish(self.updater.learner().model().weights(), PolicyVersion(number + 1));
        let judging = Instant::now();
        let evaluation = if judges { Some(self.evaluate(number + 1, last)?) } else { None };
        Ok((evaluation, judging.elapsed().as_secs_f64()))
    }

    /// Writes down what came of an iteration, and saves the run if it is time.
    fn complete(
        &mut self,
        iteration: Unfinished,
        (evaluation, evaluate_seconds): (Option<Evaluation>, f64),
    ) -> Result<(), TrainError> {
        let Unfinished { updates, lesson, collected, tasks, staleness, mut faults, .. } = iteration;
        let number = self.state.iteration;
        self.state.updates += updates.done() as u64;
        self.state.skipped = self.updater.skipped();
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
            lesson: &lesson,
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
        (self.tell)(RunEvent::IterationDone(IterationDone {
            iteration: self.state.iteration,
            of: self.config.iterations,
            seconds: seconds.all,
            collect_seconds: collect,
            success: lesson.score,
            reward: lesson.reward,
            entropy: learnt.entropy,
            kl: learnt.statistics.policy_kl(),
            gradient_norm: (learnt.updates > 0).then_some(learnt.gradient_norm),
            episodes: collected.episodes,
            informative: (lesson.informative, lesson.groups),
            replayed: lesson.replay_ages.len(),
            environment_errors: collected.lost,
            evaluation,
            checkpoint,
        }));
        Ok(())
    }

    /// The groups of an iteration, and in an overlapped run the beginning of later ones.
    fn play(&mut self, number: u64) -> Result<Played, TrainError> {
        let ahead = match self.config.collect.mode {
            CollectMode::Synchronous => 0,
            CollectMode::Overlapped => self.config.collect.staleness,
        };
        if self.pending.is_empty() && self.early.is_empty() {
            self.begin(number, 0);
        }
        let mut played = self.wait_for(number)?;
        let mut rounds = 1;
        let wanted = self.config.effort.informative_groups;
        while informative(&played.collected, &self.config.reward) < wanted
            && rounds <= self.config.effort.extra_rounds
        {
            let plans = self.plans(number, rounds);
            let episodes = plans.iter().map(|plan| plan.episodes.len()).sum();
            self.player.collect(plans);
            self.pending.push_back(Pending { iteration: number, episodes });
            let more = self.wait_for(number)?.collected;
            played.collected.groups.extend(more.groups);
            played.collected.report.add(&more.report);
            rounds += 1;
        }
        let begun = self.pending.iter().map(|pending| pending.iteration);
        let newest = begun.chain(self.early.iter().map(|(iteration, _)| *iteration)).fold(number, u64::max);
        for later in newest + 1..=(number + ahead).min(self.config.iterations.saturating_sub(1)) {
            self.begin(later, 0);
        }
        Ok(played)
    }

    fn begin(&mut self, iteration: u64, round: usize) {
        let plans = self.plans(iteration, round);
        let episodes = plans.iter().map(|plan| plan.episodes.len()).sum();
        self.player.collect(plans);
        self.pending.push_back(Pending { iteration, episodes });
    }

    /// What was played for an iteration; what comes for later ones meanwhile is kept.
    fn wait_for(&mut self, iteration: u64) -> Result<Played, TrainError> {
        if let Some(place) = self.early.iter().position(|(of, _)| *of == iteration)
            && let Some((_, played)) = self.early.remove(place)
        {
            return Ok(played);
        }
        while let Some(pending) = self.pending.pop_front() {
            let of = pending.iteration;
            let played = self.wait(&pending)?;
            if of == iteration {
                return Ok(played);
            }
            self.early.push_back((of, played));
        }
        Err(TrainError::Options(format!("nothing was begun for iteration {}", iteration + 1)))
    }

    /// Waits for the oldest plans, telling how far they are.
    fn wait(&mut self, pending: &Pending) -> Result<Played, TrainError> {
        let Pending { iteration, episodes: total } = *pending;
        let mut progress = CollectProgress { iteration: iteration + 1, total, ..CollectProgress::default() };
        let success_above = self.config.replay.success_above;
        let Self { tell, player, unplayable, .. } = self;
        let (sampled_with, collected) = player.collected(&mut |event| match event {
            CollectEvent::Ended { score, running, .. } => {
                progress.running = running;
                progress.finished += usize::from(score.is_some());
                progress.successes += usize::from(score.is_some_and(|score| score > success_above));
                tell(RunEvent::CollectProgress(progress.clone()));
            }
            CollectEvent::Failed(failure) => {
                *progress.failures.entry(failure.kind).or_default() += 1;
                tell_failure(failure, unplayable, tell);
                tell(RunEvent::CollectProgress(progress.clone()));
            }
        })?;
        Ok(Played { sampled_with, collected })
    }

    /// The tasks of an iteration, drawn once: a run that goes on from a checkpoint plays what was planned before it.
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

    /// The next tasks' groups. The members of a group meet the same desktop.
    fn plans(&mut self, iteration: u64, round: usize) -> Vec<GroupPlan> {
        let config = self.config;
        let tasks = self.tasks_of(iteration, round);
        let group = |(number, id): (usize, TaskId)| {
            let task = &self.tasks.get(&id)?;
            let rollouts = self.state.effort.rollouts(&id, config.collect.group_size, &config.effort);
            let max_steps = self.state.effort.turns(&id, config.collect.max_steps, &config.effort);
            let place = (round * config.collect.tasks + number) as u64;
            let first = round * (config.collect.group_size + config.collect.refills);
            let world = stream(config.seed, Purpose::Environment, iteration, place).next_u64();
            let episode = |index: usize| {
                let place = place << 32 | index as u64;
                let sampling_seed = stream(config.seed, Purpose::Sampling, iteration, place).next_u64();
                let world = world % config.tasks.worlds;
                EpisodePlan {
                    id: EpisodeId::new(iteration, &id, first + index),
                    task: Arc::clone(task),
                    world_seed: world_seed(world, sampling_seed, config.faults.any()),
                    sampling_seed,
                    max_steps,
                }
            };
            let spares = rollouts..rollouts + config.collect.refills;
            Some(GroupPlan {
                task: Arc::clone(task),
                episodes: (0..rollouts).map(episode).collect(),
                spares: spares.map(episode).collect(),
            })
        };
        tasks.into_iter().enumerate().filter_map(group).collect()
    }

    /// What the iteration teaches; successes and efforts are remembered.
    fn lesson(&mut self, collected: Collected, iteration: u64) -> Lesson {
        let mut groups = Vec::with_capacity(collected.groups.len());
        // what is remembered of tasks that never come back would only grow
        let comes_back = !self.config.tasks.endless;
        self.state.episodes += collected.report.episodes;
        self.state.environment_errors += collected.report.lost;
        for group in collected.groups {
            let mut trajectories = Vec::with_capacity(group.episodes.len());
            for episode in group.episodes {
                let success = episode.trajectory.score > self.config.replay.success_above;
                if comes_back {
                    self.state.sampler.record(&group.task, success, &self.config.sampling);
                    self.state.effort.record(&group.task, success, episode.trajectory.steps.len());
                }
                self.screens.add(&episode.trajectory, &episode.screens);
                trajectories.push(Arc::new(episode.trajectory));
            }
            groups.push(Rollouts { task: group.task, trajectories });
        }
        let version = self.state.version();
        let mut forgotten = ReplayBuffer::default();
        let replay = if comes_back { &mut self.state.replay } else { &mut forgotten };
        lesson(groups, replay, version, iteration, self.config)
    }

    /// Faults played on purpose since the last time.
    fn new_faults(&mut self) -> BTreeMap<Fault, u64> {
        let all = self.faults.played();
        let before = std::mem::replace(&mut self.faults_told, all.clone());
        let new = |(fault, count)| (fault, count - before.get(&fault).copied().unwrap_or(0));
        all.into_iter().map(new).filter(|(_, count)| *count > 0).collect()
    }

    /// Judges the untrained agent, unless that was done before.
    pub(super) fn judge_before_the_first(&mut self) -> Result<(), TrainError> {
        if self.config.evaluation.every == 0 || self.state.evaluations.count > 0 {
            return Ok(());
        }
        let evaluation = self.evaluate(0, true)?;
        let mut line = serde_json::Map::new();
        line.insert("iteration".into(), 0.into());
        line.insert("evaluation/lost".into(), evaluation.lost.into());
        for (fault, count) in self.new_faults() {
            line.insert(format!("faults/{}", fault.key()), count.into());
        }
        for (suite, success) in &evaluation.suites {
            line.insert(format!("evaluation/{suite}"), success.mean.into());
            line.insert(format!("evaluation/{suite}/low"), success.low.into());
            line.insert(format!("evaluation/{suite}/high"), success.high.into());
        }
        self.metrics.append(&line)?;
        self.save(true)?;
        let of = self.config.iterations;
        (self.tell)(RunEvent::IterationDone(IterationDone {
            of,
            evaluation: Some(evaluation),
            ..IterationDone::default()
        }));
        Ok(())
    }

    /// Judges the agent as it is after so many iterations.
    fn evaluate(&mut self, iteration: u64, at_an_end: bool) -> Result<Evaluation, TrainError> {
        let config = self.config;
        let (mut suites, mut evaluated, mut lost) = (Vec::new(), Vec::new(), 0);
        for (set, tasks) in self.tasks.evaluated(at_an_end) {
            let number = set.examination(iteration);
            let examination = Examination::of(config, number, config.evaluation.samples);
            let Self { tell, player, unplayable, .. } = self;
            let temperature = config.evaluation.temperature;
            let examined = player.examine(tasks, examination, temperature, &mut |event| {
                if let CollectEvent::Failed(failure) = event {
                    tell_failure(failure, unplayable, tell);
                }
            })?;
            let (name, success) = (set.key().to_owned(), evaluation::overall(&examined.tasks));
            suites.push((name.clone(), success));
            evaluated.push(EvaluatedSet { name, success, tasks: examined.tasks });
            lost += examined.report.lost;
        }
        evaluation_files::write(self.folder, &EvaluationFile { iteration, sets: evaluated })?;
        let best = self.state.evaluations.record(iteration, &suites);
        Ok(Evaluation { suites, best, lost })
    }
}

/// A desktop's failure is told each time, a task that cannot be played once.
fn tell_failure(failure: DesktopFailure, unplayable: &mut BTreeSet<TaskId>, tell: &mut dyn FnMut(RunEvent)) {
    if failure.kind == FailureKind::BadTask {
        let new = failure.task.as_ref().is_none_or(|task| unplayable.insert(task.clone()));
        if !new {
            return;
        }
    }
    tell(RunEvent::DesktopFailed(failure));
}

/// Share of what could be found in the cache below which a person should know.
const FOUND_ENOUGH: f64 = 0.7;

fn cache_too_small(report: &CollectReport, plan: &MemoryPlan) -> Option<String> {
    let share = report.found_share();
    (share < FOUND_ENOUGH).then(|| {
        format!(
            "only {:.0} % of the prompt tokens that could have been in the cache were, the others were read again: \
             expected a `collect.running` below {} or a `model.cache_gib` above {:.1}",
            share * 100.0,
            plan.running,
            plan.cache_bytes as f64 / f64::from(1 << 30)
        )
    })
}

/// Groups whose rewards differ.
fn informative(collected: &Collected, config: &RewardConfig) -> usize {
    let judged = |episode: &PlayedEpisode| (episode.trajectory.score, episode.trajectory.well_formed);
    let groups = collected.groups.iter().map(|group| group.episodes.iter().map(judged).collect());
    groups.filter(|group: &Vec<(f64, bool)>| differ(group, config)).count()
}

/// Whether scores and forms come to different rewards.
fn differ(group: &[(f64, bool)], config: &RewardConfig) -> bool {
    let rewards: Vec<f64> =
        group.iter().map(|&(score, well_formed)| reward(score, well_formed, config)).collect();
    has_spread(&rewards)
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
    use crate::memory_plan::{Place as MemoryPlace, Work};
    use arpo_agent::geometry::Size;
    use arpo_core::config::Config;

    /// Rewards count, not scores: a response that is no action makes a difference where it costs something.
    #[test]
    fn groups_are_compared_by_their_rewards() {
        let costing = |format_weight| RewardConfig { format_weight, ..RewardConfig::default() };
        let group = [(0.0, true), (0.0, false)];
        assert!(differ(&group, &costing(0.5)) && !differ(&group, &costing(0.0)));
        // 1 - 1 and 0: other scores, the same reward
        let group = [(1.0, false), (0.0, true)];
        assert!(!differ(&group, &costing(1.0)) && differ(&group, &costing(0.5)));
    }

    #[test]
    fn a_cache_that_is_too_small_is_told_of() {
        let screen = Size { width: 168, height: 140 };
        let model = arpo_model::config::pocket();
        let plan =
            MemoryPlan::new(&model, &Config::default(), screen, MemoryPlace::Cpu(None), Work::Training);
        let report =
            |prompt_found, prompt_lost| CollectReport { prompt_found, prompt_lost, ..Default::default() };
        assert_eq!(cache_too_small(&report(0, 0), &plan), None);
        assert_eq!(cache_too_small(&report(80, 20), &plan), None);
        let told = cache_too_small(&report(24, 76), &plan).unwrap();
        assert!(told.starts_with("only 24 % of the prompt tokens"), "{told}");
        assert!(
            told.ends_with("expected a `collect.running` below 64 or a `model.cache_gib` above 0.5"),
            "{told}"
        );
    }
}
