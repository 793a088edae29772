//! Rescaling and normalisation by table lookup: a channel has only 256 pixel values.

use crate::CHANNELS;

/// Distinct values of a byte.
pub const BYTE_VALUES: usize = 256;

/// The normalised value of each byte of each channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalisation {
    table: [[f32; BYTE_VALUES]; CHANNELS],
}

impl Normalisation {
    /// `(byte * rescale - mean) / std`, rounded once.
    pub(crate) fn new(rescale: f64, mean: &[f64; CHANNELS], std: &[f64; CHANNELS]) -> Self {
        let table = std::array::from_fn(|channel| {
            let (factor, offset) = (rescale / std[channel], -mean[channel] / std[channel]);
            std::array::from_fn(|byte| (byte as f64 * factor + offset) as f32)
        });
        Self { table }
    }

    /// The normalised value of a byte.
    pub fn of(&self, channel: usize, byte: u8) -> f32 {
        self.table[channel][usize::from(byte)]
    }

    /// The whole table: `[channels, byte values]`.
    pub fn table(&self) -> &[f32] {
        self.table.as_flattened()
    }
}
