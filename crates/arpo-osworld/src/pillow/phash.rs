//! The perceptual hash of `imagehash`: which of the lowest frequencies of the grey image are above their median.

use super::PillowImage;
use std::f64::consts::PI;

/// Pixels of a side of the image that is transformed.
const SIDE: usize = 32;
/// Frequencies of a side that count.
const KEPT: usize = 8;
/// A smaller value is what rounding leaves of 0: true ones that small need contrasts that bytes do not have. The original's transform
/// gives 0 itself.
const ROUNDING: f64 = 1e-6;

/// The hash of an image, a bit for each frequency.
pub fn perceptual_hash(image: &PillowImage) -> u64 {
    let small = image.to_grey().lanczos(SIDE, SIDE);
    let cosines: Vec<[f64; SIDE]> = (0..KEPT)
        .map(|frequency| {
            std::array::from_fn(|at| 2.0 * (PI * (frequency * (2 * at + 1)) as f64 / (2 * SIDE) as f64).cos())
        })
        .collect();
    let sum = |cosine: &[f64; SIDE], value: &dyn Fn(usize) -> f64| -> f64 {
        cosine.iter().enumerate().map(|(at, weight)| weight * value(at)).sum()
    };
    // down the columns, then along the rows
    let columns: Vec<Vec<f64>> = cosines
        .iter()
        .map(|cosine| {
            (0..SIDE).map(|column| sum(cosine, &|row| f64::from(small.pixels[row * SIDE + column]))).collect()
        })
        .collect();
    let frequencies: Vec<f64> = columns
        .iter()
        .flat_map(|row| cosines.iter().map(move |cosine| sum(cosine, &|at| row[at])))
        .map(|value| if value.abs() < ROUNDING { 0.0 } else { value })
        .collect();
    let mut sorted = frequencies.clone();
    sorted.sort_by(f64::total_cmp);
    let median = f64::midpoint(sorted[sorted.len() / 2 - 1], sorted[sorted.len() / 2]);
    frequencies.iter().fold(0, |hash, value| (hash << 1) | u64::from(*value > median))
}

/// In how many bits two hashes differ.
pub fn distance(a: u64, b: u64) -> u32 {
    (a ^ b).count_ones()
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::*;

    fn image(color: impl Fn(usize, usize) -> u8) -> PillowImage {
        let pixels = (0..40).flat_map(|row| (0..50).map(move |column| (row, column)));
        let pixels = pixels.map(|(row, column)| color(row, column)).collect();
        PillowImage { mode: Mode::L, is_palette: false, width: 50, height: 40, pixels }
    }

    #[test]
    fn hashes_are_imagehash_s() {
        // imagehash 4.3: `phash` of the same pixels.
        assert_eq!(
            perceptual_hash(&image(|row, column| ((row * 5 + column * 2) % 200) as u8)),
            0xaf00_7fc0_bf60_1bf0
        );
        assert_eq!(
            perceptual_hash(&image(|row, column| ((row * row + 3 * column) % 256) as u8)),
            0x822a_0f30_2f76_7dd6
        );
        assert_eq!(
            perceptual_hash(&image(|row, column| if row > column { 220 } else { 15 })),
            0xff3f_9f0f_8301_8448
        );
    }

    /// Most frequencies of these are 0; imagehash 4.3.2 with scipy 1.17.
    #[test]
    fn hashes_of_flat_and_striped_images_are_imagehash_s() {
        let black = perceptual_hash(&image(|_, _| 0));
        assert_eq!(black, 0);
        for shade in [1, 7, 133, 200, 255] {
            assert_eq!(perceptual_hash(&image(|_, _| shade)), 0x8000_0000_0000_0000, "{shade}");
        }
        let hash = |color: &dyn Fn(usize, usize) -> usize| {
            perceptual_hash(&image(|row, column| (color(row, column) % 256) as u8))
        };
        assert_eq!(hash(&|_, column| column * 5), 0x8000_0000_0000_0000);
        assert_eq!(hash(&|row, _| row * 6), 0x8000_0000_0000_0000);
        assert_eq!(hash(&|_, column| column * column % 251), 0x8100_0000_0000_0000);
        assert_eq!(hash(&|_, column| if column < 25 { 220 } else { 15 }), 0xc400_0000_0000_0000);
        assert_eq!(hash(&|row, _| if row < 20 { 220 } else { 15 }), 0x8080_0000_0080_0000);
        assert_eq!(hash(&|row, column| 255 * ((row / 10 + column / 10) % 2)), 0x8002_0002_00a8_00a8);
        let is_dot = |row: usize, column: usize| (18..22).contains(&row) && (23..27).contains(&column);
        assert_eq!(hash(&|row, column| if is_dot(row, column) { 255 } else { 0 }), 0x8800_2200_8800_2200);
    }

    #[test]
    fn a_brighter_image_is_the_same_and_a_mirrored_one_is_not() {
        let one = image(|row, column| ((row * 5 + column * 2) % 200) as u8);
        let brighter = image(|row, column| ((row * 5 + column * 2) % 200) as u8 + 30);
        let hash = perceptual_hash(&one);
        assert!(distance(hash, perceptual_hash(&brighter)) <= 5);
        assert!(distance(hash, perceptual_hash(&one.mirrored())) > 5);
    }
}
