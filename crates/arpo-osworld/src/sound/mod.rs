//! How far apart two recordings are: cepstra by frame, aligned in time.

pub mod align;
pub mod cepstrum;
pub mod decode;

use crate::error::MetricError;

/// The distance along the best alignment, and the length of that alignment.
pub fn distance(first: &[f32], second: &[f32]) -> Result<(f64, usize), MetricError> {
    let frames = |samples: &[f32]| cepstrum::normalised_frames(samples);
    let (first, second) = (frames(first), frames(second));
    if first.is_empty() || second.is_empty() {
        return Err(MetricError::raises("a recording without frames"));
    }
    Ok(align::fast_alignment(&first, &second))
}
