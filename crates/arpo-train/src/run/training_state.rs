//! The contents of a training checkpoint: the model in Hugging Face's layout, the optimiser's state, and the trainer's
//! state as JSON.

use super::checkpoints::NewCheckpoint;
use super::{RunError, RunFolder};
use crate::TrainError;
use arpo_core::config::OptimiserConfig;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::checkpoint::{self, GradientBuffer, Weights};
use arpo_model::config::ModelConfig;
use arpo_model::training::adamw::AdamW;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use tch::{Device, Kind};

/// The folder of the model, in Hugging Face's layout.
pub const MODEL: &str = "model";

/// The file of the optimiser's state.
pub const OPTIMISER: &str = "optimiser.safetensors";

/// The file of the trainer's state.
pub const STATE: &str = "state.json";

/// A model with its optimiser, to be saved.
#[derive(Debug, Clone, Copy)]
pub struct TrainedModel<'a> {
    /// The model's dimensions.
    pub config: &'a ModelConfig,
    /// Its parameters.
    pub weights: &'a Weights,
    /// Tokenizer, image processor and the like, by file name.
    pub side_files: &'a BTreeMap<String, Vec<u8>>,
    /// The optimiser of these weights.
    pub optimiser: &'a AdamW,
}

/// The model of a checkpoint, read back.
#[derive(Debug)]
pub struct RestoredModel {
    /// The model's dimensions.
    pub config: ModelConfig,
    /// Its parameters, with gradients allocated.
    pub weights: Weights,
    /// Tokenizer, image processor and the like, by file name.
    pub side_files: BTreeMap<String, Vec<u8>>,
    /// The restored optimiser.
    pub optimiser: AdamW,
}

impl TrainedModel<'_> {
    /// Writes model and optimiser into the folder of a checkpoint.
    pub fn save(&self, folder: &Path) -> Result<(), TrainError> {
        checkpoint::save(&folder.join(MODEL), self.config, self.weights, self.side_files)?;
        Ok(self.optimiser.save(self.weights, &folder.join(OPTIMISER))?)
    }
}

impl RunFolder {
    /// Writes a training checkpoint: `save_model` writes model and optimiser, this method the state, which must not hold
    /// NaN or infinity, because JSON cannot.
    pub fn save_training<S: Serialize>(
        &self,
        new: NewCheckpoint,
        save_model: impl FnOnce(&Path) -> Result<(), TrainError>,
        state: &S,
    ) -> Result<std::path::PathBuf, TrainError> {
        self.save_checkpoint(new, |folder| {
            save_model(folder)?;
            Ok(write_state(&folder.join(STATE), state)?)
        })
    }
}

/// Reads model and optimiser of a checkpoint. Parameters are converted to `kind` on `device`; for a run that continues
/// exactly, this must be the kind they were saved in.
pub fn load_model<B: Into<GradientBuffer>>(
    checkpoint: &Path,
    (kind, device): (Kind, Device),
    buffer_of: impl Fn(&ParameterLayout) -> B,
    optimiser: OptimiserConfig,
) -> Result<RestoredModel, TrainError> {
    let model = checkpoint::load(&checkpoint.join(MODEL), kind, device)?;
    let weights = model.weights.with_gradients(buffer_of);
    let optimiser = AdamW::load(&checkpoint.join(OPTIMISER), &weights, optimiser)?;
    Ok(RestoredModel { config: model.config, weights, side_files: model.side_files, optimiser })
}

fn write_state(path: &Path, state: &impl Serialize) -> Result<(), RunError> {
    let file = File::create(path).map_err(RunError::io(path, "created"))?;
    let mut file = BufWriter::new(file);
    serde_json::to_writer(&mut file, state)
        .map_err(|error| RunError::file(path, format!("the state cannot be written: {error}")))?;
    file.write_all(b"\n").and_then(|()| file.flush()).map_err(RunError::io(path, "written"))
}

/// The trainer's state in a checkpoint.
pub fn load_state<S: DeserializeOwned>(checkpoint: &Path) -> Result<S, RunError> {
    let path = checkpoint.join(STATE);
    let file = File::open(&path).map_err(RunError::io(&path, "read"))?;
    serde_json::from_reader(BufReader::new(file))
        .map_err(|error| RunError::file(&path, format!("not the state of a training run: {error}")))
}
