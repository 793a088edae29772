//! What is written down of an update that was skipped, so that a person can look at it and compute it again.

use super::{Content, MicroBatch, TokenScores};
use crate::ModelError;
use crate::checkpoint::SavedTensor;
use crate::checkpoint::scratch::{Scratch, sync};
use safetensors::serialize_to_file;
use serde_json::json;
use std::path::{Path, PathBuf};
use tch::Tensor;

/// One micro-batch of the update: what went in, what the model said of it, and what was to be made of that.
pub(super) struct Evidence<'a> {
    pub(super) batch: MicroBatch<'a>,
    pub(super) scores: TokenScores,
    pub(super) loss: f64,
    pub(super) coefficients: Vec<Vec<f32>>,
}

/// Writes the folder `skipped-<number>`: `incident.json`, and a safetensors file for each micro-batch. Returns where.
pub(super) fn write(
    folder: &Path,
    number: u64,
    evidence: &[Evidence],
    gradient_norm: Option<f64>,
) -> Result<PathBuf, ModelError> {
    let target = folder.join(format!("skipped-{number:06}"));
    let scratch = Scratch::beside(&target)?;
    // as text: what was skipped is often no number, which JSON cannot write
    let losses: Vec<String> = evidence.iter().map(|one| one.loss.to_string()).collect();
    let norm = gradient_norm.map(|norm| norm.to_string());
    let summary = json!({"losses": losses, "gradient_norm": norm, "micro_batches": evidence.len()});
    scratch.write("incident.json", format!("{summary:#}\n").as_bytes())?;
    for (number, one) in evidence.iter().enumerate() {
        let path = scratch.path().join(format!("micro-batch-{number:03}.safetensors"));
        serialize_to_file(tensors(one), None, &path)
            .map_err(|error| ModelError::file(&path, format!("cannot be written: {error}")))?;
        sync(&path)?;
    }
    if target.exists() {
        // a resumed run has come to the same update again
        std::fs::remove_dir_all(&target).map_err(ModelError::io(&target))?;
    }
    scratch.become_folder(&target)?;
    Ok(target)
}

fn tensors(evidence: &Evidence) -> Vec<(String, SavedTensor)> {
    let whole = |numbers: Vec<i64>| SavedTensor::new(Tensor::from_slice(&numbers));
    let numbers = |numbers: &[f32]| SavedTensor::new(Tensor::from_slice(numbers));
    let mut tensors = Vec::new();
    for (number, episode) in evidence.batch.episodes.iter().enumerate() {
        let mut add = |name: &str, tensor| tensors.push((format!("episode.{number}.{name}"), tensor));
        add("tokens", whole(episode.tokens.iter().map(|&token| i64::from(token)).collect()));
        add("trained", whole(episode.trained.iter().map(|&flag| i64::from(flag)).collect()));
        add("pictures", whole(episode.pictures.iter().map(|&picture| picture as i64).collect()));
        add("logp", numbers(&evidence.scores.logp[number]));
        add("entropy", numbers(&evidence.scores.entropy[number]));
        if let Some(coefficients) = evidence.coefficients.get(number) {
            add("coefficients", numbers(coefficients));
        }
    }
    for (number, picture) in evidence.batch.pictures.iter().enumerate() {
        let grid = vec![picture.grid.height as i64, picture.grid.width as i64];
        tensors.push((format!("picture.{number}.grid"), whole(grid)));
        let (name, content) = match &picture.content {
            Content::Pixels(pixels) => ("pixels", pixels),
            Content::Features(features) => ("features", features),
        };
        tensors.push((format!("picture.{number}.{name}"), SavedTensor::new(content.shallow_clone())));
    }
    tensors
}
