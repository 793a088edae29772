//! Trajectories laid out for the learner: whole episodes in micro-batches of a budget of tokens, their screens found
//! again.

use crate::TrainError;
use crate::pictures::Pictures;
use crate::screens::Screens;
use arpo_core::trajectory::Trajectory;
use arpo_engine::KnownFeatures;
use arpo_image::ImageProcessor;
use arpo_model::learner::{Episode, Learner, MicroBatch, Picture};
use image::RgbImage;
use std::sync::Arc;
use tch::Device;

/// What is needed to lay trajectories out.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// Their screenshots.
    pub screens: &'a Screens,
    /// How a screenshot becomes patches.
    pub processor: &'a ImageProcessor,
    /// What is known of them from a vision tower that is not trained.
    pub features: Option<&'a KnownFeatures>,
    /// Tokens of a micro-batch, unless a single unit has more.
    pub micro_batch_tokens: usize,
    /// Screenshots that are in a trajectory's tokens at most: the latest.
    pub max_screenshots: usize,
}

impl Layout<'_> {
    /// Log-probabilities of the trained tokens of each trajectory.
    pub fn scores(
        &self,
        learner: &Learner,
        trajectories: &[&Trajectory],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut logps = vec![vec![]; trajectories.len()];
        let alone: Vec<Vec<usize>> = (0..trajectories.len()).map(|at| vec![at]).collect();
        self.with_batches(learner.model().device(), trajectories, &alone, |parts, batches| {
            for (part, batch) in parts.iter().zip(batches) {
                for (&at, logp) in part.iter().zip(learner.scores(batch)?.logp) {
                    logps[at] = logp;
                }
            }
            Ok(())
        })?;
        Ok(logps)
    }

    /// Lays trajectories out in micro-batches: units, whose members stay together, shorter ones first, as many together
    /// as the budget of tokens takes. `then` is given which trajectories are in each micro-batch, and the micro-batches.
    pub fn with_batches<T>(
        &self,
        device: Device,
        trajectories: &[&Trajectory],
        units: &[Vec<usize>],
        then: impl FnOnce(&[Vec<usize>], &[MicroBatch]) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let parts = self.parts(trajectories, units);
        let rooms = parts
            .iter()
            .map(|part| Room::new(self, part.iter().map(|&at| trajectories[at]), device))
            .collect::<Result<Vec<Room>, TrainError>>()?;
        let episodes: Vec<Vec<Episode>> = rooms.iter().map(Room::episodes).collect();
        let batches: Vec<MicroBatch> = rooms
            .iter()
            .zip(&episodes)
            .map(|(room, episodes)| MicroBatch { episodes, pictures: &room.placed })
            .collect();
        then(&parts, &batches)
    }

    fn parts(&self, trajectories: &[&Trajectory], units: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let length = |unit: &Vec<usize>| unit.iter().map(|&at| trajectories[at].tokens.len()).sum::<usize>();
        let mut order: Vec<&Vec<usize>> = units.iter().collect();
        order.sort_by_key(|unit| length(unit));
        let mut parts: Vec<Vec<usize>> = vec![];
        let mut filled = 0;
        for unit in order {
            filled += length(unit);
            match parts.last_mut() {
                Some(part) if filled <= self.micro_batch_tokens => part.extend(unit),
                _ => {
                    parts.push(unit.clone());
                    filled = length(unit);
                }
            }
        }
        parts
    }

    /// The screens that are in a trajectory's tokens.
    fn shown(&self, trajectory: &Trajectory) -> Result<Vec<Arc<RgbImage>>, TrainError> {
        let mut screens = self.screens.of(trajectory)?;
        let hidden = screens.len().saturating_sub(self.max_screenshots);
        Ok(screens.split_off(hidden))
    }
}

/// What a micro-batch borrows.
struct Room {
    placed: Vec<Picture>,
    pictures: Pictures,
    tokens: Vec<Vec<u32>>,
    trained: Vec<Vec<bool>>,
}

impl Room {
    fn new<'t>(
        layout: &Layout,
        trajectories: impl Iterator<Item = &'t Trajectory>,
        device: Device,
    ) -> Result<Self, TrainError> {
        let (mut shown, mut tokens, mut trained) = (vec![], vec![], vec![]);
        let mut digests: Vec<Vec<&str>> = vec![];
        for trajectory in trajectories {
            let screens = layout.shown(trajectory)?;
            let hidden = trajectory.steps.len() - screens.len();
            let steps = trajectory.steps[hidden..].iter();
            digests.push(steps.map(|step| step.observation.screenshot.digest.as_str()).collect());
            shown.push(screens);
            tokens.push(trajectory.tokens.iter().map(|token| token.0).collect());
            trained.push(trajectory.action_mask());
        }
        let known = |episode: usize, screen: usize| layout.features?.get(digests[episode][screen]);
        let pictures = Pictures::with_known(layout.processor, &shown, known)?;
        Ok(Self { placed: pictures.on(device), pictures, tokens, trained })
    }

    fn episodes(&self) -> Vec<Episode<'_>> {
        let one = |at: usize| Episode {
            tokens: &self.tokens[at],
            pictures: self.pictures.shown(at),
            trained: &self.trained[at],
        };
        (0..self.tokens.len()).map(one).collect()
    }
}
