//! From screenshots to image features, with a cache: the same image in several episodes, or after its pages were
//! evicted, is encoded once.

use arpo_image::{ImageError, ImageProcessor};
use arpo_model::model::Model;
use arpo_model::positions::Grid;
use arpo_model::vision::pixels_of;
use image::RgbImage;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tch::Tensor;

/// A screenshot of a request.
#[derive(Debug, Clone)]
pub struct Screenshot {
    /// Identifies the content: equal images have equal digests.
    pub digest: Arc<str>,
    source: Arc<dyn ImageSource>,
}

/// Where the pixels of a screenshot are. An episode shows its earlier screenshots in every request, and the engine needs
/// their pixels again only if their features were evicted: whoever keeps them encoded need not decode them for each.
pub trait ImageSource: Debug + Send + Sync {
    /// Width and height.
    fn size(&self) -> (u32, u32);

    /// The pixels, decoded if need be.
    fn image(&self) -> Result<Arc<RgbImage>, ImageError>;
}

/// Pixels in memory.
#[derive(Debug)]
struct Decoded(Arc<RgbImage>);

impl ImageSource for Decoded {
    fn size(&self) -> (u32, u32) {
        self.0.dimensions()
    }

    fn image(&self) -> Result<Arc<RgbImage>, ImageError> {
        Ok(Arc::clone(&self.0))
    }
}

impl Screenshot {
    /// One whose pixels are in memory.
    pub fn new(digest: impl Into<Arc<str>>, image: Arc<RgbImage>) -> Self {
        Self::from_source(digest, Arc::new(Decoded(image)))
    }

    /// One whose pixels are fetched when they are needed.
    pub fn from_source(digest: impl Into<Arc<str>>, source: Arc<dyn ImageSource>) -> Self {
        Self { digest: digest.into(), source }
    }

    /// Width and height.
    pub fn size(&self) -> (u32, u32) {
        self.source.size()
    }

    /// The pixels.
    pub fn image(&self) -> Result<Arc<RgbImage>, ImageError> {
        self.source.image()
    }
}

/// Image features that an engine has encoded, for other users of the same vision tower; clones share the cache.
#[derive(Debug, Clone)]
pub struct FeatureCache(Arc<Mutex<FeatureStore>>);

impl FeatureCache {
    pub(crate) fn new(store: FeatureStore) -> Self {
        Self(Arc::new(Mutex::new(store)))
    }

    /// An image's features `[features, levels * hidden]`, if they are cached.
    pub fn get(&self, digest: &str) -> Option<Tensor> {
        self.lock().entries.get(digest).map(|entry| entry.features.shallow_clone())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FeatureStore> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An LRU cache of image features, limited in bytes.
#[derive(Debug)]
pub(crate) struct FeatureStore {
    processor: ImageProcessor,
    /// The vision tower is frozen: features stay valid across weight updates, and each image is encoded separately, so
    /// that its last bits do not depend on what it was batched with.
    frozen: bool,
    budget: usize,
    used: usize,
    clock: u64,
    entries: HashMap<Arc<str>, Entry>,
}

#[derive(Debug)]
struct Entry {
    features: Tensor,
    bytes: usize,
    last_used: u64,
}

impl FeatureStore {
    pub(crate) fn new(processor: ImageProcessor, budget: usize, frozen: bool) -> Self {
        Self { processor, frozen, budget, used: 0, clock: 0, entries: HashMap::new() }
    }

    /// An image's size in patches.
    pub(crate) fn grid(&self, screenshot: &Screenshot) -> Result<Grid, ImageError> {
        let (width, height) = screenshot.size();
        self.processor.grid(width, height)
    }

    /// Features of images, `[features, levels * hidden]` each, in their order. Missing ones are encoded as one batch.
    pub(crate) fn features(
        &mut self,
        model: &Model,
        screenshots: &[&Screenshot],
    ) -> Result<Vec<Tensor>, ImageError> {
        let mut seen = HashSet::new();
        let missing: Vec<&Screenshot> = screenshots
            .iter()
            .copied()
            .filter(|one| !self.entries.contains_key(&one.digest) && seen.insert(&one.digest))
            .collect();
        let encoded: HashMap<&str, Tensor> =
            missing.iter().map(|one| &*one.digest).zip(self.encode(model, &missing)?).collect();
        self.clock += 1;
        let mut result = Vec::with_capacity(screenshots.len());
        for one in screenshots {
            result.push(match self.entries.get_mut(&one.digest) {
                Some(entry) => {
                    entry.last_used = self.clock;
                    entry.features.shallow_clone()
                }
                None => encoded[&*one.digest].shallow_clone(),
            });
        }
        for one in missing {
            self.insert(Arc::clone(&one.digest), encoded[&*one.digest].shallow_clone());
        }
        Ok(result)
    }

    /// Clears the cache after a weight update, unless the vision tower is frozen.
    pub(crate) fn invalidate(&mut self) {
        if self.frozen {
            return;
        }
        self.entries.clear();
        self.used = 0;
    }

    fn encode(&self, model: &Model, screenshots: &[&Screenshot]) -> Result<Vec<Tensor>, ImageError> {
        if screenshots.is_empty() {
            return Ok(vec![]);
        }
        let images = screenshots.par_iter().map(|one| one.image()).collect::<Result<Vec<_>, _>>()?;
        let images: Vec<&RgbImage> = images.iter().map(AsRef::as_ref).collect();
        let pixels = pixels_of(&self.processor, &images, model.device())?;
        let grid = |image: &&RgbImage| self.processor.grid(image.width(), image.height());
        let grids: Vec<Grid> = images.iter().map(grid).collect::<Result<_, _>>()?;
        if self.frozen {
            let alone = pixels.iter().zip(&grids);
            return Ok(alone.map(|(pixels, &grid)| model.vision().forward(pixels, &[grid])).collect());
        }
        let features = model.vision().forward(&Tensor::cat(&pixels, 0), &grids);
        let merge = model.config().vision.merge as usize;
        let sizes: Vec<i64> = grids.iter().map(|grid| grid.features(merge) as i64).collect();
        // copies: a view would keep the whole batch in memory
        Ok(features.split_with_sizes(&sizes, 0).iter().map(Tensor::copy).collect())
    }

    fn insert(&mut self, digest: Arc<str>, features: Tensor) {
        let bytes = features.numel() * features.kind().elt_size_in_bytes();
        if bytes > self.budget {
            return;
        }
        while self.used + bytes > self.budget {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_used);
            let Some(oldest) = oldest.map(|(digest, _)| Arc::clone(digest)) else { break };
            self.used -= self.entries.remove(&oldest).map_or(0, |entry| entry.bytes);
        }
        self.used += bytes;
        self.entries.insert(digest, Entry { features, bytes, last_used: self.clock });
    }
}
