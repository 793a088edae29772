//! One update from micro-batches: forward, loss and backward for each, then the optimiser once. An update whose loss or
//! gradient is no number is skipped, counted, and written down.

use super::adamw::{AdamW, Update};
use super::incident::{self, Evidence};
use super::{Learner, MicroBatch, TokenScores};
use crate::ModelError;
use std::path::PathBuf;

/// A loss and its gradient with respect to the log-probabilities (see `arpo_core::loss`).
#[derive(Debug, Clone, PartialEq)]
pub struct LossGradient {
    /// The loss.
    pub value: f64,
    /// dL/dlogp, by episode, one for each trained token.
    pub coefficients: Vec<Vec<f32>>,
}

/// Makes updates.
#[derive(Debug)]
pub struct Updater {
    learner: Learner,
    optimiser: AdamW,
    /// Where skipped updates are written down, if anywhere.
    incidents: Option<PathBuf>,
    skipped: u64,
}

/// How an update went.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateReport {
    /// The sum of the micro-batches' losses.
    pub loss: f64,
    /// The gradient's norm before clipping; `None` if the loss was no number, so that none was computed.
    pub gradient_norm: Option<f64>,
    /// The weights have moved.
    pub made: bool,
    /// What the model said before, by micro-batch.
    pub scores: Vec<TokenScores>,
    /// Where a skipped update was written down.
    pub written: Option<PathBuf>,
}

impl Updater {
    /// From a learner and its optimiser; skipped updates are written to new folders in `incidents`.
    pub fn new(learner: Learner, optimiser: AdamW, incidents: Option<PathBuf>) -> Self {
        Self { learner, optimiser, incidents, skipped: 0 }
    }

    /// Goes on counting skipped updates where a run that is resumed had got to.
    #[must_use]
    pub fn with_skipped(self, skipped: u64) -> Self {
        Self { skipped, ..self }
    }

    /// The learner.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    /// The optimiser.
    pub fn optimiser(&self) -> &AdamW {
        &self.optimiser
    }

    /// Updates skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// One update. `loss` is asked for each micro-batch's, by its number and what the model says of it; what it returns
    /// is added up.
    pub fn update(
        &mut self,
        batches: &[MicroBatch],
        learning_rate: f64,
        mut loss: impl FnMut(usize, &TokenScores) -> LossGradient,
    ) -> Result<UpdateReport, ModelError> {
        let mut evidence: Vec<Evidence> = Vec::with_capacity(batches.len());
        for (number, &batch) in batches.iter().enumerate() {
            let pass = self.learner.forward(batch)?;
            let scores = pass.scores().clone();
            let LossGradient { value, coefficients } = loss(number, &scores);
            if value.is_finite() {
                pass.backward(&coefficients)?;
            }
            evidence.push(Evidence { batch, scores, loss: value, coefficients });
            if !value.is_finite() {
                self.learner.model().weights().zero_gradients();
                return self.skip(evidence, None);
            }
        }
        match self.optimiser.update(self.learner.model().weights(), learning_rate) {
            Update::Skipped { gradient_norm } => self.skip(evidence, Some(gradient_norm)),
            Update::Made { gradient_norm } => Ok(report(evidence, Some(gradient_norm), None)),
        }
    }

    fn skip(
        &mut self,
        evidence: Vec<Evidence>,
        gradient_norm: Option<f64>,
    ) -> Result<UpdateReport, ModelError> {
        self.skipped += 1;
        let written = match &self.incidents {
            None => None,
            Some(folder) => Some(incident::write(folder, self.skipped, &evidence, gradient_norm)?),
        };
        Ok(UpdateReport { made: false, ..report(evidence, gradient_norm, written) })
    }
}

fn report(evidence: Vec<Evidence>, gradient_norm: Option<f64>, written: Option<PathBuf>) -> UpdateReport {
    UpdateReport {
        loss: evidence.iter().map(|one| one.loss).sum(),
        gradient_norm,
        made: true,
        scores: evidence.into_iter().map(|one| one.scores).collect(),
        written,
    }
}
