//! Screenshots that are made up, and their digests.

use image::{ImageFormat, Rgb, RgbImage};
use std::io::{self, Cursor};

/// A screenshot: a desktop with a window and some buttons.
pub(super) fn picture(number: usize, (width, height): (u32, u32)) -> io::Result<Vec<u8>> {
    let mut image = RgbImage::from_pixel(width, height, Rgb([44, 62, 92]));
    let mut fill = |left: u32, top: u32, right: u32, bottom: u32, colour: [u8; 3]| {
        for y in top.min(height)..bottom.min(height) {
            for x in left.min(width)..right.min(width) {
                image.put_pixel(x, y, Rgb(colour));
            }
        }
    };
    let shift = (number as u32 * 37) % (width / 4).max(1);
    fill(0, height - height / 14, width, height, [24, 30, 44]);
    fill(width / 10 + shift, height / 10, width * 6 / 10 + shift, height * 8 / 10, [238, 240, 244]);
    fill(width / 10 + shift, height / 10, width * 6 / 10 + shift, height / 10 + height / 16, [200, 90, 60]);
    for row in 0..5 {
        let (top, left) = (height / 5 + row * height / 9, width / 8 + shift);
        let shade = (number as u32 * 53 + row * 31) % 120;
        fill(
            left,
            top,
            left + width / 6 + shade.min(width / 6),
            top + height / 24,
            [90, 120, 60 + shade as u8],
        );
    }
    let mut bytes = Vec::new();
    image.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).map_err(io::Error::other)?;
    Ok(bytes)
}

/// The digest of a screenshot.
pub(super) fn screen_digest(number: usize) -> String {
    format!("{:08x}{number:08x}", number.wrapping_mul(2_654_435_761) & 0xffff_ffff)
}
