//! The learner port: what the trainer needs of a learner. A model on one device ([`LocalLearner`]) is one implementation;
//! several processes that share the work ([`ranks`]) are another.

mod local;
mod micro_batches;
pub mod ranks;

pub use local::LocalLearner;

use crate::TrainError;
use crate::policy::WeightUpdate;
use crate::screens::Screens;
use arpo_core::trajectory::Trajectory;
use arpo_model::training::step::LossGradient;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

/// Trained tokens of a trajectory that lie in one slice of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainedSpan {
    /// Index of the trajectory among the given ones.
    pub trajectory: usize,
    /// Which of its trained tokens.
    pub trained: Range<usize>,
}

/// A span's share of the loss.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanLoss {
    /// Summed over an update.
    pub value: f64,
    /// dL/dlogp of each token of the span.
    pub coefficients: Vec<f32>,
}

/// Computes the loss of a span from the policy's log-probabilities of its tokens.
pub type LossOfSpan<'a> = dyn FnMut(&TrainedSpan, &[f32]) -> SpanLoss + 'a;

/// Which model computes log-probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scorer {
    /// The model that is trained, as it is now.
    Policy,
    /// The model before training, for `loss.kl_coefficient`.
    Reference,
}

/// The result of an update.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateReport {
    /// Sum of the spans' losses.
    pub loss: f64,
    /// Norm of the gradient before clipping; `None` if a loss was not finite, so that no gradient was computed.
    pub gradient_norm: Option<f64>,
    /// The weights were updated; false if the update was skipped because a loss or gradient was not finite.
    pub applied: bool,
    /// Entropy of the distribution of each trained token.
    pub entropy: Vec<f32>,
}

/// Information about a learner for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnerInfo {
    /// Parameters of the model.
    pub parameters: u64,
    /// Where it computes.
    pub device: String,
    /// What is slower than it could be, and why.
    pub notices: Vec<String>,
}

/// A learner. Trajectories are computed in micro-batches that are prepared one at a time, so an update needs the memory
/// of one micro-batch, however many trajectories it has.
pub trait Learner {
    /// Information for the user.
    fn info(&self) -> LearnerInfo;

    /// Log-probabilities of the trained tokens of each trajectory.
    fn log_probs(
        &mut self,
        scorer: Scorer,
        trajectories: &[&Trajectory],
        screens: &Screens,
    ) -> Result<Vec<Vec<f32>>, TrainError>;

    /// One optimiser step. If interrupted, it changes no weights.
    fn update(
        &mut self,
        trajectories: &[&Trajectory],
        screens: &Screens,
        learning_rate: f64,
        loss: &mut LossOfSpan,
    ) -> Result<UpdateReport, TrainError>;

    /// The weights as they are now, for a rollout policy.
    fn weights(&self) -> WeightUpdate;

    /// Updates skipped so far.
    fn skipped(&self) -> u64;

    /// Writes model and optimiser into the empty folder of a checkpoint.
    fn save(&self, checkpoint: &Path) -> Result<(), TrainError>;
}

/// The loss of a micro-batch: that of its spans, given the log-probabilities of each.
fn loss_of(spans: &[TrainedSpan], logp: &[impl AsRef<[f32]>], loss: &mut LossOfSpan) -> LossGradient {
    let mut sum = LossGradient { value: 0.0, coefficients: vec![] };
    for (span, logp) in spans.iter().zip(logp) {
        let share = loss(span, logp.as_ref());
        sum.value += share.value;
        sum.coefficients.push(share.coefficients);
    }
    sum
}

/// A log-probability for every trained token of each trajectory, to be filled in.
fn unknown_log_probs(trajectories: &[&Trajectory]) -> Vec<Vec<f32>> {
    trajectories.iter().map(|trajectory| vec![0.0; trajectory.trained_tokens()]).collect()
}
