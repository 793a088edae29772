//! The record of a skipped update, so that a person can inspect and reproduce it.

use super::{ImageContent, ImageInput, MicroBatch, TokenScores};
use crate::ModelError;
use crate::checkpoint::SavedTensor;
use crate::checkpoint::scratch::{Scratch, sync};
use safetensors::serialize_to_file;
use serde_json::json;
use std::path::{Path, PathBuf};
use tch::Tensor;

/// Limit for the bytes of images in a record: those of a whole episode at 1080p would be 760 MB.
const MAX_IMAGE_BYTES: usize = 256 << 20;

/// Limit for the number of records of a run.
const MAX_INCIDENTS: u64 = 16;

/// The micro-batch with the non-finite loss or gradient: its inputs, the model's scores, and the loss coefficients.
pub(super) struct Evidence<'a> {
    pub(super) batch: MicroBatch<'a>,
    pub(super) scores: &'a TokenScores,
    /// Of the micro-batches up to this one.
    pub(super) losses: &'a [f64],
    pub(super) coefficients: &'a [Vec<f32>],
}

/// Writes the folder `skipped-<number>`: `incident.json` and `micro-batch.safetensors`. Returns its path; `None`
/// beyond the limit.
pub(super) fn write(
    folder: &Path,
    number: u64,
    evidence: &Evidence,
    gradient_norm: Option<f64>,
) -> Result<Option<PathBuf>, ModelError> {
    if number > MAX_INCIDENTS {
        return Ok(None);
    }
    let target = folder.join(format!("skipped-{number:06}"));
    let scratch = Scratch::beside(&target)?;
    // as text: these are often NaN or infinite, which JSON cannot represent
    let losses: Vec<String> = evidence.losses.iter().map(ToString::to_string).collect();
    let norm = gradient_norm.map(|norm| norm.to_string());
    let written = affordable(evidence.batch.images.iter().map(bytes));
    let summary = json!({
        "losses": losses,
        "gradient_norm": norm,
        "micro_batch": evidence.losses.len(),
        "images": evidence.batch.images.len(),
        "images_written": written,
    });
    scratch.write("incident.json", format!("{summary:#}\n").as_bytes())?;
    let path = scratch.path().join("micro-batch.safetensors");
    serialize_to_file(tensors(evidence, written), None, &path)
        .map_err(|error| ModelError::file(&path, format!("cannot be written: {error}")))?;
    sync(&path)?;
    if target.exists() {
        // a resumed run has reached the same update again
        std::fs::remove_dir_all(&target).map_err(ModelError::io(&target))?;
    }
    scratch.rename_to(&target)?;
    Ok(Some(target))
}

/// How many of the first images are written.
fn affordable(sizes: impl Iterator<Item = usize>) -> usize {
    let totals = sizes.scan(0usize, |total, bytes| {
        *total += bytes;
        Some(*total)
    });
    totals.take_while(|&total| total <= MAX_IMAGE_BYTES).count()
}

fn bytes(image: &ImageInput) -> usize {
    let content = content(image).1;
    content.numel() * content.kind().elt_size_in_bytes()
}

fn content(image: &ImageInput) -> (&'static str, &Tensor) {
    match &image.content {
        ImageContent::Pixels(pixels) => ("pixels", pixels),
        ImageContent::Features(features) => ("features", features),
    }
}

fn tensors(evidence: &Evidence, written: usize) -> Vec<(String, SavedTensor)> {
    let integers = |values: Vec<i64>| SavedTensor::new(Tensor::from_slice(&values));
    let values = |values: &[f32]| SavedTensor::new(Tensor::from_slice(values));
    let mut tensors = Vec::new();
    for (number, episode) in evidence.batch.sequences.iter().enumerate() {
        let mut add = |name: &str, tensor| tensors.push((format!("episode.{number}.{name}"), tensor));
        add("tokens", integers(episode.tokens.iter().map(|&token| i64::from(token)).collect()));
        add("trained", integers(episode.trained.iter().map(|&flag| i64::from(flag)).collect()));
        add("images", integers(episode.images.iter().map(|&image| image as i64).collect()));
        add("logp", values(&evidence.scores.logp[number]));
        add("entropy", values(&evidence.scores.entropy[number]));
        if let Some(coefficients) = evidence.coefficients.get(number) {
            add("coefficients", values(coefficients));
        }
    }
    for (number, image) in evidence.batch.images.iter().enumerate() {
        let grid = vec![image.grid.height as i64, image.grid.width as i64];
        tensors.push((format!("image.{number}.grid"), integers(grid)));
        if number < written {
            let (name, content) = content(image);
            tensors.push((format!("image.{number}.{name}"), SavedTensor::new(content.shallow_clone())));
        }
    }
    tensors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_written_up_to_a_limit() {
        let one = 10_764 * 1176 * 4; // 1080p in f32
        assert_eq!(affordable([one; 15].into_iter()), 5);
        assert_eq!(affordable([1000; 15].into_iter()), 15);
        assert_eq!(affordable([MAX_IMAGE_BYTES + 1].into_iter()), 0);
    }
}
