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
use crate::{CHANNELS, Grid, MERGE, PATCH, PLANE};
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
pub(crate) fn of_rows(rgb: &[u8], grid: Grid) -> Vec<u8> {
    let rows = GivenRows { rgb, row_bytes: grid.width * PATCH * CHANNELS };
    Arch::new().dispatch(Patching { rows, grid })
}

/// Patches of an image that is smaller.
pub(crate) fn of_enlarged(rgb: &[u8], from: (usize, usize), grid: Grid) -> Vec<u8> {
    let rows = EnlargedRows::new(rgb, from, (grid.width * PATCH, grid.height * PATCH));
    Arch::new().dispatch(Patching { rows, grid })
}

/// Rows of one feature.
const BAND: usize = PATCH * MERGE;

/// Bytes copied at once: a patch's row and two more, which the next row overwrites, because a whole vector is quicker
/// than a part of one.
const VECTOR: usize = 16;

/// Compiled once for each kind of vectors; the best that the processor has is run.
struct Patching<R> {
    rows: R,
    grid: Grid,
}

impl<R: Rows> WithSimd for Patching<R> {
    type Output = Vec<u8>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<u8> {
        patches(self.rows, self.grid)
    }
}

#[inline(always)]
fn patches(mut rows: impl Rows, grid: Grid) -> Vec<u8> {
    let width = grid.width * PATCH;
    // the band's rows by channel, and what the last vector reads too much
    let mut band = vec![0; CHANNELS * BAND * width + VECTOR - PATCH];
    let mut patch = [0; CHANNELS * PLANE + VECTOR - PATCH];
    // filled in order, so that nothing has to be there before
    let mut greys = Vec::with_capacity(grid.patches() * CHANNELS * PLANE);
    for _ in 0..grid.height / MERGE {
        let [red, green, blue] = channels(&mut band, BAND * width);
        for at in (0..BAND).map(|row| row * width..(row + 1) * width) {
            take_apart(rows.next(), &mut red[at.clone()], &mut green[at.clone()], &mut blue[at]);
        }
        for left in (0..width).step_by(BAND) {
            for (row, column) in (0..MERGE).flat_map(|row| (0..MERGE).map(move |column| (row, column))) {
                for (channel, line) in
                    (0..CHANNELS).flat_map(|channel| (0..PATCH).map(move |line| (channel, line)))
                {
                    let from = (channel * BAND + row * PATCH + line) * width + left + column * PATCH;
                    let to = (channel * PATCH + line) * PATCH;
                    patch[to..][..VECTOR].copy_from_slice(&band[from..][..VECTOR]);
                }
                greys.extend_from_slice(&patch[..CHANNELS * PLANE]);
            }
        }
    }
    greys
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
        let numbers: Vec<f32> = patches
            .planes()
            .flat_map(|(greys, levels)| greys.iter().map(|&grey| levels[usize::from(grey)]))
            .collect();
        assert_eq!(numbers.len(), expected.len());
        let differing = numbers.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert_eq!(differing, 0);
    }
}
