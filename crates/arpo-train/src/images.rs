//! The screens of a batch of episodes as input of the learner, each once, however many episodes show it.

use crate::TrainError;
use arpo_image::{Grid, ImageProcessor, Patches};
use arpo_model::training::{ImageContent, ImageInput};
use arpo_model::vision::pixels;
use image::RgbImage;
use std::collections::HashMap;
use std::sync::Arc;
use tch::{Device, Tensor};

/// Screens as patches, or as features that are already known.
#[derive(Debug)]
pub(crate) struct BatchImages {
    /// The patches of the images without known features.
    patches: Vec<Patches>,
    /// The size of every image, and its features if they are known.
    distinct: Vec<(Grid, Option<Tensor>)>,
    shown: Vec<Vec<usize>>,
}

impl BatchImages {
    /// From the screens of each episode, in order.
    pub(crate) fn new(
        processor: &ImageProcessor,
        episodes: &[impl AsRef<[Arc<RgbImage>]>],
    ) -> Result<Self, TrainError> {
        Self::with_known(processor, episodes, |_, _| None)
    }

    /// The same with known features: `known` gets the indices of the episode and of its screen.
    pub(crate) fn with_known(
        processor: &ImageProcessor,
        episodes: &[impl AsRef<[Arc<RgbImage>]>],
        known: impl Fn(usize, usize) -> Option<Tensor>,
    ) -> Result<Self, TrainError> {
        let mut index_of: HashMap<&[u8], usize> = HashMap::new();
        let (mut distinct, mut unknown) = (vec![], vec![]);
        let mut shown = Vec::with_capacity(episodes.len());
        for (episode, screens) in episodes.iter().enumerate() {
            let mut indices = vec![];
            for (number, screen) in screens.as_ref().iter().enumerate() {
                if let Some(&index) = index_of.get(screen.as_raw().as_slice()) {
                    indices.push(index);
                    continue;
                }
                let features = known(episode, number);
                if features.is_none() {
                    unknown.push(screen.as_ref());
                }
                let grid = processor.grid(screen.width(), screen.height())?;
                index_of.insert(screen.as_raw(), distinct.len());
                indices.push(distinct.len());
                distinct.push((grid, features));
            }
            shown.push(indices);
        }
        let patches = processor.process_all(&unknown)?;
        Ok(Self { patches, distinct, shown })
    }

    /// Indices of the images that an episode shows.
    pub(crate) fn shown(&self, episode: usize) -> &[usize] {
        &self.shown[episode]
    }

    /// The images on a device.
    pub(crate) fn on(&self, device: Device) -> Vec<ImageInput> {
        let mut unknown = pixels(&self.patches, device).into_iter();
        let input = |(grid, features): &(Grid, Option<Tensor>)| {
            let content = match features {
                Some(features) => ImageContent::Features(features.to_device(device)),
                None => ImageContent::Pixels(unknown.next()?),
            };
            Some(ImageInput { content, grid: *grid })
        };
        self.distinct.iter().filter_map(input).collect()
    }
}
