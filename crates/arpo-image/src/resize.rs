//! Bicubic resizing with antialiasing, as in PIL and so in transformers' image processors.

use crate::CHANNELS;
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use image::RgbImage;
use std::cell::Cell;

/// Buffers of a resize, kept for the next one of the same thread, because fresh memory costs as much as the arithmetic.
#[derive(Default)]
struct Scratch {
    resizer: Resizer,
    horizontal: Vec<u8>,
    resized: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

/// Resizes an image and returns what `read` makes of its rows of RGB.
pub(crate) fn resized<T>(
    image: &RgbImage,
    to: (usize, usize),
    read: impl FnOnce(&[u8]) -> T,
) -> Result<T, Box<dyn std::error::Error>> {
    // taken, not borrowed: while the resizer waits for other threads, this one may start on another image
    let mut scratch = SCRATCH.take();
    let result = resize(image, (to.0 as u32, to.1 as u32), &mut scratch).map(read);
    SCRATCH.set(scratch);
    result
}

/// Bicubic with a = -0.5, the kernel widened for reductions: first horizontally, then vertically, rounded to bytes in
/// between as in PIL, because overshoot is clipped there too and the order matters at sharp edges.
fn resize<'a>(
    image: &RgbImage,
    (width, height): (u32, u32),
    scratch: &'a mut Scratch,
) -> Result<&'a [u8], Box<dyn std::error::Error>> {
    let options =
        ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom)).use_alpha(false);
    let bytes = |width: u32, height: u32| width as usize * height as usize * CHANNELS;
    let Scratch { resizer, horizontal, resized } = scratch;
    horizontal.resize(bytes(width, image.height()), 0);
    resized.resize(bytes(width, height), 0);
    // typed, or the resizer is compiled for every pixel format, which takes minutes
    let source = TypedImageRef::<U8x3>::from_buffer(image.width(), image.height(), image.as_raw())?;
    let mut target = TypedImage::<U8x3>::from_buffer(width, image.height(), horizontal)?;
    resizer.resize_typed(&source, &mut target, &options)?;
    let source = TypedImageRef::<U8x3>::from_buffer(width, image.height(), horizontal)?;
    let mut target = TypedImage::<U8x3>::from_buffer(width, height, resized)?;
    resizer.resize_typed(&source, &mut target, &options)?;
    Ok(resized)
}
