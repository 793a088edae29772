//! The screens of a batch of episodes as the learner takes them, each once, however many episodes show it.

use crate::TrainError;
use arpo_image::{Grid, ImageProcessor};
use arpo_model::learner::Picture;
use image::RgbImage;
use std::collections::HashMap;
use std::sync::Arc;
use tch::{Device, Tensor};

/// Screens as patches.
#[derive(Debug)]
pub(crate) struct Pictures {
    /// The patches of all, one picture behind the other: they go to the GPU in one piece.
    pixels: Option<Tensor>,
    grids: Vec<Grid>,
    shown: Vec<Vec<usize>>,
}

impl Pictures {
    /// From the screens of each episode, in order.
    pub(crate) fn new(
        processor: &ImageProcessor,
        episodes: &[impl AsRef<[Arc<RgbImage>]>],
    ) -> Result<Self, TrainError> {
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut distinct: Vec<&RgbImage> = vec![];
        let mut shown = Vec::with_capacity(episodes.len());
        for screens in episodes {
            let mut place = |screen| {
                *places.entry(RgbImage::as_raw(screen)).or_insert_with(|| {
                    distinct.push(screen);
                    distinct.len() - 1
                })
            };
            shown.push(screens.as_ref().iter().map(|screen| place(screen)).collect());
        }
        let patches = processor.process_all(&distinct)?;
        let pixels: Vec<Tensor> = patches.iter().map(|one| Tensor::from_slice(&one.pixels)).collect();
        let grids: Vec<Grid> = patches.iter().map(|one| one.grid).collect();
        let count: usize = grids.iter().map(Grid::patches).sum();
        let pixels = (count > 0).then(|| Tensor::cat(&pixels, 0).view([count as i64, -1]));
        Ok(Self { pixels, grids, shown })
    }

    /// Which pictures an episode shows.
    pub(crate) fn shown(&self, episode: usize) -> &[usize] {
        &self.shown[episode]
    }

    /// The pictures on a device.
    pub(crate) fn on(&self, device: Device) -> Vec<Picture> {
        let Some(pixels) = &self.pixels else { return vec![] };
        let sizes: Vec<i64> = self.grids.iter().map(|grid| grid.patches() as i64).collect();
        let parts = pixels.to_device(device).split_with_sizes(&sizes, 0);
        parts.into_iter().zip(&self.grids).map(|(pixels, &grid)| Picture { pixels, grid }).collect()
    }
}
