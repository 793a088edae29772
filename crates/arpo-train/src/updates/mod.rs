//! The updates of one iteration: samples divided into mini-batches, the clipped loss over each mini-batch, one optimiser
//! step each. A sample with advantage 0 counts in its mini-batch's normaliser but is not computed. An episode that
//! several samples share is computed once, and their coefficients are added: the gradient is the same, and a
//! low-entropy policy often repeats an episode.
//!
//! Old log-probabilities: the first update takes them from its own forward pass, because the weights have not changed
//! yet; only samples of later updates need a forward pass beforehand, and with `loss.old = "sampler"` only the replayed
//! ones among them. If the first update is skipped, what it did not get to is computed before the second.
//!
//! A probability ratio of whole trajectories (`loss.ratio = "trajectory"`) needs the log-probabilities of all slices of an
//! episode at once, and the loss sees one slice at a time: those of episodes with several slices are computed in a pass
//! before the update. An episode of one slice needs none.
//!
//! Updates can be stopped between any two micro-batches: an interrupted update changes no weights, and [`Updates`] holds
//! what is needed to continue later.

mod old_log_probs;
mod progress;

pub use progress::{LearnReport, Mismatch, Updates};

use crate::TrainError;
use crate::batch::{Sample, mini_batches};
use crate::learner::{Learner, Scorer, SpanLoss, TrainedSpan};
use crate::screens::Screens;
use arpo_core::config::Config;
use arpo_core::loss::ratio::{TrajectoryMeans, TurnTokens};
use arpo_core::loss::{LossStatistics, PolicySample, RatioLevel, sample_loss, token_scales};
use arpo_core::replay::Origin;
use arpo_core::trajectory::{Slice, Step, Trajectory};
use old_log_probs::{OldLogProbs, complete, has_gradient, old_log_probs, trajectory_means};
use std::collections::HashMap;
use std::ops::Range;

/// The position of an iteration in its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPosition {
    /// The iteration.
    pub iteration: u64,
    /// Updates made before it.
    pub updates_before: u64,
}

