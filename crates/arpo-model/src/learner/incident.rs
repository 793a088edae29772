//! What is written down of an update that was skipped, so that a person can look at it and compute it again.

use super::{Content, MicroBatch, Picture, TokenScores};
use crate::ModelError;
use crate::checkpoint::SavedTensor;
use crate::checkpoint::scratch::{Scratch, sync};
use safetensors::serialize_to_file;
use serde_json::json;
use std::path::{Path, PathBuf};
use tch::Tensor;

/// Bytes of pictures that are written down of a micro-batch at most: those of a whole episode at 1080p would be 760 MB.
const MOST_PICTURE_BYTES: usize = 256 << 20;

/// Updates that are written down at most; a run that skips one after the other has said enough.
const MOST_INCIDENTS: u64 = 16;

/// The micro-batch that broke the update: what went in, what the model said of it, and what was to be made of that.
pub(super) struct Evidence<'a> {
    pub(super) batch: MicroBatch<'a>,
    pub(super) scores: &'a TokenScores,
    /// Of the micro-batches up to it.
    pub(super) losses: &'a [f64],
    pub(super) coefficients: &'a [Vec<f32>],
}

/// Writes the folder `skipped-<number>`: `incident.json` and `micro-batch.safetensors`. Returns its path; `None` once
/// there are many.
pub(super) fn write(
    folder: &Path,
    number: u64,
    evidence: &Evidence,
    gradient_norm: Option<f64>,
) -> Result<Option<PathBuf>, ModelError> {
    if number > MOST_INCIDENTS {
        return Ok(None);
    }
    let target = folder.join(format!("skipped-{number:06}"));
    let scratch = Scratch::beside(&target)?;
    // as text: what was skipped is often no number, which JSON cannot write
    let losses: Vec<String> = evidence.losses.iter().map(ToString::to_string).collect();
    let norm = gradient_norm.map(|norm| norm.to_string());
    let shown = affordable(evidence.batch.pictures.iter().map(bytes));
    let summary = json!({
        "losses": losses,
        "gradient_norm": norm,
        "micro_batch": evidence.losses.len(),
        "pictures": evidence.batch.pictures.len(),
        "pictures_written": shown,
    });
    scratch.write("incident.json", format!("{summary:#}\n").as_bytes())?;
    let path = scratch.path().join("micro-batch.safetensors");
    serialize_to_file(tensors(evidence, shown), None, &path)
        .map_err(|error| ModelError::file(&path, format!("cannot be written: {error}")))?;
    sync(&path)?;
    if target.exists() {
        // a resumed run has come to the same update again
        std::fs::remove_dir_all(&target).map_err(ModelError::io(&target))?;
    }
    scratch.become_folder(&target)?;
    Ok(Some(target))
}

/// How many of the first pictures are written.
fn affordable(sizes: impl Iterator<Item = usize>) -> usize {
    let totals = sizes.scan(0usize, |total, bytes| {
        *total += bytes;
        Some(*total)
    });
    totals.take_while(|&total| total <= MOST_PICTURE_BYTES).count()
}

fn bytes(picture: &Picture) -> usize {
    let content = content(picture).1;
    content.numel() * content.kind().elt_size_in_bytes()
}

fn content(picture: &Picture) -> (&'static str, &Tensor) {
    match &picture.content {
        Content::Pixels(pixels) => ("pixels", pixels),
        Content::Features(features) => ("features", features),
    }
}

fn tensors(evidence: &Evidence, shown: usize) -> Vec<(String, SavedTensor)> {
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
        if number < shown {
            let (name, content) = content(picture);
            tensors.push((format!("picture.{number}.{name}"), SavedTensor::new(content.shallow_clone())));
        }
    }
    tensors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_written_up_to_a_limit() {
        let one = 10_764 * 1176 * 4; // 1080p in f32
        assert_eq!(affordable([one; 15].into_iter()), 5);
        assert_eq!(affordable([1000; 15].into_iter()), 15);
        assert_eq!(affordable([MOST_PICTURE_BYTES + 1].into_iter()), 0);
    }
}
