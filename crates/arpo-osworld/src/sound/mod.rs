//! How far apart two recordings are: cepstra by frame, aligned in time.

pub mod align;
pub mod cepstrum;
pub mod decode;
pub mod resample;

/// The distance along the best alignment, and the length of that alignment.
pub fn distance(first: &[f32], second: &[f32]) -> (f64, usize) {
    align::fast_alignment(&cepstrum::normalised_frames(first), &cepstrum::normalised_frames(second))
}
