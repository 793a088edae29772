//! Screenshots by digest, and small versions of them.

use crate::ViewError;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ImageEncoder, ImageReader, imageops};
use std::fs;
use std::io::Cursor;
use std::path::Path;

/// Larger images are not decoded: a thumbnail must not need memory without a bound.
const MAX_SIDE: u32 = 16_384;
/// The widest thumbnail.
const MAX_WIDTH: u32 = 1024;

/// A digest is letters and digits: nothing that leads out of a folder.
pub fn check_digest(digest: &str) -> Result<(), ViewError> {
    let plain = (3..=128).contains(&digest.len()) && digest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if plain {
        return Ok(());
    }
    let shown: String = digest.chars().take(40).collect();
    Err(ViewError::Request(format!("{shown:?} is not a digest: expected 3 to 128 letters and digits")))
}

/// The PNG in a file, or a version of it at most `width` pixels wide.
pub fn png(path: &Path, width: Option<u32>) -> Result<Vec<u8>, ViewError> {
    let bytes = fs::read(path).map_err(ViewError::io(path, "read"))?;
    let Some(width) = width else { return Ok(bytes) };
    let width = width.clamp(16, MAX_WIDTH);
    let wrong = |error: image::ImageError| ViewError::file(path, format!("not a PNG: {error}"));
    let mut reader = ImageReader::with_format(Cursor::new(&bytes), image::ImageFormat::Png);
    let mut limits = image::Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(MAX_SIDE), Some(MAX_SIDE));
    reader.limits(limits);
    let image = reader.decode().map_err(wrong)?.into_rgb8();
    if image.width() <= width {
        return Ok(bytes);
    }
    let height = (u64::from(image.height()) * u64::from(width) / u64::from(image.width())).max(1) as u32;
    let small = imageops::thumbnail(&image, width, height);
    let mut encoded = Vec::new();
    PngEncoder::new_with_quality(&mut encoded, CompressionType::Fast, FilterType::Adaptive)
        .write_image(small.as_raw(), small.width(), small.height(), image::ExtendedColorType::Rgb8)
        .map_err(wrong)?;
    Ok(encoded)
}
