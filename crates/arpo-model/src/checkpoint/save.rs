//! Writing a checkpoint that transformers and vLLM load. The folder appears atomically, by a rename.

use super::scratch::{Scratch, sync};
use super::{Weights, piece_of};
use crate::ModelError;
use crate::config::ModelConfig;
use safetensors::{Dtype, View, serialize_to_file};
use serde_json::{Map, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use tch::{Device, Kind, Tensor};

/// Files of weights are at most this large, as Hugging Face writes them.
const SHARD_BYTES: usize = 5_000_000_000;

/// Writes a new folder, in the parameters' own type.
pub fn save(
    folder: &Path,
    config: &ModelConfig,
    weights: &Weights,
    side_files: &BTreeMap<String, Vec<u8>>,
) -> Result<(), ModelError> {
    save_in_shards_of(folder, config, weights, side_files, SHARD_BYTES)
}

pub(super) fn save_in_shards_of(
    folder: &Path,
    config: &ModelConfig,
    weights: &Weights,
    side_files: &BTreeMap<String, Vec<u8>>,
    shard_bytes: usize,
) -> Result<(), ModelError> {
    if folder.exists() {
        return Err(ModelError::file(folder, "exists already: expected a new folder"));
    }
    let scratch = Scratch::beside(folder)?;
    let dtype = match weights.kind() {
        Kind::Float => "float32",
        Kind::Half => "float16",
        Kind::BFloat16 => "bfloat16",
        other => panic!("parameters are never {other:?}"),
    };
    let text = serde_json::to_string_pretty(&config.to_json(dtype)).expect("JSON can be written");
    scratch.write("config.json", text.as_bytes())?;
    for (name, bytes) in side_files {
        scratch.write(name, bytes)?;
    }
    write_weights(&scratch, weights, shard_bytes)?;
    scratch.rename_to(folder)
}

fn write_weights(scratch: &Scratch, weights: &Weights, shard_bytes: usize) -> Result<(), ModelError> {
    let mut shards: Vec<Vec<(String, SavedTensor)>> = vec![vec![]];
    let (mut filled, mut total) = (0, 0);
    for (layout, tensor) in weights.iter() {
        for piece in &layout.pieces {
            let saved = SavedTensor { part: piece_of(tensor, piece), shape: sides(&piece.shape) };
            if filled > 0 && filled + saved.data_len() > shard_bytes {
                shards.push(vec![]);
                filled = 0;
            }
            filled += saved.data_len();
            total += saved.data_len();
            shards.last_mut().expect("there is always one").push((piece.name.clone(), saved));
        }
    }
    let count = shards.len();
    let mut index = Map::new();
    for (number, shard) in shards.into_iter().enumerate() {
        let name = match count {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
        };
        index.extend(shard.iter().map(|(tensor, _)| (tensor.clone(), json!(name))));
        let path = scratch.path().join(&name);
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        serialize_to_file(shard, Some(metadata), &path)
            .map_err(|error| ModelError::file(&path, format!("cannot be written: {error}")))?;
        sync(&path)?;
    }
    if count > 1 {
        let text = json!({"metadata": {"total_size": total}, "weight_map": index}).to_string();
        scratch.write("model.safetensors.index.json", text.as_bytes())?;
    }
    Ok(())
}

/// One tensor of the files, copied from the device when it is written.
pub(crate) struct SavedTensor {
    part: Tensor,
    shape: Vec<usize>,
}

impl SavedTensor {
    /// A whole tensor.
    pub(crate) fn new(tensor: Tensor) -> Self {
        Self { shape: sides(&tensor.size()), part: tensor }
    }
}

impl View for SavedTensor {
    fn dtype(&self) -> Dtype {
        match self.part.kind() {
            Kind::Float => Dtype::F32,
            Kind::Half => Dtype::F16,
            Kind::Int64 => Dtype::I64,
            _ => Dtype::BF16,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let part = self.part.to_device(Device::Cpu).contiguous();
        let mut bytes = vec![0; self.data_len()];
        part.copy_data_u8(&mut bytes, part.numel());
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.part.numel() * self.part.kind().elt_size_in_bytes()
    }
}

fn sides(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|&side| side as usize).collect()
}
