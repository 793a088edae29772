//! One update from micro-batches that are added one at a time: forward, loss and backward for each, then one optimiser
//! step. An update with a non-finite loss or gradient is skipped and counted, and its micro-batch is recorded.

use super::adamw::{AdamW, Update, gradient_norm};
use super::incident::{self, Evidence};
use super::{Learner, MicroBatch, TokenScores};
use crate::ModelError;
use arpo_ranks::Collectives;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use tch::Tensor;

/// A loss and its gradient with respect to the log-probabilities (see `arpo_core::loss`).
#[derive(Debug, Clone, PartialEq)]
pub struct LossGradient {
    /// The loss.
    pub value: f64,
    /// dL/dlogp, by episode, one for each trained token.
    pub coefficients: Vec<Vec<f32>>,
}

/// Trains a model: a learner and its optimiser.
#[derive(Debug)]
pub struct Updater {
    learner: Learner,
    optimiser: AdamW,
    /// The folder for records of skipped updates, if any.
    incidents: Option<PathBuf>,
    skipped: u64,
}

/// The outcome of an update.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateReport {
    /// The sum of the micro-batches' losses.
    pub loss: f64,
    /// The gradient's norm before clipping; `None` if the loss was non-finite, so that no gradient was computed.
    pub gradient_norm: Option<f64>,
    /// Whether the weights have changed.
    pub applied: bool,
    /// The model's scores before the update, by micro-batch.
    pub scores: Vec<TokenScores>,
    /// The record of a skipped update.
    pub incident: Option<PathBuf>,
}

/// An update in progress. Its gradients accumulate in the learner's weights until [`UpdateInProgress::finish`];
/// dropping it before that, after a failure or a cancellation, zeroes them.
#[derive(Debug)]
pub struct UpdateInProgress<'a> {
    updater: &'a mut Updater,
    losses: Vec<f64>,
    scores: Vec<TokenScores>,
    skipped_update: Option<SkippedUpdate>,
    finished: bool,
}

/// Why an update is skipped.
#[derive(Debug)]
struct SkippedUpdate {
    gradient_norm: Option<f64>,
    incident: Option<PathBuf>,
}

impl Updater {
    /// From a learner and its optimiser; skipped updates are recorded in new folders in `incidents`.
    pub fn new(learner: Learner, optimiser: AdamW, incidents: Option<PathBuf>) -> Self {
        Self { learner, optimiser, incidents, skipped: 0 }
    }

    /// Continues the count of skipped updates of a resumed run.
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

    /// Begins an update.
    pub fn begin(&mut self) -> UpdateInProgress<'_> {
        UpdateInProgress {
            updater: self,
            losses: vec![],
            scores: vec![],
            skipped_update: None,
            finished: false,
        }
    }

    /// One update from several micro-batches. `loss` computes the loss of each from its index and the model's scores;
    /// the losses are summed.
    pub fn update(
        &mut self,
        batches: &[MicroBatch],
        learning_rate: f64,
        mut loss: impl FnMut(usize, &TokenScores) -> LossGradient,
    ) -> Result<UpdateReport, ModelError> {
        let mut update = self.begin();
        for (index, &batch) in batches.iter().enumerate() {
            update.add(batch, |scores| loss(index, scores))?;
        }
        update.finish(learning_rate)
    }
}

