//! The whole model: from tokens and images to hidden states and logits.

use crate::ModelError;
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::ModelConfig;
use crate::positions::{Grid, Positions, positions};
use crate::text::{Embedded, TextModel};
use crate::vision::VisionTower;
use tch::{Device, Tensor};

/// A model ready to compute.
#[derive(Debug)]
pub struct Model {
    config: ModelConfig,
    weights: Weights,
    vision: VisionTower,
    text: TextModel,
    device: Device,
}

/// The tokens of one sequence, with its images' sizes.
#[derive(Debug, Clone, Copy)]
pub struct ModelInput<'a> {
    /// Its tokens, with a placeholder for every feature of every image.
    pub tokens: &'a [u32],
    /// The images' sizes, in the order of their placeholders.
    pub grids: &'a [Grid],
}

impl Model {
    /// A model from a checkpoint in memory.
    pub fn new(config: ModelConfig, weights: Weights) -> Self {
        let (vision, text) =
            (VisionTower::new(&config.vision, &weights), TextModel::new(&config.text, &weights));
        let device = weights.handle("text.embed").value.device();
        Self { config, weights, vision, text, device }
    }

    /// A model from a loaded checkpoint; its other files are dropped.
    pub fn from_checkpoint(checkpoint: Checkpoint) -> Self {
        Self::new(checkpoint.config, checkpoint.weights)
    }

    /// Its dimensions.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Its parameters.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The device of its weights.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The vision tower.
    pub fn vision(&self) -> &VisionTower {
        &self.vision
    }

    /// The language model.
    pub fn text(&self) -> &TextModel {
        &self.text
    }

    /// An error unless all of these tokens are in the vocabulary.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<(), ModelError> {
        let vocabulary = self.config.text.vocabulary;
        match tokens.iter().find(|&&token| i64::from(token) >= vocabulary) {
            None => Ok(()),
            Some(token) => Err(ModelError::Input(format!(
                "token {token} is not in the model's vocabulary of {vocabulary}"
            ))),
        }
    }

    /// The positions of a sequence's tokens.
    pub fn positions(&self, input: &ModelInput) -> Result<Positions, ModelError> {
        self.check_tokens(input.tokens)?;
        positions(input.tokens, input.grids, 0, &self.config)
    }

    /// The decoder's input for a sequence, with its images' features in place of their placeholders.
    pub fn embed(&self, tokens: &[u32], features: Option<&Tensor>) -> Result<Embedded, ModelError> {
        let ids: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
        let indices: Vec<i64> = (0..)
            .zip(tokens)
            .filter(|(_, token)| **token == self.config.image_token)
            .map(|(index, _)| index)
            .collect();
        let count = features.map_or(0, |features| features.size()[0] as usize);
        if count != indices.len() {
            return Err(ModelError::ImageTokens { placeholders: indices.len(), features: count });
        }
        let embedded = self.text.embed(&Tensor::from_slice(&ids).to_device(self.device));
        Ok(match features {
            None => Embedded::text(embedded),
            Some(features) => {
                let indices = Tensor::from_slice(&indices).to_device(self.device);
                Embedded::with_features(&embedded, &indices, features)
            }
        })
    }

    /// Hidden states of one sequence: before the first layer, after each, the last one normed. `pixels` holds the
    /// concatenated patches of its images.
    pub fn hidden_states(
        &self,
        input: &ModelInput,
        pixels: Option<&Tensor>,
    ) -> Result<Vec<Tensor>, ModelError> {
        let positions = self.positions(input)?;
        let features = pixels.map(|pixels| self.vision.forward(pixels, input.grids));
        let embedded = self.embed(input.tokens, features.as_ref())?;
        let layout = self.text.layout(&[positions], self.device);
        Ok(self.text.hidden_states(embedded, &layout))
    }
}
