//! Reading a checkpoint. Its files are not trusted: headers, offsets, types and shapes are checked, and an error names
//! the file and the tensor.

use super::layout::{ParameterLayout, Piece, parameters};
use super::{Weights, piece_of};
use crate::ModelError;
use crate::config::{self, ModelConfig};
use arpo_torch::mapped::MappedFile;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use tch::{Device, Kind, Tensor};

/// Files beside the weights that belong to a checkpoint and are saved with it.
const SIDE_FILES: [&str; 12] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
];

/// A checkpoint in memory.
#[derive(Debug)]
pub struct Checkpoint {
    /// The model's dimensions.
    pub config: ModelConfig,
    /// Its parameters.
    pub weights: Weights,
    /// The other files of the folder, by name.
    pub side_files: BTreeMap<String, Vec<u8>>,
}

/// Reads a folder. Parameters are converted to `kind` on `device`.
pub fn load(folder: &Path, kind: Kind, device: Device) -> Result<Checkpoint, ModelError> {
    let config = config::read(folder)?;
    let weights = Shards::open(folder)?.weights(&config, kind, device)?;
    Ok(Checkpoint { config, weights, side_files: side_files(folder)? })
}

/// Checks a folder without reading its weights: an error if a file or a tensor is missing or has another shape.
pub fn check(folder: &Path) -> Result<(ModelConfig, BTreeMap<String, Vec<u8>>), ModelError> {
    let config = config::read(folder)?;
    let shards = Shards::open(folder)?;
    for layout in parameters(&config) {
        for piece in &layout.pieces {
            shards.find(piece)?;
        }
    }
    Ok((config, side_files(folder)?))
}

fn side_files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, ModelError> {
    let mut files = BTreeMap::new();
    for name in SIDE_FILES {
        let path = folder.join(name);
        if path.is_file() {
            files.insert(name.to_owned(), fs::read(&path).map_err(ModelError::io(&path))?);
        }
    }
    Ok(files)
}

/// Reads a checkpoint embedded in the program: the files of a folder by name, with the weights in one of them.
pub fn load_embedded(
    files: &[(&str, &'static [u8])],
    kind: Kind,
    device: Device,
) -> Result<Checkpoint, ModelError> {
    let folder = Path::new("embedded in the program");
    let find = |wanted: &str| {
        let found = files.iter().find(|(name, _)| *name == wanted).map(|&(_, bytes)| bytes);
        found.ok_or_else(|| ModelError::file(&folder.join(wanted), "missing"))
    };
    let value: Value = serde_json::from_slice(find("config.json")?)
        .map_err(|error| ModelError::file(&folder.join("config.json"), format!("not JSON: {error}")))?;
    let config =
        config::parse(value).map_err(|problem| ModelError::file(&folder.join("config.json"), problem))?;
    let shard = (folder.join(WEIGHTS), ShardBytes::Embedded(find(WEIGHTS)?));
    let weights = Shards::new(folder, vec![shard])?.weights(&config, kind, device)?;
    Ok(Checkpoint { config, weights, side_files: embedded_side_files(files) })
}

/// Of the files of an embedded checkpoint, those beside the configuration and the weights.
pub fn embedded_side_files(files: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
    files
        .iter()
        .filter(|(name, _)| SIDE_FILES.contains(name))
        .map(|&(name, bytes)| (name.to_owned(), bytes.to_vec()))
        .collect()
}

/// The weights of a folder that has them in one file.
const WEIGHTS: &str = "model.safetensors";

/// A safetensors file.
enum ShardBytes {
    Mapped(MappedFile),
    Embedded(&'static [u8]),
}

impl Deref for ShardBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(file) => file,
            Self::Embedded(bytes) => bytes,
        }
    }
}

/// The safetensors files of a folder.
struct Shards {
    folder: PathBuf,
    files: Vec<(PathBuf, ShardBytes)>,
    /// Which file has which tensor.
    index: BTreeMap<String, usize>,
}