impl UpdateInProgress<'_> {
    /// The learner.
    pub fn learner(&self) -> &Learner {
        &self.updater.learner
    }

    /// Adds a micro-batch. `loss` computes its loss from the model's scores. After a non-finite loss or gradient,
    /// further micro-batches are ignored.
    pub fn add(
        &mut self,
        batch: MicroBatch,
        loss: impl FnOnce(&TokenScores) -> LossGradient,
    ) -> Result<(), ModelError> {
        self.try_add(batch, |scores| Ok(loss(scores)))
    }

    /// The same with a loss that may fail to be computed: because another process computes it, for instance.
    pub fn try_add<E: From<ModelError>>(
        &mut self,
        batch: MicroBatch,
        loss: impl FnOnce(&TokenScores) -> Result<LossGradient, E>,
    ) -> Result<(), E> {
        if self.skipped_update.is_some() {
            return Ok(());
        }
        let learner = &self.updater.learner;
        let pass = learner.forward(batch)?;
        let scores = pass.scores().clone();
        let LossGradient { value, coefficients } = loss(&scores)?;
        let norm = if value.is_finite() {
            pass.backward(&coefficients)?;
            // computed after every micro-batch, at a thousandth of its cost, to identify the one with the non-finite
            // gradient
            Some(gradient_norm(learner.model().weights()))
        } else {
            None
        };
        self.losses.push(value);
        if norm.is_none_or(|norm| !norm.is_finite()) {
            learner.model().weights().zero_gradients();
            let evidence =
                Evidence { batch, scores: &scores, losses: &self.losses, coefficients: &coefficients };
            self.updater.skipped += 1;
            let incident = match &self.updater.incidents {
                None => None,
                Some(folder) => incident::write(folder, self.updater.skipped, &evidence, norm)?,
            };
            self.skipped_update = Some(SkippedUpdate { gradient_norm: norm, incident });
        }
        self.scores.push(scores);
        Ok(())
    }

    /// Updates the weights, unless a loss or gradient was non-finite. Without a micro-batch the gradient is 0: the
    /// weights still move by the optimiser's moments.
    pub fn finish(mut self, learning_rate: f64) -> Result<UpdateReport, ModelError> {
        let (losses, scores) = (std::mem::take(&mut self.losses), std::mem::take(&mut self.scores));
        let skipped_update = self.skipped_update.take();
        let applied = skipped_update.is_none();
        let updater = &mut *self.updater;
        let (gradient_norm, incident) = match skipped_update {
            Some(SkippedUpdate { gradient_norm, incident }) => (gradient_norm, incident),
            None => match updater.optimiser.update(updater.learner.model().weights(), learning_rate) {
                Update::Applied { gradient_norm } => (Some(gradient_norm), None),
                Update::Skipped { .. } => {
                    return Err(ModelError::Input(
                        "gradients that were finite have become non-finite".into(),
                    ));
                }
            },
        };
        self.finished = true;
        Ok(UpdateReport { loss: losses.iter().sum(), gradient_norm, applied, scores, incident })
    }
}

impl UpdateInProgress<'_> {
    /// The same with other ranks that have added other micro-batches of the same update: gradients are summed over all ranks,
    /// each rank updates its shard of the weights, and all end with the same weights. If one of them has a non-finite loss
    /// or gradient, all skip the update. The loss and the scores are those of this rank.
    pub fn finish_with(
        mut self,
        learning_rate: f64,
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<UpdateReport, ModelError> {
        let (losses, scores) = (std::mem::take(&mut self.losses), std::mem::take(&mut self.scores));
        let own = self.skipped_update.take();
        let skipping = ranks.sums(&[f64::from(u8::from(own.is_some()))])?[0];
        let report = |gradient_norm, applied, incident| UpdateReport {
            loss: losses.iter().sum(),
            gradient_norm,
            applied,
            scores,
            incident,
        };
        let updater = &mut *self.updater;
        let weights = updater.learner.model().weights();
        if skipping > 0.0 {
            updater.skipped += u64::from(own.is_none());
            let (norm, incident) = own.map_or((None, None), |own| (own.gradient_norm, own.incident));
            // dropping zeroes the gradients
            return Ok(report(norm, false, incident));
        }
        let (norm, applied) = match updater.optimiser.update_with(weights, learning_rate, ranks)? {
            Update::Applied { gradient_norm } => (gradient_norm, true),
            // each rank's gradient was finite, their sum is not
            Update::Skipped { gradient_norm } => (gradient_norm, false),
        };
        updater.skipped += u64::from(!applied);
        self.finished = true;
        Ok(report(Some(norm), applied, None))
    }
}

impl Drop for UpdateInProgress<'_> {
    fn drop(&mut self) {
        if !self.finished {
            let weights = self.updater.learner.model().weights();
            // a device that has just failed may fail here too; the first failure is the one to report
            let _ = catch_unwind(AssertUnwindSafe(|| weights.zero_gradients()));
        }
    }
}
