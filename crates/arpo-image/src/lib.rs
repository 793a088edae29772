//! From a screenshot to patches, as transformers' Qwen-VL image processors make them: bicubic resize with antialiasing
//! to a whole number of image tokens, rescaling, normalisation, with the patches of a token together.
//!
//! A patch holds one frame: `[channels, height, width]`. The model adds the weights of its two equal frames, so the
//! second copy is never made. For GPUs, patches stay pixel bytes, which the GPU normalises itself: a quarter of the
//! memory and of the transfer. None of this needs tensors, so it is a crate of its own.

mod normalise;
mod patches;
mod resize;

use arpo_agent::geometry::{PixelLimits, Size, smart_resize};
use image::{DynamicImage, ImageFormat, RgbImage};
use rayon::prelude::*;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use normalise::{BYTE_VALUES, Normalisation};

/// Red, green, blue.
pub const CHANNELS: usize = 3;

/// Larger images are not decoded: no screen is that large, and a small file may claim any size.
const LARGEST_SIDE: u32 = 16_384;

/// An image or a preprocessor file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file is missing or invalid.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// An image that cannot be processed.
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
    /// Number of patches.
    pub fn patches(&self) -> usize {
        self.height * self.width
    }

    /// Number of features, each of `merge` x `merge` patches.
    pub fn features(&self, merge: usize) -> usize {
        self.patches() / (merge * merge)
    }
}

/// How an image is split into patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchSize {
    /// Pixels of a patch's side.
    pub patch: usize,
    /// Patches of an image token's side.
    pub merge: usize,
}

impl PatchSize {
    /// Values per patch.
    pub fn values(self) -> usize {
        CHANNELS * self.patch * self.patch
    }

    /// Sides of a resized image are multiples of this.
    pub fn side_factor(self) -> u32 {
        (self.patch * self.merge) as u32
    }
}

/// How images are processed, from `preprocessor_config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageProcessor {
    /// Limits for the pixels of a resized image.
    pub limits: PixelLimits,
    size: PatchSize,
    normalisation: Arc<Normalisation>,
}

/// The patches of one image.
#[derive(Debug, Clone, PartialEq)]
pub struct Patches {
    /// Its size in patches.
    pub grid: Grid,
    /// Pixel bytes: `[patches, channels * patch * patch]`.
    pub bytes: Vec<u8>,
    /// How they are normalised.
    pub normalisation: Arc<Normalisation>,
}

impl Patches {
    /// The vision tower's input values: `[patches, channels * patch * patch]`. Runs on all threads.
    pub fn normalised(&self) -> Vec<f32> {
        let patch_bytes = self.bytes.len() / self.grid.patches().max(1);
        let plane = (patch_bytes / CHANNELS).max(1);
        let mut values = vec![0.0; self.bytes.len()];
        let planes = values.par_chunks_mut(plane).zip(self.bytes.par_chunks(plane)).enumerate();
        planes.for_each(|(number, (values, bytes))| {
            for (value, &byte) in values.iter_mut().zip(bytes) {
                *value = self.normalisation.of(number % CHANNELS, byte);
            }
        });
        values
    }
}

