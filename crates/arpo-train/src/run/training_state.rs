//! What a checkpoint of a training run is made of: the model in Hugging Face's layout, the optimiser's state, and
//! whatever else the trainer says it needs, as JSON.

use super::checkpoints::NewCheckpoint;
use super::{RunError, RunFolder};
use crate::TrainError;
use arpo_core::config::OptimiserConfig;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::checkpoint::{self, Weights};
use arpo_model::config::ModelConfig;
use arpo_model::learner::adamw::AdamW;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use tch::{Device, Kind};

/// The model, in Hugging Face's layout: a folder of a checkpoint.
pub const MODEL: &str = "model";

/// The optimiser's state: a file of a checkpoint.
pub const OPTIMISER: &str = "optimiser.safetensors";

/// What the trainer remembers: a file of a checkpoint.
pub const STATE: &str = "state.json";

/// What has been learnt.
#[derive(Debug, Clone, Copy)]
pub struct Learnt<'a> {
    /// The model's dimensions.
    pub config: &'a ModelConfig,
    /// Its parameters.
    pub weights: &'a Weights,
    /// Tokenizer, image processor and the like, by file name.
    pub side_files: &'a BTreeMap<String, Vec<u8>>,
    /// The optimiser, made for these weights.
    pub optimiser: &'a AdamW,
}

/// A checkpoint read back.
#[derive(Debug)]
pub struct Restored<S> {
    /// The model's dimensions.
    pub config: ModelConfig,
    /// Its parameters, with room for gradients.
    pub weights: Weights,
    /// Tokenizer, image processor and the like, by file name.
    pub side_files: BTreeMap<String, Vec<u8>>,
    /// The optimiser where it was.
    pub optimiser: AdamW,
    /// What the trainer remembered.
    pub state: S,
}

impl RunFolder {
    /// Writes a checkpoint of a training run. The state must not hold numbers that JSON cannot write: what is infinite or
    /// no number would be read back as nothing.
    pub fn save_training<S: Serialize>(
        &self,
        new: NewCheckpoint,
        learnt: Learnt,
        state: &S,
    ) -> Result<std::path::PathBuf, TrainError> {
        self.save_checkpoint(new, |folder| {
            let Learnt { config, weights, side_files, optimiser } = learnt;
            checkpoint::save(&folder.join(MODEL), config, weights, side_files)?;
            optimiser.save(weights, &folder.join(OPTIMISER))?;
            Ok(write_state(&folder.join(STATE), state)?)
        })
    }
}

/// Reads a checkpoint of a training run. Parameters become `kind` on `device`; give the kind they were saved in for a run
/// that goes on exactly.
pub fn load_training<S: DeserializeOwned>(
    checkpoint: &Path,
    (kind, device): (Kind, Device),
    trained: impl Fn(&ParameterLayout) -> bool,
    optimiser: OptimiserConfig,
) -> Result<Restored<S>, TrainError> {
    let state = read_state(&checkpoint.join(STATE))?;
    let model = checkpoint::load(&checkpoint.join(MODEL), kind, device)?;
    let weights = model.weights.with_gradients(trained);
    let optimiser = AdamW::load(&checkpoint.join(OPTIMISER), &weights, optimiser)?;
    Ok(Restored { config: model.config, weights, side_files: model.side_files, optimiser, state })
}

fn write_state(path: &Path, state: &impl Serialize) -> Result<(), RunError> {
    let file = File::create(path).map_err(RunError::io(path, "created"))?;
    let mut file = BufWriter::new(file);
    serde_json::to_writer(&mut file, state)
        .map_err(|error| RunError::file(path, format!("the state cannot be written: {error}")))?;
    file.write_all(b"\n").and_then(|()| file.flush()).map_err(RunError::io(path, "written"))
}

/// What the trainer remembered, alone.
pub fn read_state<S: DeserializeOwned>(path: &Path) -> Result<S, RunError> {
    let file = File::open(path).map_err(RunError::io(path, "read"))?;
    serde_json::from_reader(BufReader::new(file))
        .map_err(|error| RunError::file(path, format!("not the state of a training run: {error}")))
}
