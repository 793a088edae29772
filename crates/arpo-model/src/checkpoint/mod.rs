//! Checkpoints in Hugging Face's layout: a folder with `config.json`, safetensors in one file or in shards, the
//! tokenizer's and processor's files.
//!
//! In memory some parameters are fused that files keep separate (queries, keys and values; gate and up), and the vision
//! tower's MLP is zero-padded to a width that suits tensor cores. [`layout`] says which; loading copies the pieces in,
//! saving copies them out.

pub mod layout;
mod load;
mod save;
pub(crate) mod scratch;

pub use load::{Checkpoint, check, embedded_side_files, load, load_embedded};
pub(crate) use save::SavedTensor;
pub use save::save;

use crate::ModelError;
use crate::config::ModelConfig;
use crate::layers::linear::Parameter;
use arpo_torch::kernels::Kernels;
use layout::{ParameterLayout, Piece};
use std::collections::BTreeMap;
use tch::{Device, Kind, Tensor};

/// The standard deviation transformers initialises Qwen2.5-VL with.
const INITIAL_DEVIATION: f64 = 0.02;

/// For training from scratch: the standard deviation times the square root of a matrix's input width.
const SCRATCH_DEVIATION: f64 = 0.8;

/// Where the gradient of a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GradientBuffer {
    /// Nowhere: the parameter is not trained.
    Absent,
    /// In memory of its own.
    Own,
    /// In memory that the layers of the backward pass use in turns: its reader must have taken each layer's gradients before
    /// the one after the next computes its own (see `training::gradients`).
    Shared,
}

impl From<bool> for GradientBuffer {
    fn from(trained: bool) -> Self {
        if trained { Self::Own } else { Self::Absent }
    }
}

/// A model's parameters, by their names in memory.
#[derive(Debug)]
pub struct Weights {
    parameters: Vec<(ParameterLayout, Tensor)>,
    /// The gradient buffer of each parameter, if it is trained.
    gradients: Vec<Option<Tensor>>,
    /// Whether layers share the memory of their gradients.
    shares_gradient_buffers: bool,
    index: BTreeMap<String, usize>,
    /// The kernels of their device.
    kernels: Kernels,
}

impl Weights {
    pub(crate) fn new(parameters: Vec<(ParameterLayout, Tensor)>) -> Self {
        let index = parameters.iter().enumerate().map(|(i, (layout, _))| (layout.name.clone(), i)).collect();
        let gradients = parameters.iter().map(|_| None).collect();
        let kernels = parameters.first().map_or_else(Kernels::none, |(_, first)| Kernels::of(first.device()));
        Self { parameters, gradients, shares_gradient_buffers: false, index, kernels }
    }

