//! The updates of one iteration: samples shared out among updates, the clipped loss over each update's batch, one
//! optimiser step each. A sample without advantage counts in its batch and costs no pass. An episode that several samples
//! have in common is computed once, and their coefficients are added: the gradient is the same, and a policy that is sure
//! of itself often does the same thing twice.
//!
//! Old log-probabilities: those of the first update's samples are the ones its own forward pass finds, because nothing
//! has moved yet; only samples of later updates need a pass beforehand, and with `loss.old = "sampler"` only the
//! replayed ones among them.
//!
//! Updates can be stopped between any two micro-batches: the update under way moves nothing, and [`Updates`] says how to
//! go on with it later.

use crate::TrainError;
use crate::layout::Layout;
use crate::lesson::{Sample, updates};
use arpo_core::config::Config;
use arpo_core::loss::{LossStatistics, OldLogp, PolicySample, sample_loss, token_scales};
use arpo_core::replay::Origin;
use arpo_core::trajectory::{Slice, Step, Trajectory};
use arpo_model::learner::Learner;
use arpo_model::learner::step::Updater;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The updates of an iteration, as far as they are made; enough to go on with them in another process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Updates {
    /// Those gone through, skipped ones included.
    done: usize,
    /// What the samples' ratios start from; none where the first pass is yet to find it. Empty before the first update.
    old: Vec<Option<Vec<f32>>>,
    /// Its loss and gradient norm are sums.
    report: LearnReport,
    /// Sum of the entropies, and how many they are.
    entropy: (f64, usize),
}

impl Updates {
    /// Made or skipped so far.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Those skipped so far.
    pub fn skipped(&self) -> usize {
        self.report.skipped
    }

    /// How they went.
    pub fn report(&self) -> LearnReport {
        let over = |sum: f64, count: usize| sum / count.max(1) as f64;
        LearnReport {
            loss: over(self.report.loss, self.report.updates),
            gradient_norm: over(self.report.gradient_norm, self.report.updates),
            entropy: over(self.entropy.0, self.entropy.1),
            ..self.report.clone()
        }
    }
}

/// How an iteration's updates went.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnReport {
    /// Optimiser steps.
    pub updates: usize,
    /// Optimiser steps that were skipped because a loss or gradient was no number.
    pub skipped: usize,
    /// Mean loss of the updates made.
    pub loss: f64,
    /// Mean norm of their gradients before clipping.
    pub gradient_norm: f64,
    /// Sums over the trained tokens of trajectories with an advantage; others are not gone through.
    pub statistics: LossStatistics,
    /// Mean entropy of the distributions the trained tokens were taken from.
    pub entropy: f64,
    /// Between sampler and learner, before anything moved.
    pub mismatch: Mismatch,
    /// Tokens gone through, the prompts' and pictures' included; of equal episodes one counts.
    pub tokens: usize,
    /// The last learning rate.
    pub learning_rate: f64,
}

/// How far the sampler's log-probabilities of fresh tokens are from the learner's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mismatch {
    /// Tokens compared.
    pub tokens: usize,
    /// Sum of the absolute differences.
    pub sum: f64,
    /// The largest.
    pub largest: f64,
}

impl Mismatch {
    /// Mean absolute difference.
    pub fn mean(&self) -> f64 {
        if self.tokens == 0 { 0.0 } else { self.sum / self.tokens as f64 }
    }

    fn add(&mut self, sampler: &[f32], learner: &[f32]) {
        for (sampler, learner) in sampler.iter().zip(learner) {
            let difference = f64::from((sampler - learner).abs());
            self.tokens += 1;
            self.sum += difference;
            self.largest = self.largest.max(difference);
        }
    }
}

/// Where an iteration stands in its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The iteration.
    pub iteration: u64,
    /// Updates made before it.
    pub updates_before: u64,
}

