//! From a screenshot to patches, as transformers' Qwen2-VL image processor makes them: bicubic resize with
//! antialiasing to multiples of 28 pixels, rescaling, normalisation, patches of a feature together.
//!
//! A patch holds one frame: `[channels, height, width]`. The model adds up the weights of its two equal frames, so the
//! second copy is never made. It holds grey levels, a byte each: what they become when rescaled and normalised is looked up
//! or computed where the model runs, so that a quarter is written, kept and sent to a GPU.
//! No tensor is needed for it, so this is a crate of its own.

mod axis;
mod blend;
mod enlarge;
mod levels;
mod patches;
mod reduce;

use arpo_agent::geometry::{PixelLimits, Size, smart_resize};
use image::{DynamicImage, ImageFormat, RgbImage};
use rayon::prelude::*;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use levels::{GREYS, Levels, Place};

/// Red, green, blue.
pub const CHANNELS: usize = 3;

/// Pixels of a patch's side, and patches of a feature's: those of every Qwen2.5-VL.
const PATCH: usize = 14;
const MERGE: usize = 2;

/// Pixels of a patch.
const PLANE: usize = PATCH * PATCH;

/// Grey levels of a patch, or the numbers that stand for them.
pub const PATCH_LEVELS: usize = CHANNELS * PLANE;

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
    levels: Arc<Levels>,
}

/// The patches of one image.
#[derive(Debug, Clone, PartialEq)]
pub struct Patches {
    /// Its size in patches.
    pub grid: Grid,
    /// `[patches, channels * patch * patch]`.
    pub greys: Vec<u8>,
    /// The numbers that stand for them.
    pub levels: Arc<Levels>,
}

impl Patches {
    /// Writes the numbers that stand for them, a place each. All threads there are take part.
    pub fn write_numbers<P: Place>(&self, places: &mut [P]) {
        assert_eq!(places.len(), self.greys.len(), "a place for each grey level");
        assert_eq!(places.len() % PATCH_LEVELS, 0, "patches are whole");
        let threads = rayon::current_num_threads();
        if threads == 1 {
            // here and now: the one thread may be another than this
            return self.levels.write(&self.greys, places);
        }
        let of_part = self.grid.patches().div_ceil(threads) * PATCH_LEVELS;
        let parts = self.greys.par_chunks(of_part).zip(places.par_chunks_mut(of_part));
        parts.for_each(|(greys, places)| self.levels.write(greys, places));
    }
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
        let (patch, merge) = (file.patch_size, file.merge_size);
        if (patch, merge) != (PATCH, MERGE) {
            return Err(format!(
                "patches of {patch} pixels merged by {merge}: expected {PATCH} and {MERGE}, as Qwen2.5-VL has them"
            ));
        }
        let size = file.size.as_ref();
        let min = file.min_pixels.or(size.and_then(|size| size.shortest_edge)).unwrap_or(56 * 56);
        let max = file.max_pixels.or(size.and_then(|size| size.longest_edge)).unwrap_or(28 * 28 * 1280);
        if !file.image_std.iter().all(|&deviation| deviation > 0.0) {
            return Err(format!("image_std of {:?}: expected numbers above 0", file.image_std));
        }
        let levels = Levels::new(file.rescale_factor, &file.image_mean, &file.image_std);
        Ok(Self { limits: PixelLimits { min, max }, levels: Arc::new(levels) })
    }

    /// The size in patches at which an image of this size is seen.
    pub fn grid(&self, width: u32, height: u32) -> Result<Grid, ImageError> {
        let size = smart_resize(Size { width, height }, self.limits)
            .map_err(|error| ImageError::Image(error.to_string()))?;
        Ok(Grid { height: size.height as usize / PATCH, width: size.width as usize / PATCH })
    }

    /// The patches of one image, made by all threads there are.
    pub fn process(&self, image: &RgbImage) -> Result<Patches, ImageError> {
        self.process_in_parts(image, rayon::current_num_threads())
    }

    /// The patches of several images, each on a core of its own, or on several if there are more cores than images.
    pub fn process_all(&self, images: &[&RgbImage]) -> Result<Vec<Patches>, ImageError> {
        let parts = rayon::current_num_threads().div_ceil(images.len().max(1));
        images.par_iter().map(|image| self.process_in_parts(image, parts)).collect()
    }

    /// The numbers of several images' patches, one image behind the other and a place each, without keeping their grey
    /// levels. Images are shared out as for [`Self::process_all`].
    pub fn write_numbers<P: Place>(&self, images: &[&RgbImage], places: &mut [P]) -> Result<(), ImageError> {
        let parts = rayon::current_num_threads().div_ceil(images.len().max(1));
        let mut rest = places;
        let mut of_images = Vec::with_capacity(images.len());
        for &image in images {
            let grid = self.grid(image.width(), image.height())?;
            let (places, behind) = rest.split_at_mut(grid.patches() * PATCH_LEVELS);
            of_images.push((image, grid, patches::Numbers { levels: &self.levels, places }));
            rest = behind;
        }
        assert!(rest.is_empty(), "a place for each grey level, and no more");
        of_images.into_par_iter().try_for_each(|(image, grid, to)| make_patches(image, grid, parts, to))
    }

    fn process_in_parts(&self, image: &RgbImage, parts: usize) -> Result<Patches, ImageError> {
        let grid = self.grid(image.width(), image.height())?;
        let mut greys = vec![];
        make_patches(image, grid, parts, &mut greys)?;
        Ok(Patches { grid, greys, levels: Arc::clone(&self.levels) })
    }
}

