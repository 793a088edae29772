//! What grey levels become when they are rescaled and normalised: a channel has 256, so each is computed once.

use crate::CHANNELS;

/// Grey levels of a channel.
pub const GREYS: usize = 256;

/// A number for each channel and grey level.
#[derive(Debug, Clone, PartialEq)]
pub struct Levels([[f32; GREYS]; CHANNELS]);

impl Levels {
    /// `(grey * rescale - mean) / deviation`, rounded once.
    pub(crate) fn new(rescale: f64, mean: &[f64; CHANNELS], deviation: &[f64; CHANNELS]) -> Self {
        Self(std::array::from_fn(|channel| {
            let factor = rescale / deviation[channel];
            let offset = -mean[channel] / deviation[channel];
            std::array::from_fn(|grey| (grey as f64 * factor + offset) as f32)
        }))
    }

    /// By channel and grey level.
    pub(crate) fn by_channel(&self) -> &[[f32; GREYS]; CHANNELS] {
        &self.0
    }

    /// All, one channel behind the other.
    pub fn all(&self) -> &[f32] {
        self.0.as_flattened()
    }
}