/// The fields of the file that affect the result.
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
    /// The defaults of transformers for missing keys.
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

    /// The published 7B's settings: up to 12 845 056 pixels, so that a screen of 1920 x 1080 is not scaled down.
    pub fn published() -> Self {
        let limits = PixelLimits { min: 56 * 56, max: 28 * 28 * 16_384 };
        Self { limits, ..Self::from_file(&ProcessorFile::default()).expect("the defaults are legal") }
    }

    /// From the file's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        Self::from_file(&serde_json::from_slice(bytes).map_err(|error| error.to_string())?)
    }

    fn from_file(file: &ProcessorFile) -> Result<Self, String> {
        let size = PatchSize { patch: file.patch_size, merge: file.merge_size };
        if !(1..=64).contains(&size.patch) || !(1..=8).contains(&size.merge) {
            return Err(format!(
                "patches of {} pixels merged by {}: expected 1 to 64 and 1 to 8",
                size.patch, size.merge
            ));
        }
        let edges = file.size.as_ref();
        let min = file.min_pixels.or(edges.and_then(|size| size.shortest_edge)).unwrap_or(56 * 56);
        let max = file.max_pixels.or(edges.and_then(|size| size.longest_edge)).unwrap_or(28 * 28 * 1280);
        if !file.image_std.iter().all(|&deviation| deviation > 0.0) {
            return Err(format!("image_std of {:?}: expected numbers above 0", file.image_std));
        }
        let normalisation = Normalisation::new(file.rescale_factor, &file.image_mean, &file.image_std);
        Ok(Self { limits: PixelLimits { min, max }, size, normalisation: Arc::new(normalisation) })
    }

    /// How images are split into patches.
    pub fn patch_size(&self) -> PatchSize {
        self.size
    }

    /// The size in pixels that an image of this size is resized to.
    pub fn resized_size(&self, size: Size) -> Result<Size, ImageError> {
        smart_resize(size, self.size.side_factor(), self.limits)
            .map_err(|error| ImageError::Image(error.to_string()))
    }

    /// The size in patches of an image of this size, after resizing.
    pub fn grid(&self, width: u32, height: u32) -> Result<Grid, ImageError> {
        let size = self.resized_size(Size { width, height })?;
        let PatchSize { patch, .. } = self.size;
        Ok(Grid { height: size.height as usize / patch, width: size.width as usize / patch })
    }

    /// The patches of one image.
    pub fn process(&self, image: &RgbImage) -> Result<Patches, ImageError> {
        let grid = self.grid(image.width(), image.height())?;
        let bytes = self.patches(image, grid, |_, byte| byte)?;
        Ok(Patches { grid, bytes, normalisation: Arc::clone(&self.normalisation) })
    }

    /// The patches of several images.
    pub fn process_all(&self, images: &[&RgbImage]) -> Result<Vec<Patches>, ImageError> {
        images.par_iter().map(|image| self.process(image)).collect()
    }

    /// The vision tower's input values of several images, without keeping their bytes.
    pub fn normalised(&self, images: &[&RgbImage]) -> Result<Vec<Vec<f32>>, ImageError> {
        let one = |image: &&RgbImage| {
            let grid = self.grid(image.width(), image.height())?;
            self.patches(image, grid, |channel, byte| self.normalisation.of(channel, byte))
        };
        images.par_iter().map(one).collect()
    }

    /// The patches of an image, resized if necessary.
    fn patches<T: Copy + Default + Send>(
        &self,
        image: &RgbImage,
        grid: Grid,
        value: impl Fn(usize, u8) -> T + Sync,
    ) -> Result<Vec<T>, ImageError> {
        let from = (image.width() as usize, image.height() as usize);
        let to = (grid.width * self.size.patch, grid.height * self.size.patch);
        if from == to {
            return Ok(patches::patches(image.as_raw(), grid, self.size, value));
        }
        resize::resized(image, to, |rgb| patches::patches(rgb, grid, self.size, value))
            .map_err(|error| ImageError::Image(format!("an image that cannot be resized: {error}")))
    }
}

/// A PNG's pixels.
pub fn decode_png(bytes: &[u8]) -> Result<RgbImage, ImageError> {
    let wrong =
        |error: &dyn std::fmt::Display| ImageError::Image(format!("a screenshot that is not a PNG: {error}"));
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(LARGEST_SIDE);
    limits.max_image_height = Some(LARGEST_SIDE);
    let mut reader = image::ImageReader::with_format(std::io::Cursor::new(bytes), ImageFormat::Png);
    reader.limits(limits);
    reader.decode().map(DynamicImage::into_rgb8).map_err(|error| wrong(&error))
}

/// Width and height of a PNG or JPEG of at most `max_pixels` pixels, from its header.
pub fn dimensions(bytes: &[u8], max_pixels: u64) -> Result<(u32, u32), ImageError> {
    let size = reader(bytes)?.into_dimensions();
    let (width, height) = size.map_err(|error| ImageError::Image(error.to_string()))?;
    let pixels = u64::from(width) * u64::from(height);
    if pixels > max_pixels || width.max(height) > LARGEST_SIDE {
        return Err(ImageError::Image(format!(
            "{width}x{height} is too large: expected at most {max_pixels} pixels and {LARGEST_SIDE} a side"
        )));
    }
    Ok((width, height))
}

