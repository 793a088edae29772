//! One update from micro-batches that are added one at a time: forward, loss and backward for each, then one optimiser
//! step. An update with a non-finite loss or gradient is skipped and counted, and its micro-batch is recorded.

use super::adamw::{AdamW, Update, gradient_norm, sum};
use super::gradients::GradientSums;
use super::incident::{self, Evidence};
use super::ranks::HostTensors;
use super::{ImageInput, MicroBatch, TokenScores, TrainableModel};
use crate::ModelError;
use crate::checkpoint::Weights;
use arpo_ranks::{Collectives, Group};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use tch::{Tensor, no_grad};

/// A loss and its gradient with respect to the log-probabilities (see `arpo_core::loss`).
#[derive(Debug, Clone, PartialEq)]
pub struct LossGradient {
    /// The loss.
    pub value: f64,
    /// dL/dlogp, by episode, one for each trained token.
    pub coefficients: Vec<Vec<f32>>,
}

/// Whoever has the connection with the other ranks of a learner.
pub trait HasRanks {
    /// The connection.
    fn ranks(&mut self) -> &mut dyn Collectives<Tensor>;
}

impl<T: Collectives<Tensor>> HasRanks for T {
    fn ranks(&mut self) -> &mut dyn Collectives<Tensor> {
        self
    }
}

/// A model and its optimiser, which train it.
#[derive(Debug)]
pub struct Updater {
    trainable: TrainableModel,
    optimiser: AdamW,
    /// What the optimiser updates, if not the model's own weights.
    masters: Option<Weights>,
    /// How gradients are summed over the ranks, if there are several.
    gradients: GradientSums,
    /// The folder for records of skipped updates, if any.
    incidents: Option<PathBuf>,
    skipped: u64,
}

/// The outcome of an update.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
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

/// An update in progress. Its gradients accumulate in the model's weights until [`UpdateInProgress::finish`];
/// dropping it before that, after a failure or a cancellation, zeroes them.
#[derive(Debug)]
pub struct UpdateInProgress<'a> {
    updater: &'a mut Updater,
    losses: Vec<f64>,
    scores: Vec<TokenScores>,
    skipped_update: Option<SkippedUpdate>,
    /// What is added next is the last of this update, on all ranks.
    last_round: bool,
    /// Whole gradients are summed: nothing can be added any more.
    summed: bool,
    finished: bool,
}

/// Why an update is skipped.
#[derive(Debug)]
struct SkippedUpdate {
    gradient_norm: Option<f64>,
    incident: Option<PathBuf>,
}

impl Updater {
    /// From a model, whose weights must have gradients, and its optimiser; skipped updates are recorded in new folders in
    /// `incidents`. If the layers of the model share the memory of their gradients, their sums are kept here, in shards
    /// like the optimiser's moments.
    pub fn new(trainable: TrainableModel, optimiser: AdamW, incidents: Option<PathBuf>) -> Self {
        let weights = trainable.model().weights();
        let gradients = GradientSums::new(weights, optimiser.shard);
        Self { trainable, optimiser, masters: None, gradients, incidents, skipped: 0 }
    }

    /// With master weights: the optimiser, which has to be theirs, updates them, and the model's weights are rounded from them
    /// after every update. With masters in f32, a model in bf16 takes every step as f32 does. One rank only; the masters
    /// have gradients of the model's trained parameters.
    #[must_use]
    pub fn with_masters(self, masters: Weights) -> Self {
        let own = self.trainable.model().weights().trained().map(|(layout, ..)| layout);
        let same = masters.trained().map(|(layout, ..)| layout).eq(own);
        assert!(same, "the master weights have other trained parameters than the model");
        Self { masters: Some(masters), ..self }
    }

    /// What the optimiser updates: the master weights, or the model's own.
    pub fn masters(&self) -> &Weights {
        self.masters.as_ref().unwrap_or_else(|| self.trainable.model().weights())
    }

    /// Continues the count of skipped updates of a resumed run.
    #[must_use]
    pub fn with_skipped(self, skipped: u64) -> Self {
        Self { skipped, ..self }
    }

    /// The model that is trained.
    pub fn trainable(&self) -> &TrainableModel {
        &self.trainable
    }