impl Shards {
    fn open(folder: &Path) -> Result<Self, ModelError> {
        let index = folder.join("model.safetensors.index.json");
        let names = if index.is_file() { shard_names(&index)? } else { vec![WEIGHTS.to_owned()] };
        let open = |name: String| {
            let path = folder.join(name);
            let file = MappedFile::open(&path).map_err(ModelError::io(&path))?;
            Ok((path, ShardBytes::Mapped(file)))
        };
        Self::new(folder, names.into_iter().map(open).collect::<Result<_, ModelError>>()?)
    }

    fn new(folder: &Path, files: Vec<(PathBuf, ShardBytes)>) -> Result<Self, ModelError> {
        let mut index = BTreeMap::new();
        for (file, (path, bytes)) in files.iter().enumerate() {
            for tensor in header(path, bytes)?.names() {
                index.insert(tensor.to_owned(), file);
            }
        }
        Ok(Self { folder: folder.to_path_buf(), files, index })
    }

    fn weights(&self, config: &ModelConfig, kind: Kind, device: Device) -> Result<Weights, ModelError> {
        let weights = parameters(config)
            .into_iter()
            .map(|layout| self.parameter(&layout, kind, device).map(|tensor| (layout, tensor)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Weights::new(weights))
    }

    /// One parameter, assembled from its pieces.
    fn parameter(&self, layout: &ParameterLayout, kind: Kind, device: Device) -> Result<Tensor, ModelError> {
        let parameter = Tensor::zeros(&layout.shape, (kind, device));
        for piece in &layout.pieces {
            piece_of(&parameter, piece).copy_(&self.tensor(piece)?);
        }
        Ok(parameter)
    }

    fn tensor(&self, piece: &Piece) -> Result<Tensor, ModelError> {
        let (view, kind) = self.find(piece)?;
        Ok(Tensor::from_data_size(view.data(), &piece.shape, kind))
    }

    /// A piece in its file, if it exists and has the right shape.
    fn find(&self, piece: &Piece) -> Result<(TensorView<'_>, Kind), ModelError> {
        let found = [piece.name.clone(), piece.other_name()]
            .into_iter()
            .find_map(|name| self.index.get(&name).map(|&file| (name, file)));
        let Some((name, file)) = found else {
            return Err(ModelError::tensor(&self.folder, &piece.name, "missing"));
        };
        let (path, bytes) = &self.files[file];
        let wrong = |problem: String| ModelError::tensor(path, &name, problem);
        let view = header(path, bytes)?.tensor(&name).map_err(|error| wrong(error.to_string()))?;
        let shape: Vec<i64> = view.shape().iter().map(|&side| side as i64).collect();
        if shape != piece.shape {
            return Err(wrong(format!("has the shape {shape:?}: expected {:?}", piece.shape)));
        }
        let kind = match view.dtype() {
            Dtype::F32 => Kind::Float,
            Dtype::F16 => Kind::Half,
            Dtype::BF16 => Kind::BFloat16,
            other => return Err(wrong(format!("is {other:?}: expected F32, F16 or BF16"))),
        };
        Ok((view, kind))
    }
}

/// The files named by an index, each once.
fn shard_names(index: &Path) -> Result<Vec<String>, ModelError> {
    let text = fs::read_to_string(index).map_err(ModelError::io(index))?;
    let value: Value =
        serde_json::from_str(&text).map_err(|error| ModelError::file(index, format!("not JSON: {error}")))?;
    let map = value["weight_map"].as_object();
    let map = map.ok_or_else(|| ModelError::file(index, "`weight_map` is missing"))?;
    let mut names = Vec::new();
    for (tensor, file) in map {
        let name = file.as_str().filter(|name| is_plain_file_name(name)).ok_or_else(|| {
            ModelError::tensor(index, tensor, format!("is listed in {file}: expected a file of this folder"))
        })?;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// An index may not point outside its folder.
fn is_plain_file_name(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|file| file == name)
}

fn header<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>, ModelError> {
    SafeTensors::deserialize(bytes)
        .map_err(|error| ModelError::file(path, format!("not a whole safetensors file: {error}")))
}
