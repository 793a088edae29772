//! The updates of one iteration: samples into micro-batches of whole episodes, the clipped loss over each update's
//! batch, one optimiser step each. An episode that several samples have in common is computed once, and their
//! coefficients are added: the gradient is the same, and a policy that is sure of itself often does the same thing twice.
//!
//! Old log-probabilities: those of the first update's samples are the ones its own forward pass finds, because nothing
//! has moved yet; only samples of later updates need a pass beforehand, and with `loss.old = "sampler"` only the
//! replayed ones among them.

use crate::TrainError;
use crate::layout::Layout;
use crate::lesson::{Sample, updates};
use arpo_core::config::Config;
use arpo_core::loss::{LossStatistics, OldLogp, PolicySample, sample_loss, token_scales};
use arpo_core::replay::Origin;
use arpo_core::trajectory::{TokenId, Trajectory};
use arpo_model::learner::step::{LossGradient, Updater};
use arpo_model::learner::{Learner, TokenScores};
use std::collections::HashMap;

/// How an iteration's updates went.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LearnReport {
    /// Optimiser steps.
    pub updates: usize,
    /// Optimiser steps that were skipped because a loss or gradient was no number.
    pub skipped: usize,
    /// Mean loss.
    pub loss: f64,
    /// Mean norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Sums over all trained tokens.
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
#[derive(Debug, Clone, Copy, PartialEq, Default)]
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

/// Learns from an iteration's samples. A `reference` is the model that `loss.kl_coefficient` ties the policy to.
pub fn learn(
    updater: &mut Updater,
    reference: Option<&Learner>,
    samples: &[Sample],
    layout: &Layout,
    place: Place,
    config: &Config,
) -> Result<LearnReport, TrainError> {
    let mut report = LearnReport::default();
    let plan: Vec<Vec<usize>> = (0..config.optimiser.epochs)
        .flat_map(|epoch| updates(samples.len(), epoch, place.iteration, config))
        .collect();
    let trajectories: Vec<&Trajectory> =
        samples.iter().map(|sample| sample.member.trajectory.as_ref()).collect();
    let tied_to = match reference {
        Some(reference) => layout.scores(reference, &trajectories)?,
        None => vec![],
    };
    let mut old = old_before(updater, samples, &trajectories, layout, &plan, config)?;
    let (mut entropy, mut norms) = ((0.0, 0usize), 0.0);
    for (number, chosen) in plan.iter().enumerate() {
        let lengths: Vec<usize> =
            chosen.iter().map(|&sample| trajectories[sample].trained_tokens()).collect();
        let scales = token_scales(&lengths, config.loss.normaliser, config.loss.constant_tokens);
        let update = place.updates_before + number as u64;
        // how many there will be is not known: groups without spread cost none
        let rate = config.optimiser.learning_rate_at(update, config.iterations * plan.len().max(1) as u64);
        let mut statistics = LossStatistics::default();
        let mut mismatch = Mismatch::default();
        let alike = alike(chosen.iter().map(|&sample| trajectories[sample]));
        let together: Vec<&Trajectory> = alike.iter().map(|same| trajectories[chosen[same[0]]]).collect();
        let alone: Vec<Vec<usize>> = (0..together.len()).map(|at| vec![at]).collect();
        let device = updater.learner().model().device();
        let made = layout.with_batches(device, &together, &alone, |parts, batches| {
            let loss = |batch: usize, scores: &TokenScores| {
                let mut gradient = LossGradient { value: 0.0, coefficients: vec![] };
                for (&episode, new) in parts[batch].iter().zip(&scores.logp) {
                    let mut coefficients = vec![0.0; new.len()];
                    for &at in &alike[episode] {
                        let sample = &samples[chosen[at]];
                        if number == 0 && sample.member.origin == (Origin::Fresh {}) {
                            mismatch.add(&sample.member.trajectory.sampler_logp, new);
                        }
                        let tokens = PolicySample {
                            advantage: sample.advantage,
                            new_logp: new,
                            old_logp: old[chosen[at]].get_or_insert_with(|| new.clone()),
                            reference_logp: tied_to.get(chosen[at]).map(Vec::as_slice),
                            behaviour: sample.member.behaviour(&config.loss, &config.replay),
                        };
                        let (value, one, sums) = sample_loss(&tokens, scales[at], &config.loss);
                        gradient.value += value;
                        statistics.add(&sums);
                        coefficients.iter_mut().zip(one).for_each(|(all, one)| *all += one);
                    }
                    gradient.coefficients.push(coefficients);
                }
                gradient
            };
            Ok(updater.update(batches, rate, loss)?)
        })?;
        report.updates += usize::from(made.made);
        report.skipped += usize::from(!made.made);
        report.loss += made.loss / plan.len() as f64;
        norms += made.gradient_norm.unwrap_or(0.0);
        for value in made.scores.iter().flat_map(|scores| &scores.entropy).flatten() {
            entropy = (entropy.0 + f64::from(*value), entropy.1 + 1);
        }
        report.statistics.add(&statistics);
        if number == 0 {
            report.mismatch = mismatch;
        }
        report.tokens += together.iter().map(|trajectory| trajectory.tokens.len()).sum::<usize>();
        report.learning_rate = rate;
    }
    report.gradient_norm = norms / plan.len().max(1) as f64;
    report.entropy = entropy.0 / entropy.1.max(1) as f64;
    Ok(report)
}

/// Which trajectories are the same episode, step for step, in the order they first come.
fn alike<'t>(trajectories: impl Iterator<Item = &'t Trajectory>) -> Vec<Vec<usize>> {
    let mut places: HashMap<(&[TokenId], Vec<&str>), usize> = HashMap::new();
    let mut alike: Vec<Vec<usize>> = vec![];
    for (at, trajectory) in trajectories.enumerate() {
        let screens =
            trajectory.steps.iter().map(|step| step.observation.screenshot.digest.as_str()).collect();
        let place = *places.entry((&trajectory.tokens, screens)).or_insert_with(|| {
            alike.push(vec![]);
            alike.len() - 1
        });
        alike[place].push(at);
    }
    alike
}

/// Old log-probabilities of the samples that cannot take them from the first forward pass.
fn old_before(
    updater: &Updater,
    samples: &[Sample],
    trajectories: &[&Trajectory],
    layout: &Layout,
    plan: &[Vec<usize>],
    config: &Config,
) -> Result<Vec<Option<Vec<f32>>>, TrainError> {
    let from_sampler = |sample: &Sample| {
        let fresh = sample.member.origin == (Origin::Fresh {}) && config.loss.old == OldLogp::Sampler;
        fresh.then(|| sample.member.trajectory.sampler_logp.clone())
    };
    let mut old: Vec<Option<Vec<f32>>> = samples.iter().map(from_sampler).collect();
    let first: &[usize] = plan.first().map_or(&[], Vec::as_slice);
    let missing: Vec<usize> =
        (0..samples.len()).filter(|sample| old[*sample].is_none() && !first.contains(sample)).collect();
    let missed: Vec<&Trajectory> = missing.iter().map(|&sample| trajectories[sample]).collect();
    for (at, logp) in layout.scores(updater.learner(), &missed)?.into_iter().enumerate() {
        old[missing[at]] = Some(logp);
    }
    Ok(old)
}
