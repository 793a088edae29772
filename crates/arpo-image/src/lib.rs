//! From a screenshot to patches, as transformers' Qwen2-VL image processor makes them: bicubic resize with
//! antialiasing to multiples of 28 pixels, rescaling, normalisation, patches of a feature together.
//!
//! A patch holds one frame: `[channels, height, width]`. The model adds up the weights of its two equal frames, so the
//! second copy is never made. No tensor is needed for it, so this is a crate of its own.

use arpo_agent::geometry::{PixelLimits, Size, smart_resize};
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use image::{DynamicImage, ImageFormat, RgbImage};
use rayon::prelude::*;
use serde::Deserialize;
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

const CHANNELS: usize = 3;

/// Larger screenshots than this are not decoded: no screen has them, and a small file may claim any size.
const LARGEST_SIDE: u32 = 16_384;

/// An image that cannot be used, or a file that does not say how.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file is missing, or does not say what it should.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// An image that no model can see.
    #[error("{0}")]
    Image(String),
}

/// An image's size in patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Patches from top to bottom.
    pub height: usize,
    /// Patches from left to right.
    pub width: usize,
}

impl Grid {
    /// All its patches.
    pub fn patches(&self) -> usize {
        self.height * self.width
    }

    /// Its features, each of `merge` x `merge` patches.
    pub fn features(&self, merge: usize) -> usize {
        self.patches() / (merge * merge)
    }
}

/// How images are processed, from `preprocessor_config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageProcessor {
    /// How many pixels a resized image may have.
    pub limits: PixelLimits,
    patch: usize,
    merge: usize,
    /// What each grey level of each channel becomes.
    levels: Box<[[f32; 256]; CHANNELS]>,
}

/// The patches of one image.
#[derive(Debug, Clone, PartialEq)]
pub struct Patches {
    /// Its size in patches.
    pub grid: Grid,
    /// `[patches, channels * patch * patch]`.
    pub pixels: Vec<f32>,
}

/// The fields of the file that decide numbers.
#[derive(Deserialize)]
#[serde(default)]
struct ProcessorFile {
    min_pixels: Option<u64>,
    max_pixels: Option<u64>,
    size: Option<SizeField>,
    patch_size: usize,
    merge_size: usize,
    image_mean: [f64; CHANNELS],
    image_std: [f64; CHANNELS],
    rescale_factor: f64,
}

/// Newer files keep the limits here.
#[derive(Deserialize)]
struct SizeField {
    shortest_edge: Option<u64>,
    longest_edge: Option<u64>,
}

impl Default for ProcessorFile {
    /// What transformers assumes of keys that are not there.
    fn default() -> Self {
        Self {
            min_pixels: None,
            max_pixels: None,
            size: None,
            patch_size: 14,
            merge_size: 2,
            image_mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            image_std: [0.268_629_54, 0.261_302_58, 0.275_777_11],
            rescale_factor: 1.0 / 255.0,
        }
    }
}

impl ImageProcessor {
    /// From a checkpoint's folder.
    pub fn read(folder: &Path) -> Result<Self, ImageError> {
        let path = folder.join("preprocessor_config.json");
        let bytes = fs::read(&path).map_err(|error| error.to_string());
        bytes.and_then(|bytes| Self::parse(&bytes)).map_err(|problem| ImageError::File { path, problem })
    }

    /// As the published 7B's file has it: up to 12 845 056 pixels, so that a screen of 1920 x 1080 keeps its size.
    pub fn published() -> Self {
        let limits = PixelLimits { min: 56 * 56, max: 28 * 28 * 16_384 };
        Self { limits, ..Self::from_file(&ProcessorFile::default()).expect("the defaults are legal") }
    }

