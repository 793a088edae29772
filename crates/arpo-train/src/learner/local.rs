//! The learner in this process: a model on one device, its optimiser, and the reference model if there is one.

use super::micro_batches::MicroBatches;
use super::{Learner, LearnerInfo, LossOfSpan, Scorer, UpdateReport, loss_of, unknown_log_probs};
use crate::TrainError;
use crate::policy::WeightUpdate;
use crate::run::stop::StopSwitch;
use crate::run::training_state::TrainedModel;
use crate::screens::Screens;
use arpo_core::trajectory::Trajectory;
use arpo_engine::FeatureCache;
use arpo_image::ImageProcessor;
use arpo_model::training::TrainableModel;
use arpo_model::training::step::Updater;
use arpo_ranks::Sentinel;
use std::collections::BTreeMap;
use std::path::Path;
use tch::Tensor;

/// A model on one device.
#[derive(Debug)]
pub struct LocalLearner {
    pub(super) updater: Updater,
    reference: Option<TrainableModel>,
    pub(super) micro_batches: MicroBatches,
    /// Tokenizer, image processor and the like, by file name: part of every saved model.
    pub(super) side_files: BTreeMap<String, Vec<u8>>,
    /// The policy samples with this model's own weights, not with a copy.
    shares_weights: bool,
    /// Device memory that must stay unused.
    #[expect(dead_code, reason = "held, not read")]
    reserved: Option<Tensor>,
}

impl LocalLearner {
    /// A model with its optimiser; `micro_batch_tokens` is the token budget of a micro-batch.
    pub fn new(updater: Updater, processor: ImageProcessor, micro_batch_tokens: usize) -> Self {
        let (features, stop, samplers) = (None, StopSwitch::default(), None);
        let micro_batches = MicroBatches { processor, features, tokens: micro_batch_tokens, stop, samplers };
        Self {
            updater,
            reference: None,
            micro_batches,
            side_files: BTreeMap::new(),
            shares_weights: true,
            reserved: None,
        }
    }

    /// Stops between two micro-batches, with [`TrainError::Interrupted`], once the switch is on.
    #[must_use]
    pub fn stopped_by(mut self, stop: StopSwitch) -> Self {
        self.micro_batches.stop = stop;
        self
    }

    /// Ends between two micro-batches once one of the ranks that only sample is lost.
    #[must_use]
    pub fn watching_samplers(mut self, samplers: Option<Sentinel>) -> Self {
        self.micro_batches.samplers = samplers;
        self
    }

    /// With the model before training.
    #[must_use]
    pub fn with_reference(self, reference: Option<TrainableModel>) -> Self {
        Self { reference, ..self }
    }

    /// With features of screenshots that a sampler with the same vision tower has computed.
    #[must_use]
    pub fn with_features(mut self, features: Option<FeatureCache>) -> Self {
        self.micro_batches.features = features;
        self
    }

    /// With the other files of a saved model.
    #[must_use]
    pub fn with_side_files(self, side_files: BTreeMap<String, Vec<u8>>) -> Self {
        Self { side_files, ..self }
    }

    /// Publishes copies of its weights, for a policy that samples while it learns.
    #[must_use]
    pub fn copying_weights(self, copying: bool) -> Self {
        Self { shares_weights: !copying, ..self }
    }

    /// Keeps device memory allocated, so that it stays unused.
    #[must_use]
    pub fn reserving(self, reserved: Option<Tensor>) -> Self {
        Self { reserved, ..self }
    }

    /// The model and its optimiser.
    pub fn updater(&self) -> &Updater {
        &self.updater
    }

    pub(super) fn model(&self, scorer: Scorer) -> Result<&TrainableModel, TrainError> {
        match scorer {
            Scorer::Policy => Ok(self.updater.trainable()),
            Scorer::Reference => self
                .reference
                .as_ref()
                .ok_or_else(|| TrainError::Internal("the reference model was not loaded".into())),
        }
    }
}

impl Learner for LocalLearner {
    fn info(&self) -> LearnerInfo {
        let model = self.updater.trainable().model();
        let slower = model.weights().kernels().missing();
        LearnerInfo {
            parameters: model.weights().count() as u64,
            device: format!("{:?}", model.device()).to_lowercase(),
            notices: slower.into_iter().collect(),
        }
    }

    fn log_probs(
        &mut self,
        scorer: Scorer,
        trajectories: &[&Trajectory],
        screens: &Screens,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let model = self.model(scorer)?;
        let mut log_probs = unknown_log_probs(trajectories);
        self.micro_batches.each(model.model().device(), trajectories, screens, |spans, batch| {
            for (span, logp) in spans.iter().zip(model.scores(&batch)?.logp) {
                log_probs[span.trajectory][span.trained.clone()].copy_from_slice(&logp);
            }
            Ok(())
        })?;
        Ok(log_probs)
    }

    fn update(
        &mut self,
        trajectories: &[&Trajectory],
        screens: &Screens,
        learning_rate: f64,
        loss: &mut LossOfSpan,
    ) -> Result<UpdateReport, TrainError> {
        let mut update = self.updater.begin();
        let device = update.trainable().model().device();
        self.micro_batches.each(device, trajectories, screens, |spans, batch| {
            Ok(update.add(batch, |scores| loss_of(spans, &scores.logp, loss))?)
        })?;
        let report = update.finish(learning_rate)?;
        Ok(UpdateReport {
            loss: report.loss,
            gradient_norm: report.gradient_norm,
            applied: report.applied,
            entropy: report.scores.iter().flat_map(|scores| &scores.entropy).flatten().copied().collect(),
        })
    }

    fn weights(&self) -> WeightUpdate {
        let weights = self.updater.trainable().model().weights();
        if self.shares_weights {
            WeightUpdate::InPlace
        } else {
            WeightUpdate::Copy(weights.to_kind(weights.kind()))
        }
    }

    fn skipped(&self) -> u64 {
        self.updater.skipped()
    }

    fn save(&self, checkpoint: &Path) -> Result<(), TrainError> {
        let model = self.updater.trainable().model();
        TrainedModel {
            config: model.config(),
            weights: model.weights(),
            side_files: &self.side_files,
            optimiser: self.updater.optimiser(),
        }
        .save(checkpoint)
    }
}
