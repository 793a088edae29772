//! Checkpoints in Hugging Face's layout: a folder with `config.json`, safetensors in one file or in shards, the
//! tokenizer's and processor's files.
//!
//! In memory some parameters are stored side by side that files keep apart (queries, keys and values; gate and up),
//! and the vision tower's MLP is widened with zeros to a width that matrix units like. [`layout`] says which; loading
//! puts the pieces in, saving takes them out.

pub mod layout;
mod load;
mod save;

pub use load::{Checkpoint, load};
pub use save::save;

use layout::{ParameterLayout, Piece};
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

/// A model's parameters, by their names in memory.
#[derive(Debug)]
pub struct Weights {
    parameters: Vec<(ParameterLayout, Tensor)>,
    index: BTreeMap<String, usize>,
}

impl Weights {
    pub(crate) fn new(parameters: Vec<(ParameterLayout, Tensor)>) -> Self {
        let index = parameters.iter().enumerate().map(|(i, (layout, _))| (layout.name.clone(), i)).collect();
        Self { parameters, index }
    }

    /// A handle on a parameter: the same memory, not a copy.
    pub(crate) fn handle(&self, name: &str) -> Tensor {
        let place = self.index.get(name).unwrap_or_else(|| panic!("the layout has no parameter {name}"));
        self.parameters[*place].1.shallow_clone()
    }

    /// Every parameter with its layout, in a fixed order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ParameterLayout, &Tensor)> {
        self.parameters.iter().map(|(layout, tensor)| (layout, tensor))
    }

    /// Numbers learnt, without the zeros that only widen.
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

/// The part of a tensor with a parameter's layout that one tensor of the files holds, in that tensor's shape. Of
/// gradients as of parameters.
pub fn piece_of(tensor: &Tensor, piece: &Piece) -> Tensor {
    let rows = tensor.narrow(0, piece.row, piece.shape[0]);
    let part = if rows.dim() > 1 { rows.narrow(1, 0, piece.columns()) } else { rows };
    part.view(piece.shape.as_slice())
}