    /// From the file's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        Self::from_file(&serde_json::from_slice(bytes).map_err(|error| error.to_string())?)
    }

    fn from_file(file: &ProcessorFile) -> Result<Self, String> {
        let &ProcessorFile { patch_size: patch, merge_size: merge, rescale_factor, .. } = file;
        if patch * merge != arpo_agent::geometry::SIDE_FACTOR as usize {
            return Err(format!("patches of {patch} merged by {merge}: expected 28 pixels together"));
        }
        let size = file.size.as_ref();
        let min = file.min_pixels.or(size.and_then(|size| size.shortest_edge)).unwrap_or(56 * 56);
        let max = file.max_pixels.or(size.and_then(|size| size.longest_edge)).unwrap_or(28 * 28 * 1280);
        let level = |channel: usize, grey: usize| {
            ((grey as f64 * rescale_factor - file.image_mean[channel]) / file.image_std[channel]) as f32
        };
        let levels = std::array::from_fn(|channel| std::array::from_fn(|grey| level(channel, grey)));
        Ok(Self { limits: PixelLimits { min, max }, patch, merge, levels: Box::new(levels) })
    }

    /// The size in patches at which an image of this size is seen.
    pub fn grid(&self, width: u32, height: u32) -> Result<Grid, ImageError> {
        let size = smart_resize(Size { width, height }, self.limits)
            .map_err(|error| ImageError::Image(error.to_string()))?;
        Ok(Grid { height: size.height as usize / self.patch, width: size.width as usize / self.patch })
    }

    /// The patches of one image.
    pub fn process(&self, image: &RgbImage) -> Result<Patches, ImageError> {
        let grid = self.grid(image.width(), image.height())?;
        let (width, height) = (grid.width * self.patch, grid.height * self.patch);
        if (image.width() as usize, image.height() as usize) == (width, height) {
            return Ok(Patches { grid, pixels: self.patches(image.as_raw(), grid) });
        }
        // taken, not borrowed: while the resizer waits for its helpers this thread may begin another image
        let mut scratch = SCRATCH.take();
        let patches = resize(image, width as u32, height as u32, &mut scratch)
            .map_err(|error| ImageError::Image(format!("an image that cannot be resized: {error}")))
            .map(|resized| Patches { grid, pixels: self.patches(resized, grid) });
        SCRATCH.set(scratch);
        patches
    }

    /// The patches of several images, each on a core of its own.
    pub fn process_all(&self, images: &[&RgbImage]) -> Result<Vec<Patches>, ImageError> {
        images.par_iter().map(|image| self.process(image)).collect()
    }

    /// Rows of RGB into patches: features from left to right and top to bottom, each feature's patches likewise.
    fn patches(&self, rgb: &[u8], grid: Grid) -> Vec<f32> {
        let (patch, merge) = (self.patch, self.merge);
        let row_bytes = grid.width * patch * CHANNELS;
        let plane = patch * patch;
        // filled in order, so that nothing has to be there before
        let mut pixels = Vec::with_capacity(grid.patches() * CHANNELS * plane);
        for feature_row in 0..grid.height / merge {
            for feature_column in 0..grid.width / merge {
                for (row, column) in (0..merge).flat_map(|row| (0..merge).map(move |column| (row, column))) {
                    let (top, left) =
                        ((feature_row * merge + row) * patch, (feature_column * merge + column) * patch);
                    for (channel, levels) in self.levels.iter().enumerate() {
                        for line in top..top + patch {
                            let start = line * row_bytes + left * CHANNELS;
                            let source = rgb[start..start + patch * CHANNELS].chunks_exact(CHANNELS);
                            pixels.extend(source.map(|colour| levels[colour[channel] as usize]));
                        }
                    }
                }
            }
        }
        pixels
    }
}

/// What a resize needs besides its result; kept for the next one of the same thread, because fresh memory costs as much
/// as the arithmetic.
#[derive(Default)]
struct Scratch {
    resizer: Resizer,
    across: Vec<u8>,
    resized: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

/// Bicubic with a = -0.5, widened for reductions: first across, then down, with whole grey levels between, because
/// overshoot is cut off there too and the order shows at sharp edges.
fn resize<'a>(
    image: &RgbImage,
    width: u32,
    height: u32,
    scratch: &'a mut Scratch,
) -> Result<&'a [u8], Box<dyn std::error::Error>> {
    let options =
        ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom)).use_alpha(false);
    let bytes = |width: u32, height: u32| width as usize * height as usize * CHANNELS;
    let Scratch { resizer, across, resized } = scratch;
    across.resize(bytes(width, image.height()), 0);
    resized.resize(bytes(width, height), 0);
    // typed, or the resizer is compiled for every kind of pixel there is: minutes
    let source = TypedImageRef::<U8x3>::from_buffer(image.width(), image.height(), image.as_raw())?;
    let mut target = TypedImage::<U8x3>::from_buffer(width, image.height(), across)?;
    resizer.resize_typed(&source, &mut target, &options)?;
    let source = TypedImageRef::<U8x3>::from_buffer(width, image.height(), across)?;
    let mut target = TypedImage::<U8x3>::from_buffer(width, height, resized)?;
    resizer.resize_typed(&source, &mut target, &options)?;
    Ok(resized)
}

/// A PNG's pixels.
pub fn decode_png(bytes: &[u8]) -> Result<RgbImage, ImageError> {
    let wrong =
        |error: &dyn std::fmt::Display| ImageError::Image(format!("a screenshot that is no PNG: {error}"));
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(LARGEST_SIDE);
    limits.max_image_height = Some(LARGEST_SIDE);
    let mut reader = image::ImageReader::with_format(std::io::Cursor::new(bytes), ImageFormat::Png);
    reader.limits(limits);
    reader.decode().map(DynamicImage::into_rgb8).map_err(|error| wrong(&error))
}
