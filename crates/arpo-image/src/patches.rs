//! Rows of RGB into patches: features from left to right and top to bottom, each feature's patches likewise, each patch
//! `[channels, height, width]`.
//!
//! Twenty-eight rows at a time, one row of features, are taken apart into channels and then read patch by patch: all of
//! it stays in the processor's cache, and the result is written once from beginning to end.

#![expect(
    clippy::inline_always,
    reason = "code is compiled for a processor's vectors where all of it is one function"
)]

use crate::enlarge::EnlargedRows;
use crate::{CHANNELS, Grid, MERGE, PATCH, Scale};
use pulp::{Arch, Simd, WithSimd};

/// Rows of RGB from top to bottom.
pub(crate) trait Rows {
    /// The next row. There is one for each row of patches' pixels.
    fn next(&mut self) -> &[u8];
}

/// Rows of an image that has its size already.
struct GivenRows<'a> {
    rgb: &'a [u8],
    row_bytes: usize,
}

impl Rows for GivenRows<'_> {
    #[inline(always)]
    fn next(&mut self) -> &[u8] {
        let (row, rest) = self.rgb.split_at(self.row_bytes);
        self.rgb = rest;
        row
    }
}

/// Patches of an image that has its size already.
pub(crate) fn of_rows(rgb: &[u8], grid: Grid, scales: &[Scale; CHANNELS]) -> Vec<f32> {
    let rows = GivenRows { rgb, row_bytes: grid.width * PATCH * CHANNELS };
    Arch::new().dispatch(Patching { rows, grid, scales })
}

/// Patches of an image that is smaller.
pub(crate) fn of_enlarged(
    rgb: &[u8],
    from: (usize, usize),
    grid: Grid,
    scales: &[Scale; CHANNELS],
) -> Vec<f32> {
    let rows = EnlargedRows::new(rgb, from, (grid.width * PATCH, grid.height * PATCH));
    Arch::new().dispatch(Patching { rows, grid, scales })
}

/// Rows of one feature.
const BAND: usize = PATCH * MERGE;

/// Numbers converted at once: a patch's row and two more, which the next row overwrites, because a whole vector is
/// quicker than a part of one.
const VECTOR: usize = 16;

/// Compiled once for each kind of vectors; the best that the processor has is run.
struct Patching<'a, R> {
    rows: R,
    grid: Grid,
    scales: &'a [Scale; CHANNELS],
}

impl<R: Rows> WithSimd for Patching<'_, R> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<f32> {
        patches(self.rows, self.grid, self.scales)
    }
}

#[inline(always)]
fn patches(mut rows: impl Rows, grid: Grid, scales: &[Scale; CHANNELS]) -> Vec<f32> {
    const PLANE: usize = PATCH * PATCH;
    let width = grid.width * PATCH;
    // the band's rows by channel, and what the last vector reads too much
    let mut band = vec![0; CHANNELS * BAND * width + VECTOR - PATCH];
    let mut patch = [0.0; CHANNELS * PLANE + VECTOR - PATCH];
    // filled in order, so that nothing has to be there before
    let mut pixels = Vec::with_capacity(grid.patches() * CHANNELS * PLANE);
    for _ in 0..grid.height / MERGE {
        let [red, green, blue] = channels(&mut band, BAND * width);
        for at in (0..BAND).map(|row| row * width..(row + 1) * width) {
            take_apart(rows.next(), &mut red[at.clone()], &mut green[at.clone()], &mut blue[at]);
        }
        for left in (0..width).step_by(BAND) {
            for (row, column) in (0..MERGE).flat_map(|row| (0..MERGE).map(move |column| (row, column))) {
                for (channel, scale) in scales.iter().enumerate() {
                    let corner = (channel * BAND + row * PATCH) * width + left + column * PATCH;
                    for line in 0..PATCH {
                        let grey = &band[corner + line * width..][..VECTOR];
                        let numbers = &mut patch[channel * PLANE + line * PATCH..][..VECTOR];
                        for (number, &grey) in numbers.iter_mut().zip(grey) {
                            *number = (f64::from(grey) * scale.factor + scale.offset) as f32;
                        }
                    }
                }
                pixels.extend_from_slice(&patch[..CHANNELS * PLANE]);
            }
        }
    }
    pixels
}

/// The three parts of so many bytes.
fn channels(band: &mut [u8], bytes: usize) -> [&mut [u8]; CHANNELS] {
    let (red, rest) = band.split_at_mut(bytes);
    let (green, rest) = rest.split_at_mut(bytes);
    [red, green, &mut rest[..bytes]]
}

/// A row's bytes by channel. Each channel is an argument of its own, or the compiler would think that they overlap.
#[inline(always)]
fn take_apart(rgb: &[u8], red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
    for (((rgb, red), green), blue) in rgb.chunks_exact(CHANNELS).zip(red).zip(green).zip(blue) {
        *red = rgb[0];
        *green = rgb[1];
        *blue = rgb[2];
    }
}

#[cfg(test)]
mod tests {
    use crate::ImageProcessor;
    use image::{Rgb, RgbImage};

    #[test]
    fn every_grey_level_stands_where_it_should_as_the_file_says() {
        // four by two features of 28 x 28, every pixel another colour than its neighbours
        let colour = |x: u32, y: u32| Rgb([(x + 56 * y) as u8, (7 * x + y) as u8, (x * y) as u8]);
        let image = RgbImage::from_fn(112, 56, colour);
        let patches = ImageProcessor::published().process(&image).expect("a legal size");
        let (mean, deviation) =
            ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_58, 0.275_777_11]);
        let mut expected = vec![];
        for (feature_y, feature_x) in (0..2).flat_map(|y| (0..4).map(move |x| (y, x))) {
            for (patch_y, patch_x) in (0..2).flat_map(|y| (0..2).map(move |x| (y, x))) {
                for channel in 0..3 {
                    for (y, x) in (0..14).flat_map(|y| (0..14).map(move |x| (y, x))) {
                        let (x, y) = (feature_x * 28 + patch_x * 14 + x, feature_y * 28 + patch_y * 14 + y);
                        let grey = f64::from(colour(x, y)[channel]);
                        expected.push(((grey / 255.0 - mean[channel]) / deviation[channel]) as f32);
                    }
                }
            }
        }
        assert_eq!(patches.pixels.len(), expected.len());
        let differing =
            patches.pixels.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert_eq!(differing, 0);
    }
}
