//! Which given pixels an enlarged one is made of, and how much of each: the bicubic filter, as fixed-point numbers.

use crate::blend::TAPS;

/// The most binary digits behind the point; the rest of 32 is for the pixel, what it overshoots and the sign.
const MOST_PRECISE: u32 = 21;

/// Which given pixels each enlarged one is made of, along one axis.
pub(crate) struct Axis {
    /// The first of each one's four.
    pub(crate) first: Vec<usize>,
    /// The shares of the four, as fixed-point numbers.
    pub(crate) weights: Vec<[i16; TAPS]>,
    /// Binary digits behind the point.
    pub(crate) precision: u32,
}

impl Axis {
    pub(crate) fn new(from: usize, to: usize) -> Self {
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
