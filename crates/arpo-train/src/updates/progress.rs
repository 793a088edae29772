//! How far an iteration's updates are, and what came of them.

use arpo_core::loss::LossStatistics;
use arpo_core::trajectory::Trajectory;
use serde::{Deserialize, Serialize};

/// The progress of an iteration's updates; enough to continue them in another process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Updates {
    /// Updates done, skipped ones included.
    pub(super) done: usize,
    /// Old log-probabilities of each sample; `None` if its first forward pass will provide them. Empty before the first
    /// update.
    pub(super) old: Vec<Option<Vec<f32>>>,
    /// Here, loss and gradient norm are sums.
    pub(super) report: LearnReport,
    /// Sum of the entropies, and their number.
    pub(super) entropy: (f64, usize),
    /// For each sample, the ratios of its tokens in the last update that used it; empty before the first update.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ratios: Vec<Option<Vec<f32>>>,
}

impl Updates {
    /// Updates made or skipped so far.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Updates skipped so far.
    pub fn skipped(&self) -> usize {
        self.report.skipped
    }

    /// For each sample, the ratio of the learner's probability to the old one of each of its tokens, in the last update
    /// that used it; `None` if none did.
    pub fn take_ratios(&mut self) -> Vec<Option<Vec<f32>>> {
        std::mem::take(&mut self.ratios)
    }

    /// Keeps the ratios of an update that was applied, given in parts: the sample, its first token, the ratios.
    pub(super) fn keep_ratios(&mut self, parts: Vec<(usize, usize, Vec<f32>)>, trajectories: &[&Trajectory]) {
        self.ratios.resize(trajectories.len(), None);
        let mut samples: Vec<usize> = parts.iter().map(|(sample, ..)| *sample).collect();
        samples.sort_unstable();
        samples.dedup();
        for &sample in &samples {
            self.ratios[sample] = Some(vec![f32::NAN; trajectories[sample].trained_tokens()]);
        }
        for (sample, start, part) in parts {
            if let Some(ratios) = &mut self.ratios[sample] {
                ratios[start..start + part.len()].copy_from_slice(&part);
            }
        }
        // JSON has neither NaN nor infinity
        for sample in samples {
            self.ratios[sample].take_if(|ratios| ratios.iter().any(|ratio| !ratio.is_finite()));
        }
    }

    /// Their statistics.
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

/// Statistics of an iteration's updates.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnReport {
    /// Optimiser steps.
    pub updates: usize,
    /// Optimiser steps that were skipped because a loss or gradient was not finite.
    pub skipped: usize,
    /// Mean loss of the updates made.
    pub loss: f64,
    /// Mean norm of their gradients before clipping.
    pub gradient_norm: f64,
    /// Sums over the trained tokens of trajectories with an advantage; the others are not computed.
    pub statistics: LossStatistics,
    /// Mean entropy of the distributions of the trained tokens.
    pub entropy: f64,
    /// Between sampler and learner, before the weights changed.
    pub mismatch: Mismatch,
    /// Tokens computed, those of prompts and images included; duplicate episodes count once.
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

    pub(super) fn add(&mut self, sampler: &[f32], learner: &[f32]) {
        for (sampler, learner) in sampler.iter().zip(learner) {
            let difference = f64::from((sampler - learner).abs());
            self.tokens += 1;
            self.sum += difference;
            self.largest = self.largest.max(difference);
        }
    }
}