/// Makes the remaining updates of an iteration. If interrupted, it can be called again for the rest.
pub fn learn(
    learner: &mut dyn Learner,
    samples: &[Sample],
    progress: &mut Updates,
    screens: &Screens,
    position: RunPosition,
    config: &Config,
) -> Result<LearnReport, TrainError> {
    let plan: Vec<Vec<usize>> = (0..config.optimiser.epochs)
        .flat_map(|epoch| mini_batches(samples.len(), epoch, position.iteration, config))
        .collect();
    if progress.done >= plan.len() {
        return Ok(progress.report());
    }
    let trajectories: Vec<&Trajectory> =
        samples.iter().map(|sample| sample.member.trajectory.as_ref()).collect();
    let reference = if config.loss.kl_coefficient > 0.0 {
        learner.log_probs(Scorer::Reference, &trajectories, screens)?
    } else {
        vec![]
    };
    let mut old = if progress.old.is_empty() {
        old_log_probs(learner, samples, &trajectories, screens, &plan, config)?
    } else {
        let known = std::mem::take(&mut progress.old).into_iter();
        known
            .zip(&trajectories)
            .map(|(known, trajectory)| OldLogProbs::from_known(known, trajectory))
            .collect()
    };
    for (number, mini_batch) in plan.iter().enumerate().skip(progress.done) {
        let lengths: Vec<usize> =
            mini_batch.iter().map(|&sample| trajectories[sample].trained_tokens()).collect();
        let scales = token_scales(&lengths, config.loss.normaliser, config.loss.constant_tokens);
        let update = position.updates_before + number as u64;
        let share_of_run =
            (position.iteration as f64 + number as f64 / plan.len() as f64) / config.iterations as f64;
        let rate = config.optimiser.learning_rate_at(update, share_of_run);
        let mut statistics = LossStatistics::default();
        let mut mismatch = Mismatch::default();
        let mut ratios = vec![];
        let scaled: Vec<(usize, f64)> = mini_batch.iter().copied().zip(scales).collect();
        let computed: Vec<(usize, f64)> =
            scaled.into_iter().filter(|&(sample, _)| has_gradient(&samples[sample], config)).collect();
        let duplicates = group_duplicates(computed.iter().map(|&(sample, _)| trajectories[sample]));
        let distinct: Vec<&Trajectory> =
            duplicates.iter().map(|same| trajectories[computed[same[0]].0]).collect();
        let completed = if number > 0 && progress.report.updates == 0 {
            complete(&mut old, learner, samples, screens, &plan[number..], config)
        } else {
            Ok(())
        };
        let whole =
            completed.and_then(|()| trajectory_means(learner, samples, &computed, &old, screens, config));
        let mut loss_of_span = |whole: &HashMap<usize, TrajectoryMeans>, span: &TrainedSpan, new: &[f32]| {
            let mut loss = SpanLoss { value: 0.0, coefficients: vec![0.0; new.len()] };
            for &at in &duplicates[span.trajectory] {
                let (sample, scale) = computed[at];
                let member = &samples[sample].member;
                let tokens = span.trained.clone();
                if number == 0 && member.origin == (Origin::Fresh {}) {
                    mismatch.add(&member.trajectory.sampler_logp[tokens.clone()], new);
                }
                // in a later update only if they were not finite before: then the sample begins with these
                if let OldLogProbs::FirstPass(own) = &mut old[sample]
                    && own.get(tokens.clone()).is_some_and(|own| own.iter().any(|logp| logp.is_nan()))
                {
                    own[tokens.clone()].copy_from_slice(new);
                }
                let ratio = |(new, old): (&f32, &f32)| (new - old).exp();
                let old_logp = &old[sample].logp()[tokens.clone()];
                ratios.push((sample, tokens.start, new.iter().zip(old_logp).map(ratio).collect()));
                let turns = turns_of(&samples[sample], &tokens, config);
                let policy_sample = PolicySample {
                    advantage: samples[sample].advantage,
                    turns: &turns,
                    whole: whole.get(&sample).copied(),
                    new_logp: new,
                    old_logp,
                    reference_logp: reference.get(sample).map(|logp| &logp[tokens.clone()]),
                    behaviour: member.behaviour(&config.loss, &config.replay).map(|all| all.of(tokens)),
                };
                let (value, gradient, sums) = sample_loss(&policy_sample, scale, &config.loss);
                loss.value += value;
                statistics.add(&sums);
                loss.coefficients.iter_mut().zip(gradient).for_each(|(all, one)| *all += one);
            }
            loss
        };
        let result = whole.and_then(|whole| {
            learner.update(&distinct, screens, rate, &mut |span, new| loss_of_span(&whole, span, new))
        });
        let update = match result {
            Err(TrainError::Interrupted) => {
                progress.old = old.into_iter().map(OldLogProbs::known).collect();
                return Err(TrainError::Interrupted);
            }
            update => update?,
        };
        if update.applied {
            progress.keep_ratios(ratios, &trajectories);
        }
        let report = &mut progress.report;
        if update.applied {
            report.updates += 1;
            report.loss += update.loss;
            report.gradient_norm += update.gradient_norm.unwrap_or(0.0);
            for value in &update.entropy {
                progress.entropy = (progress.entropy.0 + f64::from(*value), progress.entropy.1 + 1);
            }
            report.statistics.add(&statistics);
            if number == 0 {
                report.mismatch = mismatch;
            }
        } else {
            // its statistics may not be finite, which JSON cannot hold
            report.skipped += 1;
        }
        report.tokens += distinct.iter().map(|trajectory| trajectory.tokens()).sum::<usize>();
        report.learning_rate = rate;
        progress.done += 1;
    }
    Ok(progress.report())
}

/// The turns of these trained tokens of a sample; empty where they make no difference.
fn turns_of(sample: &Sample, tokens: &Range<usize>, config: &Config) -> Vec<TurnTokens> {
    if sample.step_advantages.is_empty() && config.loss.ratio != RatioLevel::Turn {
        return vec![];
    }
    let mut start = 0;
    let turn = |(number, step): (usize, &Step)| {
        let count = step.span.len();
        let within = tokens.start <= start && start + count <= tokens.end;
        start += count;
        let advantage = sample.step_advantages.get(number).copied().unwrap_or(0.0);
        within.then_some(TurnTokens { count, advantage })
    };
    sample.member.trajectory.steps.iter().enumerate().filter_map(turn).collect()
}

