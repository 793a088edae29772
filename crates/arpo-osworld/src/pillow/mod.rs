//! Images as Pillow holds them: a mode, a size, bytes by pixel; and Pillow's conversions between modes.

pub mod phash;
pub mod resize;
pub mod ssim;
pub mod xwd;

use crate::error::MetricError;
use image::{ColorType, DynamicImage, ImageReader, Limits};
use std::io::Cursor;

/// No image of a task is larger; a hostile header may claim so.
const SIDE_LIMIT_PX: u32 = 20_000;
const ALLOCATION_LIMIT_BYTES: u64 = 1 << 30;

/// How pixels are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Grey.
    L,
    /// Grey and alpha.
    La,
    /// Red, green, blue.
    Rgb,
    /// Red, green, blue and alpha.
    Rgba,
}

impl Mode {
    /// Bytes of a pixel.
    pub fn channels(self) -> usize {
        match self {
            Self::L => 1,
            Self::La => 2,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }
}

/// A decoded image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PillowImage {
    /// How pixels are stored.
    pub mode: Mode,
    /// Whether the file has a palette, which Pillow calls mode P; the pixels here are its colours.
    pub is_palette: bool,
    /// Width.
    pub width: usize,
    /// Height.
    pub height: usize,
    /// Row by row.
    pub pixels: Vec<u8>,
}

