//! From screenshots to features, each once: the same picture in several episodes, or again after an eviction, is found
//! by its digest while there is room.

use arpo_image::{ImageError, ImageProcessor};
use arpo_model::model::Model;
use arpo_model::positions::Grid;
use arpo_model::vision::pixels_of;
use image::RgbImage;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tch::Tensor;

/// A screenshot of a request.
#[derive(Debug, Clone)]
pub struct Screenshot {
    /// Names the content: equal pictures have equal digests.
    pub digest: Arc<str>,
    /// The pixels.
    pub image: Arc<RgbImage>,
}

/// Features of pictures that an engine has encoded, for others that use the same vision tower; a clone sees the same.
#[derive(Debug, Clone)]
pub struct KnownFeatures(Arc<Mutex<FeatureStore>>);

impl KnownFeatures {
    pub(crate) fn new(store: FeatureStore) -> Self {
        Self(Arc::new(Mutex::new(store)))
    }

    /// A picture's features `[features, hidden]`, if they are there.
    pub fn get(&self, digest: &str) -> Option<Tensor> {
        self.lock().entries.get(digest).map(|entry| entry.features.shallow_clone())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FeatureStore> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Features of pictures, the latest used kept up to a number of bytes.
#[derive(Debug)]
pub(crate) struct FeatureStore {
    processor: ImageProcessor,
    /// The weights that make them do not change: they outlive other weights, and each is encoded by itself, so that it
    /// does not depend (in its last bits) on when that was and what else was there.
    fixed: bool,
    budget: usize,
    used: usize,
    clock: u64,
    entries: HashMap<Arc<str>, Entry>,
}

#[derive(Debug)]
struct Entry {
    features: Tensor,
    bytes: usize,
    used_at: u64,
}

impl FeatureStore {
    pub(crate) fn new(processor: ImageProcessor, budget: usize, fixed: bool) -> Self {
        Self { processor, fixed, budget, used: 0, clock: 0, entries: HashMap::new() }
    }

    /// A picture's size in patches.
    pub(crate) fn grid(&self, screenshot: &Screenshot) -> Result<Grid, ImageError> {
        self.processor.grid(screenshot.image.width(), screenshot.image.height())
    }

    /// Features of pictures, `[features, hidden]` each, in their order. Those not there are encoded together.
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
        let fresh: HashMap<&str, Tensor> =
            missing.iter().map(|one| &*one.digest).zip(self.encode(model, &missing)?).collect();
        self.clock += 1;
        let mut result = Vec::with_capacity(screenshots.len());
        for one in screenshots {
            result.push(match self.entries.get_mut(&one.digest) {
                Some(entry) => {
                    entry.used_at = self.clock;
                    entry.features.shallow_clone()
                }
                None => fresh[&*one.digest].shallow_clone(),
            });
        }
        for one in missing {
            self.keep(Arc::clone(&one.digest), fresh[&*one.digest].shallow_clone());
        }
        Ok(result)
    }

    /// Forgets all that other weights would make otherwise.
    pub(crate) fn forget(&mut self) {
        if self.fixed {
            return;
        }
        self.entries.clear();
        self.used = 0;
    }

    fn encode(&self, model: &Model, screenshots: &[&Screenshot]) -> Result<Vec<Tensor>, ImageError> {
        if screenshots.is_empty() {
            return Ok(vec![]);
        }
        let images: Vec<&RgbImage> = screenshots.iter().map(|one| &*one.image).collect();
        let pixels = pixels_of(&self.processor, &images, model.device())?;
        let grid = |image: &&RgbImage| self.processor.grid(image.width(), image.height());
        let grids: Vec<Grid> = images.iter().map(grid).collect::<Result<_, _>>()?;
        if self.fixed {
            let alone = pixels.iter().zip(&grids);
            return Ok(alone.map(|(pixels, &grid)| model.vision().forward(pixels, &[grid])).collect());
        }
        let features = model.vision().forward(&Tensor::cat(&pixels, 0), &grids);
        let merge = model.config().vision.merge as usize;
        let sizes: Vec<i64> = grids.iter().map(|grid| grid.features(merge) as i64).collect();
        // copies: a piece would keep the whole in memory
        Ok(features.split_with_sizes(&sizes, 0).iter().map(Tensor::copy).collect())
    }

    fn keep(&mut self, digest: Arc<str>, features: Tensor) {
        let bytes = features.numel() * features.kind().elt_size_in_bytes();
        if bytes > self.budget {
            return;
        }
        while self.used + bytes > self.budget {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used_at);
            let Some(oldest) = oldest.map(|(digest, _)| Arc::clone(digest)) else { break };
            self.used -= self.entries.remove(&oldest).map_or(0, |entry| entry.bytes);
        }
        self.used += bytes;
        self.entries.insert(digest, Entry { features, bytes, used_at: self.clock });
    }
}
