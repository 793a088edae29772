//! The updates of one iteration: samples into micro-batches of whole episodes, the clipped loss over each update's
//! batch, one optimiser step each.
//!
//! Old log-probabilities: those of the first update's samples are the ones its own forward pass finds, because nothing
//! has moved yet; only samples of later updates need a pass beforehand, and with `loss.old = "sampler"` only the
//! replayed ones among them.

use crate::TrainError;
use crate::lesson::{Sample, updates};
use crate::pictures::Pictures;
use crate::screens::Screens;
use arpo_core::config::Config;
use arpo_core::loss::{LossStatistics, OldLogp, PolicySample, sample_loss, token_scales};
use arpo_core::replay::Origin;
use arpo_image::ImageProcessor;
use arpo_model::learner::step::{LossGradient, Updater};
use arpo_model::learner::{Episode, MicroBatch, Picture, TokenScores};

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
    /// Tokens gone through, the prompts' and pictures' included.
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

/// Learns from an iteration's samples.
pub fn learn(
    updater: &mut Updater,
    samples: &[Sample],
    screens: &Screens,
    processor: &ImageProcessor,
    place: Place,
    config: &Config,
) -> Result<LearnReport, TrainError> {
    let mut report = LearnReport::default();
    let plan: Vec<Vec<usize>> = (0..config.optimiser.epochs)
        .flat_map(|epoch| updates(samples.len(), epoch, place.iteration, config))
        .collect();
    let classroom = Classroom { samples, screens, processor, config };
    let mut old = classroom.old_before(updater, &plan)?;
    let (mut entropy, mut norms) = ((0.0, 0usize), 0.0);
    for (number, chosen) in plan.iter().enumerate() {
        let lengths: Vec<usize> =
            chosen.iter().map(|&sample| samples[sample].member.trajectory.trained_tokens()).collect();
        let scales = token_scales(&lengths, config.loss.normaliser, config.loss.constant_tokens);
        let update = place.updates_before + number as u64;
        // how many there will be is not known: groups without spread cost none
        let rate = config.optimiser.learning_rate_at(update, config.iterations * plan.len().max(1) as u64);
        let mut statistics = LossStatistics::default();
        let mut mismatch = Mismatch::default();
        let made = classroom.with_batches(updater.learner().model().device(), chosen, |parts, batches| {
            let loss = |batch: usize, scores: &TokenScores| {
                let mut gradient = LossGradient { value: 0.0, coefficients: vec![] };
                for (&at, new) in parts[batch].iter().zip(&scores.logp) {
                    let sample = &samples[chosen[at]];
                    let trajectory = &sample.member.trajectory;
                    if number == 0 && sample.member.origin == (Origin::Fresh {}) {
                        mismatch.add(&trajectory.sampler_logp, new);
                    }
                    let old = old[chosen[at]].get_or_insert_with(|| new.clone());
                    let tokens = PolicySample {
                        advantage: sample.advantage,
                        new_logp: new,
                        old_logp: old,
                        reference_logp: None,
                        behaviour: sample.member.behaviour(&config.loss, &config.replay),
                    };
                    let (value, coefficients, sums) = sample_loss(&tokens, scales[at], &config.loss);
                    gradient.value += value;
                    gradient.coefficients.push(coefficients);
                    statistics.add(&sums);
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
        report.tokens +=
            chosen.iter().map(|&sample| samples[sample].member.trajectory.tokens.len()).sum::<usize>();
        report.learning_rate = rate;
    }
    report.gradient_norm = norms / plan.len().max(1) as f64;
    report.entropy = entropy.0 / entropy.1.max(1) as f64;
    Ok(report)
}

/// What is needed to lay samples out.
struct Classroom<'a> {
    samples: &'a [Sample],
    screens: &'a Screens,
    processor: &'a ImageProcessor,
    config: &'a Config,
}

impl Classroom<'_> {
    /// Old log-probabilities of the samples that cannot take them from the first forward pass.
    fn old_before(
        &self,
        updater: &Updater,
        plan: &[Vec<usize>],
    ) -> Result<Vec<Option<Vec<f32>>>, TrainError> {
        let mut old: Vec<Option<Vec<f32>>> = vec![None; self.samples.len()];
        if self.config.loss.old == OldLogp::Sampler {
            for (old, sample) in old.iter_mut().zip(self.samples) {
                if sample.member.origin == (Origin::Fresh {}) {
                    *old = Some(sample.member.trajectory.sampler_logp.clone());
                }
            }
        }
        let first: &[usize] = plan.first().map_or(&[], Vec::as_slice);
        let missing: Vec<usize> = (0..self.samples.len())
            .filter(|sample| old[*sample].is_none() && !first.contains(sample))
            .collect();
        self.with_batches(updater.learner().model().device(), &missing, |parts, batches| {
            for (part, batch) in parts.iter().zip(batches) {
                let scores = updater.learner().scores(batch)?;
                for (&at, logp) in part.iter().zip(scores.logp) {
                    old[missing[at]] = Some(logp);
                }
            }
            Ok(())
        })?;
        Ok(old)
    }

    /// Lays chosen samples out in micro-batches: shorter episodes first, as many together as the budget of tokens takes.
    /// `then` is given which of the chosen are in each, and the micro-batches.
    fn with_batches<T>(
        &self,
        device: tch::Device,
        chosen: &[usize],
        then: impl FnOnce(&[Vec<usize>], &[MicroBatch]) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let trajectory = |at: usize| &self.samples[chosen[at]].member.trajectory;
        let mut order: Vec<usize> = (0..chosen.len()).collect();
        order.sort_by_key(|&at| trajectory(at).tokens.len());
        let mut parts: Vec<Vec<usize>> = vec![];
        let mut filled = usize::MAX;
        for at in order {
            let length = trajectory(at).tokens.len();
            if filled.saturating_add(length) > self.config.model.micro_batch_tokens {
                parts.push(vec![]);
                filled = 0;
            }
            filled += length;
            parts.last_mut().expect("one was just begun").push(at);
        }
        let rooms = parts
            .iter()
            .map(|part| {
                let shown = part.iter().map(|&at| self.screens.of(trajectory(at))).collect::<Result<Vec<_>, _>>()?;
                let pictures = Pictures::new(self.processor, &shown)?;
                let tokens: Vec<Vec<u32>> =
                    part.iter().map(|&at| trajectory(at).tokens.iter().map(|token| token.0).collect()).collect();
                let trained = part.iter().map(|&at| trajectory(at).action_mask()).collect();
                Ok(Room { placed: pictures.on(device), pictures, tokens, trained })
            })
            .collect::<Result<Vec<Room>, TrainError>>()?;
        let episodes: Vec<Vec<Episode>> = rooms.iter().map(Room::episodes).collect();
        let batches: Vec<MicroBatch> = rooms
            .iter()
            .zip(&episodes)
            .map(|(room, episodes)| MicroBatch { episodes, pictures: &room.placed })
            .collect();
        then(&parts, &batches)
    }
}

/// What a micro-batch borrows.
struct Room {
    placed: Vec<Picture>,
    pictures: Pictures,
    tokens: Vec<Vec<u32>>,
    trained: Vec<Vec<bool>>,
}

impl Room {
    fn episodes(&self) -> Vec<Episode<'_>> {
        let one = |at: usize| Episode {
            tokens: &self.tokens[at],
            pictures: self.pictures.shown(at),
            trained: &self.trained[at],
        };
        (0..self.tokens.len()).map(one).collect()
    }
}
