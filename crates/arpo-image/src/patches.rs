//! Rows of RGB into patches: features from left to right and top to bottom, each feature's patches likewise, each patch
//! `[channels, height, width]`.
//!
//! Twenty-eight rows at a time, one row of features, are taken apart into channels and then read patch by patch: all of
//! it stays in the processor's cache, and the result is written once from beginning to end. Several threads make one image
//! by taking some rows of features each.

#![expect(
    clippy::inline_always,
    reason = "code is compiled for a processor's vectors where all of it is one function"
)]

use crate::blend::{Blend, ByteByByte};
use crate::enlarge::{EnlargedRows, Enlarging};
use crate::levels::{Levels, Place};
use crate::{CHANNELS, Grid, MERGE, PATCH, PATCH_LEVELS, PLANE};
use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;

/// Rows of RGB from top to bottom.
pub(crate) trait Rows {
    /// The next row. There is one for each row of patches' pixels.
    fn next(&mut self, way: impl Blend) -> &[u8];
}

/// Rows of an image that has its size already.
struct GivenRows<'a> {
    rgb: &'a [u8],
    row_bytes: usize,
}

impl Rows for GivenRows<'_> {
    #[inline(always)]
    fn next(&mut self, _: impl Blend) -> &[u8] {
        let (row, rest) = self.rgb.split_at(self.row_bytes);
        self.rgb = rest;
        row
    }
}

/// Patches of an image that has its size already, made in so many parts at once.
pub(crate) fn of_rows(rgb: &[u8], grid: Grid, parts: usize, to: impl Destination) {
    let row_bytes = grid.width * PATCH * CHANNELS;
    to.take(grid, parts, |row| GivenRows { rgb: &rgb[row * row_bytes..], row_bytes });
}

/// Patches of an image that is smaller, made in so many parts at once.
pub(crate) fn of_enlarged(rgb: &[u8], from: (usize, usize), grid: Grid, parts: usize, to: impl Destination) {
    let enlarging = Enlarging::between(from, (grid.width * PATCH, grid.height * PATCH));
    to.take(grid, parts, |row| EnlargedRows::starting_at(row, rgb, &enlarging));
}

/// Where patches go.
pub(crate) trait Destination {
    /// All of them. Each part is some rows of features, and has rows of its own from the first that it needs.
    fn take<R: Rows>(self, grid: Grid, parts: usize, rows_from: impl Fn(usize) -> R + Sync);
}

/// Grey levels, as they are.
impl Destination for &mut Vec<u8> {
    fn take<R: Rows>(self, grid: Grid, parts: usize, rows_from: impl Fn(usize) -> R + Sync) {
        let levels = grid.patches() * PATCH_LEVELS;
        if parts <= 1 {
            // filled in order, so that nothing has to be there before
            *self = Vec::with_capacity(levels);
            vectorised(rows_from(0), grid, grid.height / MERGE, |patch| self.extend_from_slice(patch));
        } else {
            *self = vec![0; levels];
            in_parts(self, grid, parts, rows_from, |patch, places| places.copy_from_slice(patch));
        }
    }
}

/// The numbers that stand for them.
pub(crate) struct Numbers<'a, P> {
    pub(crate) levels: &'a Levels,
    pub(crate) places: &'a mut [P],
}

impl<P: Place> Destination for Numbers<'_, P> {
    fn take<R: Rows>(self, grid: Grid, parts: usize, rows_from: impl Fn(usize) -> R + Sync) {
        let Self { levels, places } = self;
        in_parts(
            places,
            grid,
            parts,
            rows_from,
            #[inline(always)]
            |patch, places| levels.write_within(patch, places),
        );
    }
}

/// Into places that are there already.
fn in_parts<R: Rows, T: Send>(
    places: &mut [T],
    grid: Grid,
    parts: usize,
    rows_from: impl Fn(usize) -> R + Sync,
    put: impl Fn(&[u8], &mut [T]) + Sync,
) {
    let (bands, of_band) = (grid.height / MERGE, MERGE * grid.width * PATCH_LEVELS);
    let of_part = bands.div_ceil(parts.max(1));
    let make = |part: usize, places: &mut [T]| {
        let bands = places.len() / of_band;
        let mut places = places.chunks_exact_mut(PATCH_LEVELS);
        vectorised(
            rows_from(part * of_part * BAND),
            grid,
            bands,
            #[inline(always)]
            |patch| put(patch, places.next().expect("as many places as patches")),
        );
    };
    if parts <= 1 {
        // here and now: the threads' only one may be another than this
        return make(0, places);
    }
    places.par_chunks_mut(of_part * of_band).enumerate().for_each(|(part, places)| make(part, places));
}

/// Rows of one feature.
const BAND: usize = PATCH * MERGE;

/// Bytes copied at once: a patch's row and two more, which the next row overwrites, because a whole vector is quicker
/// than a part of one.
const VECTOR: usize = 16;

/// Compiled once for each kind of vectors; the best that the processor has is run.
fn vectorised(rows: impl Rows, grid: Grid, bands: usize, keep: impl FnMut(&[u8])) {
    match Arch::new() {
        #[cfg(target_arch = "x86_64")]
        Arch::V4(way) => Arch::V4(way).dispatch(Patching { rows, grid, bands, keep, way }),
        other => other.dispatch(Patching { rows, grid, bands, keep, way: ByteByByte }),
    }
}

struct Patching<R, K, W> {
    rows: R,
    grid: Grid,
    bands: usize,
    keep: K,
    way: W,
}

impl<R: Rows, K: FnMut(&[u8]), W: Blend> NullaryFnOnce for Patching<R, K, W> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        patches(self.rows, self.grid, self.bands, self.keep, self.way);
    }
}

#[inline(always)]
fn patches(mut rows: impl Rows, grid: Grid, bands: usize, mut keep: impl FnMut(&[u8]), way: impl Blend) {
    let width = grid.width * PATCH;
    // the band's rows by channel, and what the last vector reads too much
    let mut band = vec![0; CHANNELS * BAND * width + VECTOR - PATCH];
    let mut patch = [0; PATCH_LEVELS + VECTOR - PATCH];
    for _ in 0..bands {
        let [red, green, blue] = channels(&mut band, BAND * width);
        for at in (0..BAND).map(|row| row * width..(row + 1) * width) {
            take_apart(rows.next(way), &mut red[at.clone()], &mut green[at.clone()], &mut blue[at]);
        }
        for left in (0..width).step_by(BAND) {
            for (row, column) in (0..MERGE).flat_map(|row| (0..MERGE).map(move |column| (row, column))) {
                let corner = row * PATCH * width + left + column * PATCH;
                for (from, plane) in (corner..).step_by(BAND * width).zip(0..CHANNELS) {
                    let rows = band[from..][..(PATCH - 1) * width + VECTOR].chunks(width);
                    let patch = &mut patch[plane * PLANE..][..PLANE + VECTOR - PATCH];
                    for (line, row) in rows.take(PATCH).enumerate() {
                        patch[line * PATCH..][..VECTOR].copy_from_slice(&row[..VECTOR]);
                    }
                }
                keep(&patch[..PATCH_LEVELS]);
            }
        }
    }
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
        let mut numbers = vec![0.0; patches.greys.len()];
        patches.write_numbers(&mut numbers);
        assert_eq!(numbers.len(), expected.len());
        let differing = numbers.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert_eq!(differing, 0);
    }
}
