//! From rows of RGB to patches: those that are merged into one image token are consecutive; tokens are in row-major
//! order, and so are the patches of a token; each patch is `[channels, height, width]`.

use crate::{CHANNELS, Grid, PatchSize};
use rayon::prelude::*;

/// Patches of an image whose sides are multiples of a patch, each byte converted by `value` from its channel. Runs on
/// all threads.
pub(crate) fn patches<T: Copy + Default + Send>(
    rgb: &[u8],
    grid: Grid,
    size: PatchSize,
    value: impl Fn(usize, u8) -> T + Sync,
) -> Vec<T> {
    let PatchSize { patch, merge } = size;
    let row_bytes = grid.width * patch * CHANNELS;
    let mut all = vec![T::default(); grid.patches() * size.values()];
    let token_rows = all.par_chunks_mut(merge * grid.width * size.values()).enumerate();
    token_rows.for_each(|(token_row, values)| {
        let mut output = values.chunks_exact_mut(size.values());
        for token_column in 0..grid.width / merge {
            for (row, column) in (0..merge).flat_map(|row| (0..merge).map(move |column| (row, column))) {
                let output = output.next().expect("as many patches as the grid has");
                let top = (token_row * merge + row) * patch;
                let left = (token_column * merge + column) * patch * CHANNELS;
                for y in 0..patch {
                    let pixels = &rgb[(top + y) * row_bytes + left..][..patch * CHANNELS];
                    for channel in 0..CHANNELS {
                        let line = &mut output[(channel * patch + y) * patch..][..patch];
                        for (to, pixel) in line.iter_mut().zip(pixels.chunks_exact(CHANNELS)) {
                            *to = value(channel, pixel[channel]);
                        }
                    }
                }
            }
        }
    });
    all
}

#[cfg(test)]
mod tests {
    use crate::ImageProcessor;
    use image::{Rgb, RgbImage};

    #[test]
    fn every_pixel_is_where_it_should_be() {
        for (patch, file) in [(14, "{}"), (16, r#"{"patch_size": 16}"#)] {
            // four by two tokens of two by two patches, every pixel another colour than its neighbours
            let colour = |x: u32, y: u32| Rgb([(x + 56 * y) as u8, (7 * x + y) as u8, (x * y) as u8]);
            let image = RgbImage::from_fn(8 * patch, 4 * patch, colour);
            let processor = ImageProcessor::parse(file.as_bytes()).expect("a legal file");
            let values = processor.normalised(&[&image]).expect("a legal size").remove(0);
            let (mean, std) =
                ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_58, 0.275_777_11]);
            let mut expected = vec![];
            for (token_y, token_x) in (0..2).flat_map(|y| (0..4).map(move |x| (y, x))) {
                for (patch_y, patch_x) in (0..2).flat_map(|y| (0..2).map(move |x| (y, x))) {
                    for channel in 0..3 {
                        for (y, x) in (0..patch).flat_map(|y| (0..patch).map(move |x| (y, x))) {
                            let x = (token_x * 2 + patch_x) * patch + x;
                            let y = (token_y * 2 + patch_y) * patch + y;
                            let byte = f64::from(colour(x, y)[channel]);
                            expected.push(((byte / 255.0 - mean[channel]) / std[channel]) as f32);
                        }
                    }
                }
            }
            assert_eq!(values.len(), expected.len());
            let differing = values.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            assert_eq!(differing, 0);
        }
    }
}