/// Makes those of an iteration's updates that are not made yet; interrupted, the rest of them is left for another time. A
/// `reference` is the model that `loss.kl_coefficient` ties the policy to.
pub fn learn(
    updater: &mut Updater,
    reference: Option<&Learner>,
    samples: &[Sample],
    progress: &mut Updates,
    layout: &Layout,
    place: Place,
    config: &Config,
) -> Result<LearnReport, TrainError> {
    let plan: Vec<Vec<usize>> = (0..config.optimiser.epochs)
        .flat_map(|epoch| updates(samples.len(), epoch, place.iteration, config))
        .collect();
    if progress.done >= plan.len() {
        return Ok(progress.report());
    }
    let trajectories: Vec<&Trajectory> =
        samples.iter().map(|sample| sample.member.trajectory.as_ref()).collect();
    let tied_to = match reference {
        Some(reference) => layout.scores(reference, &trajectories)?,
        None => vec![],
    };
    let mut old = if progress.old.is_empty() {
        old_before(updater, samples, &trajectories, layout, &plan, config)?
    } else {
        let known = std::mem::take(&mut progress.old).into_iter();
        known.zip(&trajectories).map(|(known, trajectory)| Old::from_known(known, trajectory)).collect()
    };
    for (number, batch) in plan.iter().enumerate().skip(progress.done) {
        let lengths: Vec<usize> = batch.iter().map(|&sample| trajectories[sample].trained_tokens()).collect();
        let scales = token_scales(&lengths, config.loss.normaliser, config.loss.constant_tokens);
        let update = place.updates_before + number as u64;
        let share_of_run =
            (place.iteration as f64 + number as f64 / plan.len() as f64) / config.iterations as f64;
        let rate = config.optimiser.learning_rate_at(update, share_of_run);
        let mut statistics = LossStatistics::default();
        let mut mismatch = Mismatch::default();
        let counted: Vec<(usize, f64)> = batch.iter().copied().zip(scales).collect();
        let chosen: Vec<(usize, f64)> =
            counted.into_iter().filter(|&(sample, _)| pulls(&samples[sample], config)).collect();
        let alike = alike(chosen.iter().map(|&(sample, _)| trajectories[sample]));
        let together: Vec<&Trajectory> = alike.iter().map(|same| trajectories[chosen[same[0]].0]).collect();
        let result = layout.update(updater, &together, rate, |part, new| {
            let (mut value, mut coefficients) = (0.0, vec![0.0; new.len()]);
            for &at in &alike[part.trajectory] {
                let (sample, scale) = chosen[at];
                let member = &samples[sample].member;
                let said = part.trained.clone();
                if number == 0 && member.origin == (Origin::Fresh {}) {
                    mismatch.add(&member.trajectory.sampler_logp[said.clone()], new);
                }
                // in a later update only if the first was skipped, and then nothing has moved since
                if let Old::FirstPass(own) = &mut old[sample]
                    && own.get(said.start).is_some_and(|logp| logp.is_nan())
                {
                    own[said.clone()].copy_from_slice(new);
                }
                let tokens = PolicySample {
                    advantage: samples[sample].advantage,
                    new_logp: new,
                    old_logp: &old[sample].logp()[said.clone()],
                    reference_logp: tied_to.get(sample).map(|logp| &logp[said.clone()]),
                    behaviour: member.behaviour(&config.loss, &config.replay).map(|all| all.of(said)),
                };
                let (one, gradient, sums) = sample_loss(&tokens, scale, &config.loss);
                value += one;
                statistics.add(&sums);
                coefficients.iter_mut().zip(gradient).for_each(|(all, one)| *all += one);
            }
            (value, coefficients)
        });
        let made = match result {
            Err(TrainError::Interrupted) => {
                progress.old = old.into_iter().map(Old::known).collect();
                return Err(TrainError::Interrupted);
            }
            made => made?,
        };
        let report = &mut progress.report;
        if made.made {
            report.updates += 1;
            report.loss += made.loss;
            report.gradient_norm += made.gradient_norm.unwrap_or(0.0);
            for value in made.scores.iter().flat_map(|scores| &scores.entropy).flatten() {
                progress.entropy = (progress.entropy.0 + f64::from(*value), progress.entropy.1 + 1);
            }
            report.statistics.add(&statistics);
            if number == 0 {
                report.mismatch = mismatch;
            }
        } else {
            // what it saw may hold what is no number, which no file could keep
            report.skipped += 1;
        }
        report.tokens += together.iter().map(|trajectory| trajectory.tokens()).sum::<usize>();
        report.learning_rate = rate;
        progress.done += 1;
    }
    Ok(progress.report())
}

