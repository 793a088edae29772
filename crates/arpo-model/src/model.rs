//! The whole model: tokens and pictures in, hidden states and logits out.

use crate::ModelError;
use crate::checkpoint::{Checkpoint, Weights};
use crate::config::ModelConfig;
use crate::positions::{Grid, Positions, positions};
use crate::text::TextModel;
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

/// One sequence with its pictures.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<'a> {
    /// Its tokens, a placeholder for every feature of every picture.
    pub tokens: &'a [u32],
    /// The pictures' sizes, in the order of their placeholders.
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

    /// A model from a checkpoint that was read; its other files are left to the caller.
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

    /// Where it computes.
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

    /// Whether the model knows all of these tokens.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<(), ModelError> {
        let vocabulary = self.config.text.vocabulary;
        match tokens.iter().find(|&&token| i64::from(token) >= vocabulary) {
            None => Ok(()),
            Some(token) => Err(ModelError::Input(format!(
                "token {token} is not one of the {vocabulary} the model knows"
            ))),
        }
    }

    /// Where the tokens of a sequence stand.
    pub fn positions(&self, sequence: &Sequence) -> Result<Positions, ModelError> {
        self.check_tokens(sequence.tokens)?;
        positions(sequence.tokens, sequence.grids, 0, &self.config)
    }

    /// Embeddings of a sequence, the features of its pictures in place of their placeholders: `[tokens, hidden]`.
    pub fn embed(&self, tokens: &[u32], features: Option<&Tensor>) -> Result<Tensor, ModelError> {
        let ids: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
        let places: Vec<i64> = (0..)
            .zip(tokens)
            .filter(|(_, token)| **token == self.config.image_token)
            .map(|(place, _)| place)
            .collect();
        let count = features.map_or(0, |features| features.size()[0] as usize);
        if count != places.len() {
            return Err(ModelError::ImageTokens { placeholders: places.len(), features: count });
        }
        let embedded = self.text.embed(&Tensor::from_slice(&ids).to_device(self.device));
        Ok(match features {
            None => embedded,
            Some(features) => {
                let places = Tensor::from_slice(&places).to_device(self.device);
                embedded.index_copy(0, &places, &features.to_kind(embedded.kind()))
            }
        })
    }

    /// Hidden states of one sequence: before the first layer, after each, the last one normed. `pixels` holds the
    /// patches of its pictures, one behind the other.
    pub fn hidden_states(
        &self,
        sequence: &Sequence,
        pixels: Option<&Tensor>,
    ) -> Result<Vec<Tensor>, ModelError> {
        let positions = self.positions(sequence)?;
        let features = pixels.map(|pixels| self.vision.forward(pixels, sequence.grids));
        let embedded = self.embed(sequence.tokens, features.as_ref())?;
        let layout = self.text.layout(&[positions], self.device);
        Ok(self.text.hidden_states(embedded, &layout))
    }
}