/// The patches of an image, resized where it has to be, made in so many parts at once.
fn make_patches(
    image: &RgbImage,
    grid: Grid,
    parts: usize,
    destination: impl patches::Destination,
) -> Result<(), ImageError> {
    let from = (image.width() as usize, image.height() as usize);
    let to = (grid.width * PATCH, grid.height * PATCH);
    if from == to {
        patches::of_rows(image.as_raw(), grid, parts, destination);
    } else if enlarge::can(from, to) {
        patches::of_enlarged(image.as_raw(), from, grid, parts, destination);
    } else {
        reduce::resized(image, to, |rgb| patches::of_rows(rgb, grid, parts, destination))
            .map_err(|error| ImageError::Image(format!("an image that cannot be resized: {error}")))?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::ImageProcessor;
    use image::{Rgb, RgbImage};
    use rayon::ThreadPoolBuilder;

    #[test]
    fn any_number_of_threads_makes_the_same_patches_and_numbers() {
        let processor = ImageProcessor::published();
        // one gets larger, one keeps its size and one gets smaller
        let images = [(300, 215), (112, 140), (117, 150)].map(|(width, height)| {
            RgbImage::from_fn(width, height, |x, y| Rgb([(x * y) as u8, (7 * x + y) as u8, (x ^ y) as u8]))
        });
        let made_by = |threads: usize| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads can be had");
            pool.install(|| {
                let one_by_one: Vec<_> =
                    images.iter().map(|image| processor.process(image).expect("a legal size")).collect();
                let together = processor.process_all(&images.each_ref()).expect("legal sizes");
                assert!(one_by_one == together, "{threads} threads");
                let mut numbers =
                    one_by_one.iter().map(|one| vec![0.0f32; one.greys.len()]).collect::<Vec<_>>();
                for (patches, numbers) in one_by_one.iter().zip(&mut numbers) {
                    patches.write_numbers(numbers);
                }
                let mut at_once = vec![0.0f32; numbers.iter().map(Vec::len).sum()];
                processor.write_numbers(&images.each_ref(), &mut at_once).expect("legal sizes");
                assert!(at_once == numbers.concat(), "{threads} threads");
                (one_by_one, numbers)
            })
        };
        let alone = made_by(1);
        for threads in [2, 3, 5, 16] {
            assert!(made_by(threads) == alone, "{threads} threads");
        }
    }

    #[test]
    fn files_for_other_models_are_refused() {
        for (file, problem) in [
            (
                r#"{"patch_size": 16}"#,
                "patches of 16 pixels merged by 2: expected 14 and 2, as Qwen2.5-VL has them",
            ),
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
