//! What grey levels become when they are rescaled and normalised: a channel has 256, so each is computed once.
//!
//! Processors compute a number quicker than they look it up, if they do many at a time; a number is the same either way,
//! because the table is made by the expression that is computed.

#![expect(
    clippy::inline_always,
    reason = "code is compiled for a processor's vectors where all of it is one function"
)]

use crate::{CHANNELS, PLANE};
use pulp::{Arch, NullaryFnOnce};
use std::mem::MaybeUninit;

/// Grey levels of a channel.
pub const GREYS: usize = 256;

/// A number for each channel and grey level.
#[derive(Debug, Clone, PartialEq)]
pub struct Levels {
    lines: [Line; CHANNELS],
    table: [[f32; GREYS]; CHANNELS],
}

/// The line that the numbers of a channel lie on.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    factor: f64,
    offset: f64,
}

impl Line {
    /// Rounded once.
    #[inline(always)]
    fn at(self, grey: u8) -> f32 {
        (f64::from(grey) * self.factor + self.offset) as f32
    }
}

/// Memory for a number, whether or not there is one.
pub trait Place: Send {
    /// Keeps the number.
    fn put(&mut self, number: f32);
}

impl Place for f32 {
    #[inline(always)]
    fn put(&mut self, number: f32) {
        *self = number;
    }
}

impl Place for MaybeUninit<f32> {
    #[inline(always)]
    fn put(&mut self, number: f32) {
        self.write(number);
    }
}

impl Levels {
    /// `(grey * rescale - mean) / deviation`.
    pub(crate) fn new(rescale: f64, mean: &[f64; CHANNELS], deviation: &[f64; CHANNELS]) -> Self {
        let lines = std::array::from_fn(|channel| Line {
            factor: rescale / deviation[channel],
            offset: -mean[channel] / deviation[channel],
        });
        Self { lines, table: lines.map(|line| std::array::from_fn(|grey| line.at(grey as u8))) }
    }

    /// All, one channel behind the other.
    pub fn all(&self) -> &[f32] {
        self.table.as_flattened()
    }

    /// The numbers of whole patches.
    pub(crate) fn write<P: Place>(&self, greys: &[u8], places: &mut [P]) {
        Arch::new().dispatch(Writing { lines: &self.lines, greys, places });
    }

    /// The same, within code that is compiled for the processor's vectors already.
    #[inline(always)]
    pub(crate) fn write_within<P: Place>(&self, greys: &[u8], places: &mut [P]) {
        Writing { lines: &self.lines, greys, places }.call();
    }
}

/// Compiled once for each kind of vectors; the best that the processor has is run.
struct Writing<'a, P> {
    lines: &'a [Line; CHANNELS],
    greys: &'a [u8],
    places: &'a mut [P],
}

impl<P: Place> NullaryFnOnce for Writing<'_, P> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let planes = self.greys.chunks_exact(PLANE).zip(self.places.chunks_exact_mut(PLANE));
        for ((greys, places), line) in planes.zip(self.lines.iter().cycle()) {
            for (place, &grey) in places.iter_mut().zip(greys) {
                place.put(line.at(grey));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_computed_is_what_the_table_says() {
        let levels =
            Levels::new(1.0 / 255.0, &[0.481_454_66, 0.457_827_5, 0.408_210_73], &[0.27, 0.26, 1.0 / 3.0]);
        // two patches, so that each channel has every grey level
        let greys: Vec<u8> =
            (0..2 * CHANNELS * PLANE).map(|at| (at / (CHANNELS * PLANE) * 128 + at % PLANE) as u8).collect();
        let mut numbers = vec![0.0f32; greys.len()];
        levels.write(&greys, &mut numbers);
        for (at, (&grey, number)) in greys.iter().zip(&numbers).enumerate() {
            let expected = levels.all()[at / PLANE % CHANNELS * GREYS + usize::from(grey)];
            assert_eq!(number.to_bits(), expected.to_bits(), "{grey} at {at}");
        }
    }
}
