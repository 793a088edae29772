//! Enlarging, row by row: what a screen of 1920 x 1080 needs to become whole patches (1932 x 1092).
//!
//! The same bicubic filter, the same fixed-point numbers and so the same bytes as `reduce` makes, but one row at a time,
//! while its neighbours are still in the processor's cache. Enlarged pixels lie between four given ones. From one pixel
//! to the next these four move on by one, but for a few places in a row, so that stretches of a row are computed with
//! whole vectors of neighbouring bytes.

#![expect(
    clippy::inline_always,
    reason = "it becomes a part of `patches`, compiled for the processor's vectors"
)]

use crate::CHANNELS;
use crate::patches::Rows;
use std::ops::Range;

/// Given pixels that an enlarged one lies between.
const TAPS: usize = 4;

/// The most binary digits behind the point; the rest of 32 is for the pixel, what it overshoots and the sign.
const MOST_PRECISE: u32 = 21;

/// Whether nothing gets smaller, and there are enough pixels to lie between.
pub(crate) fn can(from: (usize, usize), to: (usize, usize)) -> bool {
    let axis = |from: usize, to: usize| (TAPS..=to).contains(&from);
    axis(from.0, to.0) && axis(from.1, to.1)
}

/// Which given pixels each enlarged one is made of, along one axis.
struct Axis {
    /// The first of each one's four.
    first: Vec<usize>,
    /// The shares of the four, as fixed-point numbers.
    weights: Vec<[i16; TAPS]>,
    /// Binary digits behind the point.
    precision: u32,
}

impl Axis {
    fn new(from: usize, to: usize) -> Self {
        let step = from as f64 / to as f64;
        let (first, shares): (Vec<usize>, Vec<[f64; TAPS]>) = (0..to)
            .map(|place| {
                let centre = (place as f64 + 0.5) * step - 0.5;
                let first = ((centre.floor() - 1.0).max(0.0) as usize).min(from - TAPS);
                // at the borders some of the four are outside the filter, and the others make up for those outside the image
                let weights: [f64; TAPS] = std::array::from_fn(|tap| cubic((first + tap) as f64 - centre));
                let sum: f64 = weights.iter().sum();
                (first, weights.map(|weight| weight / sum))
            })
            .unzip();
        let largest = shares.iter().flatten().copied().fold(0.0, f64::max);
        let unit = |precision: u32| f64::from(1u32 << precision);
        let fits = |precision: &u32| (largest * unit(precision + 1)).round() < unit(15);
        let precision = (0..MOST_PRECISE).take_while(fits).count() as u32;
        let weights =
            shares.iter().map(|shares| shares.map(|share| (share * unit(precision)).round() as i16));
        Self { first, weights: weights.collect(), precision }
    }
}

/// The filter at a distance in pixels, with a = -0.5.
fn cubic(distance: f64) -> f64 {
    let x = distance.abs();
    match x {
        ..1.0 => (1.5 * x - 2.5) * x * x + 1.0,
        ..2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
        _ => 0.0,
    }
}

/// Bytes between four others each, by the fixed-point shares of tap and place. All slices are of one length.
#[inline(always)]
fn blend(row: &mut [u8], given: [&[u8]; TAPS], share: impl Fn(usize, usize) -> i16, precision: u32) {
    let half = 1i32 << (precision - 1);
    let given = given.map(|bytes| &bytes[..row.len()]);
    for at in 0..row.len() {
        // wrapping only so that nothing is checked: shares of one and bytes cannot overflow
        let sum = (0..TAPS).fold(half, |sum, tap| {
            sum.wrapping_add(i32::from(share(tap, at)).wrapping_mul(i32::from(given[tap][at])))
        });
        row[at] = (sum >> precision).clamp(0, 255) as u8;
    }
}

/// Enlarging a row across.
struct Across {
    /// Stretches of enlarged pixels whose given ones move on with them, with the first given one of each.
    stretches: Vec<(Range<usize>, usize)>,
    /// By tap, for every byte of a row.
    weights: [Vec<i16>; TAPS],
    precision: u32,
}

