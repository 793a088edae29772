//! One update from micro-batches that are given one at a time: forward, loss and backward for each, then the optimiser
//! once. An update whose loss or gradient is no number is skipped, counted, and its micro-batch written down.

use super::adamw::{AdamW, Update, gradient_norm};
use super::incident::{self, Evidence};
use super::{Learner, MicroBatch, TokenScores};
use crate::ModelError;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

/// An update that is being put together. Its gradients lie in the learner's weights until [`UpdateInProgress::finish`];
/// one that is dropped before, because it failed or was given up, leaves none behind.
#[derive(Debug)]
pub struct UpdateInProgress<'a> {
    updater: &'a mut Updater,
    losses: Vec<f64>,
    scores: Vec<TokenScores>,
    broken: Option<Broken>,
    finished: bool,
}

/// Why an update is not made.
#[derive(Debug)]
struct Broken {
    gradient_norm: Option<f64>,
    written: Option<PathBuf>,
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

    /// Begins an update.
    pub fn begin(&mut self) -> UpdateInProgress<'_> {
        UpdateInProgress { updater: self, losses: vec![], scores: vec![], broken: None, finished: false }
    }

    /// One update from micro-batches that are all there. `loss` is asked for each one's, by its number and what the model
    /// says of it; what it returns is added up.
    pub fn update(
        &mut self,
        batches: &[MicroBatch],
        learning_rate: f64,
        mut loss: impl FnMut(usize, &TokenScores) -> LossGradient,
    ) -> Result<UpdateReport, ModelError> {
        let mut update = self.begin();
        for (number, &batch) in batches.iter().enumerate() {
            update.add(batch, |scores| loss(number, scores))?;
        }
        update.finish(learning_rate)
    }
}

impl UpdateInProgress<'_> {
    /// The learner.
    pub fn learner(&self) -> &Learner {
        &self.updater.learner
    }

    /// Adds a micro-batch. `loss` is asked for its loss, given what the model says of it. Once a loss or gradient was no
    /// number, further micro-batches are not looked at.
    pub fn add(
        &mut self,
        batch: MicroBatch,
        loss: impl FnOnce(&TokenScores) -> LossGradient,
    ) -> Result<(), ModelError> {
        if self.broken.is_some() {
            return Ok(());
        }
        let learner = &self.updater.learner;
        let pass = learner.forward(batch)?;
        let scores = pass.scores().clone();
        let LossGradient { value, coefficients } = loss(&scores);
        let norm = if value.is_finite() {
            pass.backward(&coefficients)?;
            // read after every micro-batch, which costs a thousandth of it: so it is known which one did it
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
            let written = match &self.updater.incidents {
                None => None,
                Some(folder) => incident::write(folder, self.updater.skipped, &evidence, norm)?,
            };
            self.broken = Some(Broken { gradient_norm: norm, written });
        }
        self.scores.push(scores);
        Ok(())
    }

    /// Moves the weights, unless something was no number. Without a single micro-batch the gradient is 0: the optimiser
    /// goes on as its moments say.
    pub fn finish(mut self, learning_rate: f64) -> Result<UpdateReport, ModelError> {
        let (losses, scores) = (std::mem::take(&mut self.losses), std::mem::take(&mut self.scores));
        let broken = self.broken.take();
        let made = broken.is_none();
        let updater = &mut *self.updater;
        let (gradient_norm, written) = match broken {
            Some(Broken { gradient_norm, written }) => (gradient_norm, written),
            None => match updater.optimiser.update(updater.learner.model().weights(), learning_rate) {
                Update::Made { gradient_norm } => (Some(gradient_norm), None),
                Update::Skipped { .. } => {
                    return Err(ModelError::Input("gradients that were numbers are none any more".into()));
                }
            },
        };
        self.finished = true;
        Ok(UpdateReport { loss: losses.iter().sum(), gradient_norm, made, scores, written })
    }
}

impl Drop for UpdateInProgress<'_> {
    fn drop(&mut self) {
        if !self.finished {
            let weights = self.updater.learner.model().weights();
            // a device that has just failed may fail here, too; the first failure is the one to be told
            let _ = catch_unwind(AssertUnwindSafe(|| weights.zero_gradients()));
        }
    }
}