/// What identifies an episode: its token sequences, and the screen and span of each step.
type EpisodeKey<'t> = (&'t [Slice], Vec<(&'t str, usize, usize)>);

/// Indices of the trajectories that are the same episode, step for step, in the order in which they first occur.
fn group_duplicates<'t>(trajectories: impl Iterator<Item = &'t Trajectory>) -> Vec<Vec<usize>> {
    let mut known: HashMap<EpisodeKey, usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = vec![];
    for (at, trajectory) in trajectories.enumerate() {
        let step =
            |step: &'t Step| (step.observation.screenshot.digest.as_str(), step.span.start, step.span.end);
        let steps = trajectory.steps.iter().map(step).collect();
        let group = *known.entry((&trajectory.slices, steps)).or_insert_with(|| {
            groups.push(vec![]);
            groups.len() - 1
        });
        groups[group].push(at);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::{LearnerInfo, LossOfSpan, UpdateReport};
    use crate::policy::WeightUpdate;
    use arpo_core::replay::Member;
    use arpo_core::task::TaskId;
    use arpo_core::trajectory::{
        EpisodeId, ImageRef, Observation, Outcome, PolicyVersion, TokenId, TokenSpan,
    };
    use std::path::Path;
    use std::sync::Arc;

    /// Every token has the same log-probability, which each update but the first makes larger; the first is skipped at once.
    struct SkipsFirst {
        logp: f32,
        updates: usize,
    }

    impl Learner for SkipsFirst {
        fn info(&self) -> LearnerInfo {
            LearnerInfo { parameters: 1, device: "none".into(), notices: vec![] }
        }

        fn log_probs(
            &mut self,
            _: Scorer,
            trajectories: &[&Trajectory],
            _: &Screens,
        ) -> Result<Vec<Vec<f32>>, TrainError> {
            Ok(trajectories.iter().map(|one| vec![self.logp; one.trained_tokens()]).collect())
        }

        fn update(
            &mut self,
            trajectories: &[&Trajectory],
            _: &Screens,
            _: f64,
            loss: &mut LossOfSpan,
        ) -> Result<UpdateReport, TrainError> {
            let applied = self.updates > 0;
            self.updates += 1;
            if applied {
                for (number, trajectory) in trajectories.iter().enumerate() {
                    let trained = 0..trajectory.trained_tokens();
                    let logp = vec![self.logp; trained.len()];
                    loss(&TrainedSpan { trajectory: number, trained }, &logp);
                }
                self.logp += 0.5;
            }
            Ok(UpdateReport { loss: 0.0, gradient_norm: None, applied, entropy: vec![] })
        }

        fn weights(&self) -> WeightUpdate {
            WeightUpdate::InPlace
        }

        fn skipped(&self) -> u64 {
            1
        }

        fn save(&self, _: &Path) -> Result<(), TrainError> {
            Ok(())
        }
    }

    /// A sample of one step with two trained tokens.
    fn sample(name: &str) -> Sample {
        let task = TaskId::new(name);
        let screenshot = ImageRef { digest: name.into(), width: 28, height: 28 };
        let step = Step {
            observation: Observation { screenshot },
            response: String::new(),
            actions: vec![],
            span: TokenSpan { start: 1, end: 3 },
        };
        let trajectory = Trajectory {
            id: EpisodeId::new(0, &task, 0),
            task,
            policy_version: PolicyVersion(0),
            slices: vec![Slice { tokens: [9, 1, 2].map(TokenId).to_vec(), first_live: 0, end: 1 }],
            steps: vec![step],
            sampler_logp: vec![-3.0; 2],
            score: 1.0,
            well_formed: true,
            outcome: Outcome::Finished {},
        };
        let member = Member { trajectory: Arc::new(trajectory), origin: Origin::Fresh {} };
        Sample { member, advantage: 1.0, step_advantages: vec![] }
    }

    /// Two updates in each of two epochs; the weights change in the second, third and fourth.
    #[test]
    fn after_a_skipped_first_update_ratios_still_begin_before_the_second() {
        let mut config = Config::default();
        (config.optimiser.epochs, config.optimiser.trajectories_per_update) = (2, 1);
        let (samples, screens) = ([sample("a"), sample("b")], Screens::default());
        let (mut learner, mut progress) = (SkipsFirst { logp: -3.0, updates: 0 }, Updates::default());
        let position = RunPosition { iteration: 0, updates_before: 0 };
        let report = learn(&mut learner, &samples, &mut progress, &screens, position, &config).unwrap();
        assert_eq!((report.updates, report.skipped), (3, 1));
        let mut ratios: Vec<f32> = progress.take_ratios().into_iter().flatten().flatten().collect();
        ratios.sort_by(f32::total_cmp);
        let expected = [0.5f32, 0.5, 1.0, 1.0].map(f32::exp);
        assert!(ratios.iter().zip(expected).all(|(is, expected)| (is - expected).abs() < 1e-5), "{ratios:?}");
        assert_eq!(ratios.len(), 4);
    }

    #[test]
    fn a_non_finite_log_probability_is_not_saved() {
        assert_eq!(OldLogProbs::FirstPass(vec![-1.0, -2.0]).known(), Some(vec![-1.0, -2.0]));
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(OldLogProbs::Known(vec![-1.0, odd]).known(), None);
        }
    }
}