impl Across {
    fn new(from: usize, to: usize) -> Self {
        let axis = Axis::new(from, to);
        let mut stretches: Vec<(Range<usize>, usize)> = vec![];
        for (place, &first) in axis.first.iter().enumerate() {
            match stretches.last_mut() {
                Some((places, begin)) if first - *begin == place - places.start => places.end = place + 1,
                _ => stretches.push((place..place + 1, first)),
            }
        }
        let by_tap = |tap: usize| axis.weights.iter().flat_map(|taps| [taps[tap]; CHANNELS]).collect();
        Self { stretches, weights: std::array::from_fn(by_tap), precision: axis.precision }
    }

    #[inline(always)]
    fn enlarge(&self, given: &[u8], row: &mut [u8]) {
        for (places, first) in &self.stretches {
            let (start, count) = (places.start * CHANNELS, places.len() * CHANNELS);
            let shares: [&[i16]; TAPS] = std::array::from_fn(|tap| &self.weights[tap][start..][..count]);
            let given = std::array::from_fn(|tap| &given[(first + tap) * CHANNELS..][..count]);
            blend(&mut row[start..][..count], given, |tap, at| shares[tap][at], self.precision);
        }
    }
}

/// The enlarged rows of an image, from top to bottom.
pub(crate) struct EnlargedRows<'a> {
    rgb: &'a [u8],
    given_bytes: usize,
    across: Across,
    down: Axis,
    /// The last given rows, enlarged across: row `n` at place `n % TAPS`.
    recent: [Vec<u8>; TAPS],
    /// Given rows that were enlarged across.
    done: usize,
    /// The next row's number.
    next: usize,
    row: Vec<u8>,
}

impl<'a> EnlargedRows<'a> {
    pub(crate) fn new(rgb: &'a [u8], from: (usize, usize), to: (usize, usize)) -> Self {
        let row = vec![0; to.0 * CHANNELS];
        Self {
            rgb,
            given_bytes: from.0 * CHANNELS,
            across: Across::new(from.0, to.0),
            down: Axis::new(from.1, to.1),
            recent: std::array::from_fn(|_| row.clone()),
            done: 0,
            next: 0,
            row,
        }
    }
}

impl Rows for EnlargedRows<'_> {
    #[inline(always)]
    fn next(&mut self) -> &[u8] {
        let (first, weights) = (self.down.first[self.next], self.down.weights[self.next]);
        while self.done < first + TAPS {
            let given = &self.rgb[self.done * self.given_bytes..][..self.given_bytes];
            self.across.enlarge(given, &mut self.recent[self.done % TAPS]);
            self.done += 1;
        }
        self.next += 1;
        let given = std::array::from_fn(|tap| &self.recent[(first + tap) % TAPS][..]);
        blend(&mut self.row, given, |tap, _| weights[tap], self.down.precision);
        &self.row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce;
    use image::RgbImage;

    /// Noise between sharp edges, where rounding and overshoot show.
    fn picture(width: usize, height: usize) -> RgbImage {
        let mut state = 1u32;
        let bytes = (0..width * height * CHANNELS).map(|at| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if at / 3000 % 2 == 0 { (state >> 24) as u8 } else { (at / 90 % 2 * 255) as u8 }
        });
        RgbImage::from_raw(width as u32, height as u32, bytes.collect()).expect("the size fits")
    }

    #[test]
    fn every_byte_is_the_general_resizers() {
        let sizes = [
            ((1920, 1080), (1932, 1092)),
            ((100, 60), (112, 84)),
            ((4, 4), (28, 28)),
            ((5, 29), (140, 56)),
            ((300, 56), (308, 56)),
        ];
        for (from, to) in sizes {
            assert!(can(from, to));
            let image = picture(from.0, from.1);
            let mut rows = EnlargedRows::new(image.as_raw(), from, to);
            let ours: Vec<u8> = (0..to.1).flat_map(|_| rows.next().to_vec()).collect();
            let differing = reduce::resized(&image, to, |rgb| {
                assert_eq!(rgb.len(), ours.len());
                rgb.iter().zip(&ours).filter(|(a, b)| a != b).count()
            });
            assert_eq!(differing.expect("the sizes are legal"), 0, "{from:?} to {to:?}");
        }
    }

    #[test]
    fn what_gets_smaller_or_has_no_neighbours_is_left_to_the_general_resizer() {
        assert!(!can((1920, 1080), (1932, 1064)));
        assert!(!can((1920, 1080), (1904, 1092)));
        assert!(!can((3, 100), (28, 112)));
    }
}