impl PillowImage {
    /// Decodes a file's bytes, whatever its format.
    pub fn decode(bytes: &[u8]) -> Result<Self, MetricError> {
        let broken = |error: &dyn std::fmt::Display| MetricError::raises(format!("not an image: {error}"));
        let mut reader =
            ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| broken(&error))?;
        let mut limits = Limits::default();
        limits.max_image_width = Some(SIDE_LIMIT_PX);
        limits.max_image_height = Some(SIDE_LIMIT_PX);
        limits.max_alloc = Some(ALLOCATION_LIMIT_BYTES);
        reader.limits(limits);
        let decoded = reader.decode().map_err(|error| broken(&error))?;
        let (width, height) = (decoded.width() as usize, decoded.height() as usize);
        let (mode, pixels) = match decoded.color() {
            ColorType::L8 => (Mode::L, decoded.into_luma8().into_raw()),
            // Pillow does not scale sixteen bits: what is above 255 is 255.
            ColorType::L16 => {
                let pixels = decoded.into_luma16().into_raw();
                (Mode::L, pixels.into_iter().map(|value| value.min(255) as u8).collect())
            }
            ColorType::La8 | ColorType::La16 => (Mode::La, decoded.into_luma_alpha8().into_raw()),
            ColorType::Rgba8 | ColorType::Rgba16 | ColorType::Rgba32F => {
                (Mode::Rgba, decoded.into_rgba8().into_raw())
            }
            _ => (Mode::Rgb, DynamicImage::into_rgb8(decoded).into_raw()),
        };
        Ok(Self { mode, is_palette: has_palette(bytes), width, height, pixels })
    }

    /// Its bytes, as Pillow's `tobytes`.
    pub fn raw_bytes(self) -> Vec<u8> {
        self.pixels
    }

    /// `convert(mode)`.
    #[must_use]
    pub fn to_mode(&self, mode: Mode) -> Self {
        let alphas = || -> Vec<u8> {
            match self.mode {
                Mode::La | Mode::Rgba => self.by_pixel().filter_map(|pixel| pixel.last().copied()).collect(),
                Mode::L | Mode::Rgb => vec![255; self.width * self.height],
            }
        };
        let base = if matches!(mode, Mode::L | Mode::La) { self.to_grey() } else { self.to_rgb() };
        let pixels = match mode {
            Mode::L | Mode::Rgb => return base,
            Mode::La | Mode::Rgba => {
                let with_alpha = base.by_pixel().zip(alphas());
                with_alpha.flat_map(|(pixel, alpha)| pixel.iter().copied().chain([alpha])).collect()
            }
        };
        Self { mode, pixels, ..base }
    }

    /// Pixels as slices.
    pub fn by_pixel(&self) -> impl Iterator<Item = &[u8]> {
        self.pixels.chunks_exact(self.mode.channels())
    }

    /// `convert("RGB")`: alpha is dropped.
    #[must_use]
    pub fn to_rgb(&self) -> Self {
        let pixels = match self.mode {
            Mode::Rgb => self.pixels.clone(),
            Mode::Rgba => self.by_pixel().flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
            Mode::L | Mode::La => self.by_pixel().flat_map(|pixel| [pixel[0]; 3]).collect(),
        };
        Self { mode: Mode::Rgb, is_palette: false, pixels, ..*self }
    }

    /// `convert("L")`: ITU-R 601-2 in Pillow's fixed point.
    #[must_use]
    pub fn to_grey(&self) -> Self {
        let grey = |pixel: &[u8]| {
            let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
            ((red * 19_595 + green * 38_470 + blue * 7_471 + 0x8000) >> 16) as u8
        };
        let pixels = match self.mode {
            Mode::L => self.pixels.clone(),
            Mode::La => self.by_pixel().map(|pixel| pixel[0]).collect(),
            Mode::Rgb | Mode::Rgba => self.by_pixel().map(grey).collect(),
        };
        Self { mode: Mode::L, is_palette: false, pixels, ..*self }
    }

    /// `convert("HSV")`, split into hue, saturation and value.
    pub fn to_hsv(&self) -> [Vec<u8>; 3] {
        let mut planes = [Vec::new(), Vec::new(), Vec::new()];
        for pixel in self.to_rgb().by_pixel() {
            for (plane, value) in planes.iter_mut().zip(hsv(pixel[0], pixel[1], pixel[2])) {
                plane.push(value);
            }
        }
        planes
    }

    /// An image of one plane.
    #[must_use]
    pub fn of_plane(&self, pixels: Vec<u8>) -> Self {
        Self { mode: Mode::L, is_palette: false, pixels, ..*self }
    }

    /// The mean of the grey image.
    pub fn brightness(&self) -> f64 {
        mean(&self.to_grey().pixels)
    }

    /// The standard deviation of all bytes, alpha among them.
    pub fn contrast(&self) -> f64 {
        let mean = mean(&self.pixels);
        let squares: f64 = self.pixels.iter().map(|byte| (f64::from(*byte) - mean).powi(2)).sum();
        (squares / self.pixels.len() as f64).sqrt()
    }

    /// Mirrored horizontally.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        let channels = self.mode.channels();
        let rows = self.pixels.chunks_exact(self.width * channels);
        let pixels = rows.flat_map(|row| row.chunks_exact(channels).rev().flatten().copied()).collect();
        Self { pixels, ..*self }
    }

    /// Cropped to a box.
    #[must_use]
    pub fn cropped(&self, bounds: Bounds) -> Self {
        let channels = self.mode.channels();
        let rows = (bounds.top..bounds.bottom).flat_map(|row| {
            let start = row * self.width;
            self.pixels[(start + bounds.left) * channels..(start + bounds.right) * channels].iter().copied()
        });
        Self {
            pixels: rows.collect(),
            width: bounds.right - bounds.left,
            height: bounds.bottom - bounds.top,
            ..*self
        }
    }

    /// The bounding box of opaque pixels; none if all are transparent. Only for modes with alpha.
    pub fn opaque_bounds(&self) -> Option<Bounds> {
        let alpha = self.mode.channels() - 1;
        let mut bounds: Option<Bounds> = None;
        for (at, _) in self.by_pixel().enumerate().filter(|(_, pixel)| pixel[alpha] != 0) {
            let (column, row) = (at % self.width, at / self.width);
            let one = Bounds { left: column, top: row, right: column + 1, bottom: row + 1 };
            bounds = Some(bounds.map_or(one, |all| all.with(one)));
        }
        bounds
    }
}

