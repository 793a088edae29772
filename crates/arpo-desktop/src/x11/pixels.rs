//! From pixels of the X server to an image: red, green, blue, with the pointer drawn in, as a PNG encoded fast.

use std::io::Write;

/// An image, three bytes per pixel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Red, green, blue, row by row.
    pub rgb: Vec<u8>,
}

/// What the pointer looks like: `0xAARRGGBB` with the colours multiplied by alpha, as X has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// In pixels.
    pub width: u32,
    /// Row by row.
    pub argb: Vec<u32>,
}

/// An image from four bytes per pixel: blue, green, red and one unused byte.
pub fn image_from_bgrx(width: u32, height: u32, bgrx: &[u8]) -> Image {
    let mut rgb = vec![0; bgrx.len() / 4 * 3];
    for (to, from) in rgb.chunks_exact_mut(3).zip(bgrx.chunks_exact(4)) {
        to.copy_from_slice(&[from[2], from[1], from[0]]);
    }
    Image { width, height, rgb }
}

impl Image {
    /// Draws the pointer with its top left corner at a point, where OSWorld's server draws it: it does not subtract
    /// the hot spot. What lies outside the image is left out.
    pub fn draw(&mut self, cursor: &Cursor, x: i32, y: i32) {
        if cursor.width == 0 {
            return;
        }
        for (row, line) in (y..).zip(cursor.argb.chunks_exact(cursor.width as usize)) {
            for (column, &argb) in (x..).zip(line) {
                let is_inside =
                    (0..self.width as i32).contains(&column) && (0..self.height as i32).contains(&row);
                if !is_inside {
                    continue;
                }
                let at = (row as usize * self.width as usize + column as usize) * 3;
                let [alpha, colours @ ..] = argb.to_be_bytes();
                for (under, over) in self.rgb[at..at + 3].iter_mut().zip(colours) {
                    let shown = u32::from(*under) * u32::from(255 - alpha) / 255;
                    *under = (shown + u32::from(over)).min(255) as u8;
                }
            }
        }
    }

    /// Encodes a PNG, fast rather than small. The compressor shortens nothing but zeros, so the filter has to make them: Paeth's
    /// does of gradients in both directions. A terminal on our wallpaper is about 80 KiB with it and 560 with differences to the row
    /// above, and programs hold thousands of screenshots.
    pub fn png(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.rgb.len() / 8);
        let mut encoder = png::Encoder::new(&mut bytes, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        encoder.set_filter(png::Filter::Paeth);
        let mut writer = encoder.write_header().expect("an image has pixels and writing to memory succeeds");
        writer.write_image_data(&self.rgb).expect("writing to memory succeeds");
        writer.finish().expect("writing to memory succeeds");
        bytes.flush().expect("writing to memory succeeds");
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn colours_are_put_in_order() {
        let image = image_from_bgrx(2, 1, &[1, 2, 3, 99, 4, 5, 6, 0]);
        assert_eq!(image.rgb, [3, 2, 1, 6, 5, 4]);
    }

    #[test]
    fn a_pointer_covers_what_is_under_it_by_its_alpha() {
        let mut image = Image { width: 2, height: 2, rgb: vec![100; 12] };
        let cursor = Cursor { width: 2, argb: vec![0xffff_0000, 0x8040_4040, 0, 0xff00_00ff] };
        image.draw(&cursor, 0, 0);
        // half of 100 shows through the second, rounded down, under 0x40
        assert_eq!(image.rgb, [255, 0, 0, 113, 113, 113, 100, 100, 100, 0, 0, 255]);
    }

    #[test]
    fn a_pointer_at_the_edge_is_cut() {
        let cursor = Cursor { width: 2, argb: vec![0xffff_ffff; 4] };
        for (x, y, white) in [(1, 1, 1), (-1, 0, 2), (-1, -1, 1), (2, 0, 0), (0, -2, 0)] {
            let mut image = Image { width: 2, height: 2, rgb: vec![0; 12] };
            image.draw(&cursor, x, y);
            let count = image.rgb.chunks(3).filter(|pixel| pixel == &[255, 255, 255]).count();
            assert_eq!(count, white, "{x} {y}");
        }
    }

    #[test]
    fn gradients_are_small() {
        let rows = |row: u32, column: u32| [(row / 2) as u8, (column / 8) as u8, 90];
        let (width, height) = (1920, 1080);
        let rgb = (0..height).flat_map(|row| (0..width).flat_map(move |column| rows(row, column)));
        let image = Image { width, height, rgb: rgb.collect() };
        let size = image.png().len();
        assert!(size < 150_000, "{size}");
    }

    proptest! {
        #[test]
        fn a_png_holds_the_image(width in 1u32..20, height in 1u32..20, seed: u8) {
            let bytes = (0..width * height * 3).map(|at| (at as u8).wrapping_mul(seed));
            let image = Image { width, height, rgb: bytes.collect() };
            let mut reader = png::Decoder::new(std::io::Cursor::new(image.png())).read_info().unwrap();
            let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
            let info = reader.next_frame(&mut rgb).unwrap();
            prop_assert_eq!((info.width, info.height), (width, height));
            prop_assert_eq!(rgb, image.rgb);
        }
    }
}
