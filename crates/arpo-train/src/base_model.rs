//! The models that can be trained: a Hugging Face folder, or the small one embedded in the program.

use crate::TrainError;
use arpo_model::checkpoint::{self, Checkpoint};
use arpo_model::config::{self, ModelConfig};
use std::collections::BTreeMap;
use std::path::Path;
use tch::{Device, Kind};

/// The name of the embedded model.
pub const POCKET: &str = "pocket";

macro_rules! embedded {
    ($($name:literal),*) => {
        [$(($name, include_bytes!(concat!("../../../models/pocket/", $name)).as_slice())),*]
    };
}

/// Its files; `models/README.md` describes how it was made.
static POCKET_FILES: [(&str, &[u8]); 6] = embedded![
    "chat_template.jinja",
    "config.json",
    "model.safetensors",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json"
];

/// A model's dimensions, without its weights.
pub fn dimensions(base: &str) -> Result<ModelConfig, TrainError> {
    if base != POCKET {
        return Ok(config::read(folder_of(base)?)?);
    }
    let file =
        POCKET_FILES.iter().find(|(name, _)| *name == "config.json").map_or(&[][..], |(_, bytes)| bytes);
    let value = serde_json::from_slice(file).map_err(|error| TrainError::Configuration(error.to_string()))?;
    config::parse(value).map_err(TrainError::Configuration)
}

/// Checks a model without reading its weights and returns its dimensions and its other files; an error if something
/// is missing.
pub fn check(base: &str) -> Result<(ModelConfig, BTreeMap<String, Vec<u8>>), TrainError> {
    if base == POCKET {
        return Ok((dimensions(base)?, checkpoint::embedded_side_files(&POCKET_FILES)));
    }
    Ok(checkpoint::check(folder_of(base)?)?)
}

fn folder_of(base: &str) -> Result<&Path, TrainError> {
    let folder = Path::new(base);
    if !folder.is_dir() {
        return Err(TrainError::Configuration(format!(
            "model {base:?} does not exist: expected {POCKET:?} or the folder of a Qwen2.5-VL or Qwen3-VL \
             checkpoint"
        )));
    }
    Ok(folder)
}

/// Reads a model by its name or folder.
pub fn load(base: &str, kind: Kind, device: Device) -> Result<Checkpoint, TrainError> {
    if base == POCKET {
        return Ok(checkpoint::load_embedded(&POCKET_FILES, kind, device)?);
    }
    Ok(checkpoint::load(folder_of(base)?, kind, device)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They are written beside a model with other dimensions, whose files must not be replaced.
    #[test]
    fn the_other_files_are_neither_weights_nor_configuration() {
        let (_, files) = check(POCKET).unwrap();
        assert_eq!(
            files.into_keys().collect::<Vec<_>>(),
            ["chat_template.jinja", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"]
        );
    }
}