/// A box; right and bottom are exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// First column.
    pub left: usize,
    /// First row.
    pub top: usize,
    /// After the last column.
    pub right: usize,
    /// After the last row.
    pub bottom: usize,
}

impl Bounds {
    fn with(self, other: Self) -> Self {
        Self {
            left: self.left.min(other.left),
            top: self.top.min(other.top),
            right: self.right.max(other.right),
            bottom: self.bottom.max(other.bottom),
        }
    }
}

/// The mean of bytes.
pub fn mean(bytes: &[u8]) -> f64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>() as f64 / bytes.len() as f64
}

/// Pillow's hue, saturation and value: f32 where Pillow uses it, then truncated to integers.
fn hsv(red: u8, green: u8, blue: u8) -> [u8; 3] {
    let (high, low) = (red.max(green).max(blue), red.min(green).min(blue));
    if high == low {
        return [0, 0, high];
    }
    let range = f32::from(high - low);
    let part = |value: u8| f64::from(f32::from(high - value) / range);
    let (red_part, green_part, blue_part) = (part(red), part(green), part(blue));
    let hue = if red == high {
        (blue_part - green_part) as f32
    } else if green == high {
        (2.0 + red_part - blue_part) as f32
    } else {
        (4.0 + green_part - red_part) as f32
    };
    let hue = ((f64::from(hue) / 6.0 + 1.0) % 1.0) as f32;
    let saturation = range / f32::from(high);
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, high]
}

/// A PNG with a palette, a GIF, or a bitmap of at most eight bits a pixel.
fn has_palette(bytes: &[u8]) -> bool {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => bytes.get(25) == Some(&3),
        [b'G', b'I', b'F', ..] => true,
        [b'B', b'M', ..] => bytes.get(28).is_some_and(|bits| *bits <= 8),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rgb(width: usize, height: usize, color: impl Fn(usize, usize) -> [u8; 3]) -> PillowImage {
        let pixels = (0..height).flat_map(|row| (0..width).map(move |column| (row, column)));
        let pixels = pixels.flat_map(|(row, column)| color(row, column)).collect();
        PillowImage { mode: Mode::Rgb, is_palette: false, width, height, pixels }
    }

    #[test]
    fn conversions_are_pillow_s() {
        // Pillow: Image.new("RGB", (1, 1), colour).convert(mode).getpixel((0, 0)).
        for (color, grey, hsv_value) in [
            ([255, 0, 0], 76, [0, 255, 255]),
            ([0, 255, 0], 150, [85, 255, 255]),
            ([12, 200, 99], 132, [104, 239, 200]),
            ([200, 10, 250], 94, [203, 244, 250]),
            ([7, 7, 7], 7, [0, 0, 7]),
        ] {
            let image = rgb(1, 1, |_, _| color);
            assert_eq!(image.to_grey().pixels, [grey], "{color:?}");
            assert_eq!(hsv(color[0], color[1], color[2]), hsv_value, "{color:?}");
        }
    }

    #[test]
    fn mirror_and_crop() {
        let image = rgb(3, 2, |row, column| [row as u8, column as u8, 9]);
        assert_eq!(image.mirrored().mirrored(), image);
        assert_eq!(&image.mirrored().pixels[..3], &[0, 2, 9]);
        let cut = image.cropped(Bounds { left: 1, top: 1, right: 3, bottom: 2 });
        assert_eq!(cut.pixels, [1, 1, 9, 1, 2, 9]);
    }

    #[test]
    fn damaged_pictures_are_errors() {
        assert!(PillowImage::decode(b"").is_err());
        assert!(
            PillowImage::decode(
                b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\0\0\0"
            )
            .is_err()
        );
        let mut file = Vec::new();
        let data = image::RgbImage::from_fn(20, 20, |x, y| image::Rgb([x as u8, y as u8, 0]));
        data.write_to(&mut Cursor::new(&mut file), image::ImageFormat::Png).unwrap();
        assert!(PillowImage::decode(&file).is_ok());
        assert!(PillowImage::decode(&file[..file.len() / 2]).is_err());
    }
}