/// Whether a sample adds anything to the gradient. One that does not counts in its batch and needs no pass: with an
/// advantage of 0 every coefficient is 0, unless a reference model holds it.
fn pulls(sample: &Sample, config: &Config) -> bool {
    sample.advantage != 0.0 || config.loss.kl_coefficient > 0.0
}

/// The log-probabilities that a sample's ratios start from.
enum Old {
    /// Known beforehand.
    Known(Vec<f32>),
    /// Those of its first forward pass, before anything has moved; no numbers until then.
    FirstPass(Vec<f32>),
}

impl Old {
    fn logp(&self) -> &[f32] {
        match self {
            Self::Known(logp) | Self::FirstPass(logp) => logp,
        }
    }

    /// As it can be written down: a file has no room for what is no number.
    fn known(self) -> Option<Vec<f32>> {
        match self {
            Self::Known(logp) | Self::FirstPass(logp) => {
                logp.iter().all(|logp| logp.is_finite()).then_some(logp)
            }
        }
    }

    fn from_known(known: Option<Vec<f32>>, trajectory: &Trajectory) -> Self {
        match known {
            Some(logp) => Self::Known(logp),
            None => Self::FirstPass(vec![f32::NAN; trajectory.trained_tokens()]),
        }
    }
}

/// What makes an episode what it is: its sequences, and the screen and the words of each step.
type Episode<'t> = (&'t [Slice], Vec<(&'t str, usize, usize)>);

/// Which trajectories are the same episode, step for step, in the order they first come.
fn alike<'t>(trajectories: impl Iterator<Item = &'t Trajectory>) -> Vec<Vec<usize>> {
    let mut places: HashMap<Episode, usize> = HashMap::new();
    let mut alike: Vec<Vec<usize>> = vec![];
    for (at, trajectory) in trajectories.enumerate() {
        let step =
            |step: &'t Step| (step.observation.screenshot.digest.as_str(), step.span.start, step.span.end);
        let steps = trajectory.steps.iter().map(step).collect();
        let place = *places.entry((&trajectory.slices, steps)).or_insert_with(|| {
            alike.push(vec![]);
            alike.len() - 1
        });
        alike[place].push(at);
    }
    alike
}

/// Old log-probabilities of all samples; those that cannot take them from the first forward pass are computed.
fn old_before(
    updater: &Updater,
    samples: &[Sample],
    trajectories: &[&Trajectory],
    layout: &Layout,
    plan: &[Vec<usize>],
    config: &Config,
) -> Result<Vec<Old>, TrainError> {
    let first: &[usize] = plan.first().map_or(&[], Vec::as_slice);
    let mut missing = vec![];
    let mut old: Vec<Old> = samples
        .iter()
        .enumerate()
        .map(|(number, Sample { member, .. })| {
            if member.origin == (Origin::Fresh {}) && config.loss.old == OldLogp::Sampler {
                return Old::Known(member.trajectory.sampler_logp.clone());
            }
            if !first.contains(&number) && pulls(&samples[number], config) {
                missing.push(number);
            }
            Old::FirstPass(vec![f32::NAN; trajectories[number].trained_tokens()])
        })
        .collect();
    let missed: Vec<&Trajectory> = missing.iter().map(|&sample| trajectories[sample]).collect();
    for (sample, logp) in missing.into_iter().zip(layout.scores(updater.learner(), &missed)?) {
        old[sample] = Old::Known(logp);
    }
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_probability_that_is_no_number_is_not_written_down() {
        assert_eq!(Old::FirstPass(vec![-1.0, -2.0]).known(), Some(vec![-1.0, -2.0]));
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(Old::Known(vec![-1.0, odd]).known(), None);
        }
    }
}