/// The pixels of a PNG or JPEG of at most `max_pixels` pixels; the size is checked before anything is decoded.
pub fn decode(bytes: &[u8], max_pixels: u64) -> Result<RgbImage, ImageError> {
    dimensions(bytes, max_pixels)?;
    let decoded = reader(bytes)?.decode().map(DynamicImage::into_rgb8);
    decoded.map_err(|error| ImageError::Image(error.to_string()))
}

fn reader(bytes: &[u8]) -> Result<image::ImageReader<std::io::Cursor<&[u8]>>, ImageError> {
    match image::guess_format(bytes) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg)) => {
            Ok(image::ImageReader::with_format(std::io::Cursor::new(bytes), format))
        }
        _ => Err(ImageError::Image("neither a PNG nor a JPEG".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::{Grid, ImageProcessor, PatchSize, Patches, PixelLimits, Size};
    use image::{Rgb, RgbImage};
    use rayon::ThreadPoolBuilder;

    #[test]
    fn the_number_of_threads_does_not_change_the_result() {
        let processor = ImageProcessor::published();
        // one is enlarged, one keeps its size and one is reduced
        let images = [(300, 215), (112, 140), (117, 150)].map(|(width, height)| {
            RgbImage::from_fn(width, height, |x, y| Rgb([(x * y) as u8, (7 * x + y) as u8, (x ^ y) as u8]))
        });
        let made_by = |threads: usize| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads can be started");
            pool.install(|| {
                let one_by_one: Vec<_> =
                    images.iter().map(|image| processor.process(image).expect("a legal size")).collect();
                let together = processor.process_all(&images.each_ref()).expect("legal sizes");
                assert!(one_by_one == together, "{threads} threads");
                let values: Vec<_> = together.iter().map(Patches::normalised).collect();
                let at_once = processor.normalised(&images.each_ref()).expect("legal sizes");
                assert!(at_once == values, "{threads} threads");
                (together, values)
            })
        };
        let alone = made_by(1);
        for threads in [2, 3, 5, 16] {
            assert!(made_by(threads) == alone, "{threads} threads");
        }
    }

    /// As published with Qwen3-VL: everything is as the file says, the limits under their newer name.
    #[test]
    fn the_file_of_qwen3_vl() {
        let file = r#"{"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "temporal_patch_size": 2,
            "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
            "processor_class": "Qwen3VLProcessor", "image_processor_type": "Qwen2VLImageProcessorFast"}"#;
        let processor = ImageProcessor::parse(file.as_bytes()).unwrap();
        assert_eq!(processor.limits, PixelLimits { min: 65_536, max: 16_777_216 });
        assert_eq!(processor.patch_size(), PatchSize { patch: 16, merge: 2 });
        // 60 x 34 features
        assert_eq!(processor.grid(1920, 1080).unwrap(), Grid { height: 68, width: 120 });
        let small = processor.resized_size(Size { width: 100, height: 60 }).unwrap();
        assert!(u64::from(small.width) * u64::from(small.height) >= 65_536);
        // black and white are -1 and 1
        let image = RgbImage::from_fn(256, 256, |x, _| Rgb([if x < 128 { 0 } else { 255 }; 3]));
        let values = processor.process(&image).unwrap().normalised();
        assert!(values.iter().all(|value| (value.abs() - 1.0).abs() < 1e-6));
    }

    #[test]
    fn invalid_files_are_rejected() {
        for (file, problem) in [
            (r#"{"patch_size": 0}"#, "patches of 0 pixels merged by 2: expected 1 to 64 and 1 to 8"),
            (r#"{"image_std": [0.3, 0, 0.3]}"#, "image_std of [0.3, 0.0, 0.3]: expected numbers above 0"),
            (
                r#"{"image_std": [0.3]}"#,
                "invalid length 1, expected an array of length 3 at line 1 column 19",
            ),
        ] {
            assert_eq!(ImageProcessor::parse(file.as_bytes()).unwrap_err(), problem);
        }
        assert!(ImageProcessor::parse(b"{}").is_ok());
    }
}