    /// With other kernels: with none, the plain versions are used.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.kernels = kernels;
        self
    }

    /// The CUDA kernels that compute with them.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Random weights: norms 1, everything else normal with a standard deviation of 0.02.
    pub fn random(config: &ModelConfig, kind: Kind, device: Device) -> Self {
        let parameter = |layout: ParameterLayout| {
            let tensor = Tensor::zeros(&layout.shape, (kind, device));
            for piece in &layout.pieces {
                let mut part = piece_of(&tensor, piece);
                // vectors that are not biases are norms
                let is_norm = piece.shape.len() == 1 && !piece.name.ends_with("bias");
                let _ = if is_norm { part.fill_(1.0) } else { part.normal_(0.0, INITIAL_DEVIATION) };
            }
            (layout, tensor)
        };
        Self::new(layout::parameters(config).into_iter().map(parameter).collect())
    }

    /// Zeros, to be replaced by another process's weights.
    pub fn zeros(config: &ModelConfig, kind: Kind, device: Device) -> Self {
        let zeros = |layout: ParameterLayout| {
            let tensor = Tensor::zeros(&layout.shape, (kind, device));
            (layout, tensor)
        };
        Self::new(layout::parameters(config).into_iter().map(zeros).collect())
    }

    /// Random weights for training from scratch: matrices preserve the scale of their inputs, biases are 0.
    pub fn from_scratch(config: &ModelConfig, kind: Kind, device: Device) -> Self {
        let weights = Self::random(config, kind, device);
        for (layout, tensor) in weights.iter() {
            for piece in &layout.pieces {
                let mut part = piece_of(tensor, piece);
                if piece.name.ends_with("bias") {
                    let _ = part.zero_();
                } else if piece.shape.len() > 1 && !piece.name.contains("embed_tokens") {
                    let inputs: i64 = piece.shape[1..].iter().product();
                    let _ = part.normal_(0.0, SCRATCH_DEVIATION / (inputs as f64).sqrt());
                }
            }
        }
        weights
    }

    /// A copy in a type; it has its own memory even if the type is the same.
    #[must_use]
    pub fn to_kind(&self, kind: Kind) -> Self {
        let convert = |(layout, tensor): &(ParameterLayout, Tensor)| {
            (layout.clone(), tensor.to_dtype(kind, false, true))
        };
        Self::new(self.parameters.iter().map(convert).collect()).with_kernels(self.kernels.clone())
    }

    /// Allocates zeroed gradients for the parameters that `buffer_of` selects.
    #[must_use]
    pub fn with_gradients<B: Into<GradientBuffer>>(
        mut self,
        buffer_of: impl Fn(&ParameterLayout) -> B,
    ) -> Self {
        let mut shared: BTreeMap<(usize, &str), Tensor> = BTreeMap::new();
        let mut gradients = vec![];
        self.shares_gradient_buffers = false;
        for (layout, tensor) in &self.parameters {
            let kind = if layout.accumulates_in_f32() { Kind::Float } else { tensor.kind() };
            let zeros = || Tensor::zeros(tensor.size(), (kind, tensor.device()));
            let buffer: GradientBuffer = buffer_of(layout).into();
            gradients.push(match buffer {
                GradientBuffer::Absent => None,
                GradientBuffer::Own => Some(zeros()),
                GradientBuffer::Shared => {
                    self.shares_gradient_buffers = true;
                    Some(shared.entry(layout.buffer()).or_insert_with(zeros).shallow_clone())
                }
            });
        }
        self.gradients = gradients;
        self
    }

    /// Whether gradients are in memory that the layers share.
    pub(crate) fn shares_gradient_buffers(&self) -> bool {
        self.shares_gradient_buffers
    }

    /// A second handle on the same memory, without the gradients: for a model beside the one that is trained.
    #[must_use]
    pub fn share(&self) -> Self {
        let share = |(layout, tensor): &(ParameterLayout, Tensor)| (layout.clone(), tensor.shallow_clone());
        Self::new(self.parameters.iter().map(share).collect()).with_kernels(self.kernels.clone())
    }

    /// A second handle on the same memory, in which the output head of a model with tied embeddings has a name of its own,
    /// as [`ModelConfig::with_own_head`] describes it.
    #[must_use]
    pub fn with_own_head(&self, config: &ModelConfig) -> Self {
        let shared = |layout: ParameterLayout| {
            let found = self.find(&layout.name).unwrap_or_else(|| self.handle("text.embed"));
            (layout, found.value)
        };
        Self::new(layout::parameters(&config.with_own_head()).into_iter().map(shared).collect())
    }

    /// Copies the values of weights with the same layout; tensors that share memory are skipped.
    pub fn copy_from(&self, other: &Self) -> Result<(), ModelError> {
        if !self.iter().map(|(layout, _)| layout).eq(other.iter().map(|(layout, _)| layout)) {
            return Err(ModelError::Input("weights of another model".into()));
        }
        for ((_, mine), (_, theirs)) in self.iter().zip(other.iter()) {
            if mine.data_ptr() != theirs.data_ptr() {
                tch::no_grad(|| mine.shallow_clone().copy_(theirs));
            }
        }
        Ok(())
    }

    /// A handle on a parameter and its gradient: the same memory, not a copy.
    pub(crate) fn handle(&self, name: &str) -> Parameter {
        self.find(name).unwrap_or_else(|| panic!("the layout has no parameter {name}"))
    }

    /// The same for a parameter that not every model has.
    pub(crate) fn find(&self, name: &str) -> Option<Parameter> {
        let &index = self.index.get(name)?;
        Some(Parameter {
            value: self.parameters[index].1.shallow_clone(),
            gradient: self.gradients[index].as_ref().map(Tensor::shallow_clone),
            kernels: self.kernels.clone(),
        })
    }

    /// The trained parameters with their gradients, in a fixed order.
    pub fn trained(&self) -> impl Iterator<Item = (&ParameterLayout, &Tensor, &Tensor)> {
        let gradients = self.gradients.iter();
        self.iter()
            .zip(gradients)
            .filter_map(|((layout, tensor), gradient)| Some((layout, tensor, gradient.as_ref()?)))
    }

    /// Zeroes the gradients.
    pub fn zero_gradients(&self) {
        for gradient in self.gradients.iter().flatten() {
            let _ = gradient.shallow_clone().zero_();
        }
    }

    /// Every parameter with its layout, in a fixed order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ParameterLayout, &Tensor)> {
        self.parameters.iter().map(|(layout, tensor)| (layout, tensor))
    }

    /// Number of parameters, without padding.
    pub fn count(&self) -> i64 {
        self.iter()
            .flat_map(|(layout, _)| &layout.pieces)
            .map(|piece| piece.shape.iter().product::<i64>())
            .sum()
    }

    /// The type the parameters are stored in.
    pub fn kind(&self) -> Kind {
        self.parameters[0].1.kind()
    }
}

/// The view of a parameter, or of its gradient, that corresponds to one tensor of the files, in that tensor's shape.
pub fn piece_of(tensor: &Tensor, piece: &Piece) -> Tensor {
    let rows = tensor.narrow(0, piece.row, piece.shape[0]);
    let part = if rows.dim() > 1 { rows.narrow(1, 0, piece.columns()) } else { rows };
    part.view(piece.shape.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rollout worker that samples beside the learner must not see weights that are being updated.
    #[test]
    fn a_copy_has_its_own_memory() {
        let weights = Weights::random(&crate::config::pocket(), Kind::Float, Device::Cpu);
        let (copy, shared) = (weights.to_kind(Kind::Float), weights.share());
        for (((_, one), (_, copied)), (_, same)) in weights.iter().zip(copy.iter()).zip(shared.iter()) {
            assert_ne!(one.data_ptr(), copied.data_ptr());
            assert_eq!(one.data_ptr(), same.data_ptr());
        }
    }
}
