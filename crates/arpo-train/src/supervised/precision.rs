//! The type that a supervised run computes in. Whatever it is, the optimiser's weights, and those in checkpoints, are f32:
//! a run can be resumed in the other type.

use arpo_model::checkpoint::Weights;
use arpo_model::config::ModelConfig;
use arpo_model::model::Model;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::step::Updater;
use arpo_model::training::{PassOptions, TrainableModel};
use serde::Serialize;
use std::path::PathBuf;
use tch::Kind;

/// The type of the trained model's weights and activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// On GPUs with TF32 products.
    F32,
    /// With master weights in f32: a small model learns with steps that its weights in bf16 would not show.
    Bf16,
}

impl Precision {
    /// Trains weights in f32, which have gradients, with their optimiser.
    pub fn updater(
        self,
        config: &ModelConfig,
        weights: Weights,
        optimiser: AdamW,
        options: PassOptions,
        incidents: Option<PathBuf>,
    ) -> Updater {
        let trainable = |weights: Weights| TrainableModel::new(Model::new(config.clone(), weights), options);
        match self {
            Self::F32 => Updater::new(trainable(weights), optimiser, incidents),
            Self::Bf16 => {
                let rounded = weights.to_kind(Kind::BFloat16).with_gradients(|_| true);
                Updater::new(trainable(rounded), optimiser, incidents).with_masters(weights)
            }
        }
    }
}