    /// Whether further updates leave the vision tower as it is.
    pub fn set_vision_frozen(&mut self, frozen: bool) {
        self.trainable.set_vision_frozen(frozen);
        self.optimiser.set_vision_frozen(frozen);
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
            last_round: false,
            summed: false,
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
    ) -> Result<StepReport, ModelError> {
        let mut update = self.begin();
        for (index, &batch) in batches.iter().enumerate() {
            update.add(batch, |scores| loss(index, scores))?;
        }
        update.finish(learning_rate)
    }

    /// One update on a loss of the images' features, `[features, levels * hidden]`, so of the vision tower: the other weights only
    /// decay. `loss` returns its value and its gradient with respect to the features. Returns the value; a non-finite gradient
    /// is skipped and counted. All images are held at once.
    pub fn update_vision(
        &mut self,
        images: &[ImageInput],
        learning_rate: f64,
        loss: impl FnOnce(&Tensor) -> (f64, Tensor),
    ) -> Result<f64, ModelError> {
        let value = no_grad(|| self.trainable.vision_pass(images, loss))?;
        if let Update::Skipped { .. } = self.apply(learning_rate)? {
            self.skipped += 1;
        }
        Ok(value)
    }

    /// One step of the optimiser from the accumulated gradients, which are zeroed.
    fn apply(&mut self, learning_rate: f64) -> Result<Update, ModelError> {
        let weights = self.trainable.model().weights();
        let Some(masters) = &self.masters else { return Ok(self.optimiser.update(weights, learning_rate)) };
        no_grad(|| {
            for ((_, _, theirs), (_, _, own)) in masters.trained().zip(weights.trained()) {
                theirs.shallow_clone().copy_(own);
            }
        });
        weights.zero_gradients();
        let update = self.optimiser.update(masters, learning_rate);
        weights.copy_from(masters)?;
        Ok(update)
    }
}

