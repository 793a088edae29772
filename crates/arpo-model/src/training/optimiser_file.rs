//! The optimiser on disk: one safetensors file with the two moments of every trained parameter, in their own type, and
//! the number of updates made. After loading, the next update is the same to the bit.

use super::adamw::AdamW;
use crate::ModelError;
use crate::checkpoint::{SavedTensor, Weights, scratch::sync};
use arpo_core::config::OptimiserConfig;
use arpo_torch::mapped::MappedFile;
use safetensors::{Dtype, SafeTensors, serialize_to_file};
use std::collections::HashMap;
use std::path::Path;
use tch::{Kind, Tensor};

/// The `format` field of such a file.
const FORMAT: &str = "arpo-adamw";

/// Prefixes of a parameter's name for its two moments.
const MOMENTS: [&str; 2] = ["mean", "square"];

impl AdamW {
    /// Writes the state to a new file and waits until it is on the disk. The weights must be those it was created for.
    pub fn save(&self, weights: &Weights, path: &Path) -> Result<(), ModelError> {
        let tensors = weights.trained().zip(&self.moments).flat_map(|((layout, _, _), moments)| {
            MOMENTS.iter().zip(moments).map(|(moment, tensor)| {
                (format!("{moment}.{}", layout.name), SavedTensor::new(tensor.shallow_clone()))
            })
        });
        let metadata = [("format", FORMAT.to_owned()), ("updates", self.updates.to_string())];
        let metadata: HashMap<String, String> =
            metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        serialize_to_file(tensors.collect::<Vec<_>>(), Some(metadata), path)
            .map_err(|error| ModelError::file(path, format!("cannot be written: {error}")))?;
        sync(path)
    }

    /// The state of a file, for weights with the same trained parameters, on their device.
    pub fn load(path: &Path, weights: &Weights, config: OptimiserConfig) -> Result<Self, ModelError> {
        let file = MappedFile::open(path).map_err(ModelError::io(path))?;
        let wrong = |problem: String| ModelError::file(path, problem);
        let (_, header) = SafeTensors::read_metadata(&file)
            .map_err(|error| wrong(format!("not a whole safetensors file: {error}")))?;
        let metadata = |key: &str| header.metadata().as_ref().and_then(|metadata| metadata.get(key));
        if metadata("format").map(String::as_str) != Some(FORMAT) {
            return Err(wrong(format!("not an optimiser state: expected `format` to be {FORMAT}")));
        }
        let updates = metadata("updates").and_then(|count| count.parse().ok());
        let updates = updates.ok_or_else(|| wrong("`updates` is missing: expected a whole number".into()))?;
        let tensors = SafeTensors::deserialize(&file)
            .map_err(|error| wrong(format!("not a whole safetensors file: {error}")))?;
        let mut optimiser = Self::new(weights, config);
        let expected = optimiser.moments.len() * MOMENTS.len();
        if tensors.len() != expected {
            return Err(wrong(format!(
                "has {} tensors: expected {expected}, two for each trained parameter",
                tensors.len()
            )));
        }
        for ((layout, _, _), moments) in weights.trained().zip(&mut optimiser.moments) {
            for (moment, tensor) in MOMENTS.iter().zip(moments) {
                read_into(tensor, &tensors, path, &format!("{moment}.{}", layout.name))?;
            }
        }
        optimiser.updates = updates;
        Ok(optimiser)
    }
}

/// Fills a tensor with the values of its namesake; type and shape must match, so that nothing is rounded.
fn read_into(tensor: &mut Tensor, tensors: &SafeTensors, path: &Path, name: &str) -> Result<(), ModelError> {
    let wrong = |problem: String| ModelError::tensor(path, name, problem);
    let view = tensors.tensor(name).map_err(|error| wrong(error.to_string()))?;
    let shape: Vec<i64> = view.shape().iter().map(|&side| side as i64).collect();
    if shape != tensor.size() {
        return Err(wrong(format!("has the shape {shape:?}: expected {:?}", tensor.size())));
    }
    let kind = match view.dtype() {
        Dtype::F32 => Kind::Float,
        Dtype::F16 => Kind::Half,
        Dtype::BF16 => Kind::BFloat16,
        other => return Err(wrong(format!("is {other:?}: expected F32, F16 or BF16"))),
    };
    if kind != tensor.kind() {
        return Err(wrong(format!(
            "is {:?}: expected the parameter's type, {:?}",
            view.dtype(),
            tensor.kind()
        )));
    }
    tensor.copy_(&Tensor::from_data_size(view.data(), &shape, kind));
    Ok(())
}
