//! The screens of a batch of episodes as the learner takes them, each once, however many episodes show it.

use crate::TrainError;
use arpo_image::{Grid, ImageProcessor, Patches};
use arpo_model::learner::{Content, Picture};
use arpo_model::vision::pixels;
use image::RgbImage;
use std::collections::HashMap;
use std::sync::Arc;
use tch::{Device, Tensor};

/// Screens as patches, or as features that are known already.
#[derive(Debug)]
pub(crate) struct Pictures {
    /// The patches of all that are not known.
    patches: Vec<Patches>,
    /// Of every picture its size, and its features if they are known.
    distinct: Vec<(Grid, Option<Tensor>)>,
    shown: Vec<Vec<usize>>,
}

impl Pictures {
    /// From the screens of each episode, in order.
    pub(crate) fn new(
        processor: &ImageProcessor,
        episodes: &[impl AsRef<[Arc<RgbImage>]>],
    ) -> Result<Self, TrainError> {
        Self::with_known(processor, episodes, |_, _| None)
    }

    /// The same, if features of some are known: by the episode and its screen.
    pub(crate) fn with_known(
        processor: &ImageProcessor,
        episodes: &[impl AsRef<[Arc<RgbImage>]>],
        known: impl Fn(usize, usize) -> Option<Tensor>,
    ) -> Result<Self, TrainError> {
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let (mut distinct, mut unknown) = (vec![], vec![]);
        let mut shown = Vec::with_capacity(episodes.len());
        for (episode, screens) in episodes.iter().enumerate() {
            let mut places_shown = vec![];
            for (number, screen) in screens.as_ref().iter().enumerate() {
                if let Some(&place) = places.get(screen.as_raw().as_slice()) {
                    places_shown.push(place);
                    continue;
                }
                let features = known(episode, number);
                if features.is_none() {
                    unknown.push(screen.as_ref());
                }
                let grid = processor.grid(screen.width(), screen.height())?;
                places.insert(screen.as_raw(), distinct.len());
                places_shown.push(distinct.len());
                distinct.push((grid, features));
            }
            shown.push(places_shown);
        }
        let patches = processor.process_all(&unknown)?;
        Ok(Self { patches, distinct, shown })
    }

    /// Which pictures an episode shows.
    pub(crate) fn shown(&self, episode: usize) -> &[usize] {
        &self.shown[episode]
    }

    /// The pictures on a device.
    pub(crate) fn on(&self, device: Device) -> Vec<Picture> {
        let mut unknown = pixels(&self.patches, device).into_iter();
        let picture = |(grid, features): &(Grid, Option<Tensor>)| {
            let content = match features {
                Some(features) => Content::Features(features.to_device(device)),
                None => Content::Pixels(unknown.next()?),
            };
            Some(Picture { content, grid: *grid })
        };
        self.distinct.iter().filter_map(picture).collect()
    }
}