impl UpdateInProgress<'_> {
    /// The model that is trained.
    pub fn trainable(&self) -> &TrainableModel {
        &self.updater.trainable
    }

    /// Adds a micro-batch. `loss` computes its loss from the model's scores. After a non-finite loss or gradient,
    /// further micro-batches are ignored.
    pub fn add(
        &mut self,
        batch: MicroBatch,
        loss: impl FnOnce(&TokenScores) -> LossGradient,
    ) -> Result<(), ModelError> {
        let mut alone = HostTensors::new(Group::alone());
        self.try_add_with(&mut alone, batch, |_, scores| Ok::<_, ModelError>(loss(scores))).map(|_| ())
    }

    /// What all ranks add next, a micro-batch or nothing, is the last of this update: gradients are summed over the ranks while
    /// its backward pass goes on, not only when the update is finished. All ranks call this in the same round, or none does.
    pub fn begin_last_round(&mut self) {
        self.last_round = true;
    }

    /// Enters a round; returns whether what is added in it is summed over the ranks: in every round if gradients are in shards,
    /// else in the last, after which there is none.
    fn enter_round(&mut self) -> Result<bool, ModelError> {
        if self.updater.gradients.shards().is_some() {
            return Ok(true);
        }
        if self.summed {
            return Err(ModelError::Input("a micro-batch after the last round of its update".into()));
        }
        self.summed = self.last_round;
        Ok(self.summed)
    }

    /// The same for a rank, while each other rank adds a micro-batch, too, or nothing ([`Self::add_nothing`]); the loss may
    /// fail to be computed. Returns false if the micro-batch is ignored: then this rank has to add nothing.
    pub fn try_add_with<R: HasRanks, E: From<ModelError>>(
        &mut self,
        owner: &mut R,
        batch: MicroBatch,
        loss: impl FnOnce(&mut R, &TokenScores) -> Result<LossGradient, E>,
    ) -> Result<bool, E> {
        if self.skipped_update.is_some() {
            return Ok(false);
        }
        let sums_now = self.enter_round()?;
        let Updater { trainable, gradients, incidents, skipped, .. } = &mut *self.updater;
        let weights = trainable.model().weights();
        let pass = trainable.forward(batch)?;
        let scores = pass.scores().clone();
        let LossGradient { value, coefficients } = loss(owner, &scores)?;
        // the norm is computed after every micro-batch, at a thousandth of its cost, to identify the one with the non-finite
        // gradient
        let norm = match (value.is_finite(), sums_now) {
            (false, false) => None,
            (false, true) => {
                gradients.sum_all(weights, owner.ranks())?;
                None
            }
            (true, false) => {
                pass.backward(&coefficients)?;
                Some(gradient_norm(weights))
            }
            (true, true) => {
                let mut squares = vec![];
                pass.backward_in_buckets(&coefficients, &mut |bucket| {
                    squares.extend(gradients.begin(bucket, weights, owner.ranks())?);
                    Ok(())
                })?;
                gradients.end(owner.ranks())?;
                Some(sum(&squares).sqrt())
            }
        };
        self.losses.push(value);
        if norm.is_none_or(|norm| !norm.is_finite()) {
            weights.zero_gradients();
            let evidence =
                Evidence { batch, scores: &scores, losses: &self.losses, coefficients: &coefficients };
            *skipped += 1;
            let incident = match incidents {
                None => None,
                Some(folder) => incident::write(folder, *skipped, &evidence, norm)?,
            };
            self.skipped_update = Some(SkippedUpdate { gradient_norm: norm, incident });
        }
        self.scores.push(scores);
        Ok(true)
    }

    /// Adds nothing, while other ranks add a micro-batch: where gradients are summed, all ranks take part.
    pub fn add_nothing(&mut self, ranks: &mut dyn Collectives<Tensor>) -> Result<(), ModelError> {
        if !self.enter_round()? {
            return Ok(());
        }
        let Updater { trainable, gradients, .. } = &mut *self.updater;
        gradients.sum_all(trainable.model().weights(), ranks)
    }

    /// Updates the weights, unless a loss or gradient was non-finite. Without a micro-batch the gradient is 0: the
    /// weights still move by the optimiser's moments.
    pub fn finish(mut self, learning_rate: f64) -> Result<StepReport, ModelError> {
        if self.updater.gradients.shards().is_some() || self.summed {
            return Err(ModelError::Input(
                "gradients that are summed over ranks need the other ranks".into(),
            ));
        }
        let (losses, scores) = (std::mem::take(&mut self.losses), std::mem::take(&mut self.scores));
        let skipped_update = self.skipped_update.take();
        let applied = skipped_update.is_none();
        let updater = &mut *self.updater;
        let (gradient_norm, incident) = match skipped_update {
            Some(SkippedUpdate { gradient_norm, incident }) => (gradient_norm, incident),
            None => match updater.apply(learning_rate)? {
                Update::Applied { gradient_norm } => (Some(gradient_norm), None),
                Update::Skipped { .. } => {
                    return Err(ModelError::Input(
                        "gradients that were finite have become non-finite".into(),
                    ));
                }
            },
        };
        self.finished = true;
        Ok(StepReport { loss: losses.iter().sum(), gradient_norm, applied, scores, incident })
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
    ) -> Result<StepReport, ModelError> {
        if self.updater.masters.is_some() {
            return Err(ModelError::Input("master weights are those of one rank".into()));
        }
        let (losses, scores) = (std::mem::take(&mut self.losses), std::mem::take(&mut self.scores));
        let own = self.skipped_update.take();
        let skipping = ranks.all_reduce_f64(&[f64::from(u8::from(own.is_some()))])?[0];
        let report = |gradient_norm, applied, incident| StepReport {
            loss: losses.iter().sum(),
            gradient_norm,
            applied,
            scores,
            incident,
        };
        let Updater { trainable, optimiser, gradients, skipped, .. } = &mut *self.updater;
        let weights = trainable.model().weights();
        if skipping > 0.0 {
            *skipped += u64::from(own.is_none());
            let (norm, incident) = own.map_or((None, None), |own| (own.gradient_norm, own.incident));
            // dropping zeroes the gradients
            return Ok(report(norm, false, incident));
        }
        let update = match gradients.shards() {
            Some(shards) => optimiser.update_shard(weights, shards, learning_rate, ranks),
            None if self.summed => optimiser.update_summed(weights, learning_rate, ranks),
            None => optimiser.update_with(weights, learning_rate, ranks),
        };
        gradients.zero();
        let (norm, applied) = match update? {
            Update::Applied { gradient_norm } => (gradient_norm, true),
            // each rank's gradient was finite, their sum is not
            Update::Skipped { gradient_norm } => (gradient_norm, false),
        };
        *skipped += u64::from(!applied);
        self.finished = true;
        Ok(report(Some(norm), applied, None))
    }
}

impl Drop for UpdateInProgress<'_> {
    fn drop(&mut self) {
        if !self.finished {
            let Updater { trainable, gradients, .. } = &mut *self.updater;
            // a device that has just failed may fail here too; the first failure is the one to report
            let _ = catch_unwind(AssertUnwindSafe(|| {
                trainable.model().weights().zero_gradients();
                gradients.zero();
            }));
        }
    }
}
