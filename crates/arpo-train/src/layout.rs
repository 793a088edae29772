//! Trajectories laid out for the learner: their slices in micro-batches of a budget of tokens, made one at a time.
//!
//! The next micro-batch is made, as bytes on the host, while the learner goes through the one before it. So an update
//! needs the memory of one micro-batch, however many episodes it is made of.

use crate::TrainError;
use crate::pictures::Pictures;
use crate::run::stop::StopSwitch;
use crate::screens::Screens;
use arpo_core::trajectory::{SliceView, Trajectory};
use arpo_engine::KnownFeatures;
use arpo_image::ImageProcessor;
use arpo_model::learner::step::{LossGradient, UpdateReport, Updater};
use arpo_model::learner::{Episode, Learner, MicroBatch};
use std::ops::Range;
use std::sync::mpsc::sync_channel;
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
    /// Tokens of a micro-batch, unless a single slice has more.
    pub micro_batch_tokens: usize,
    /// Once it is on, no further micro-batch is begun.
    pub stop: &'a StopSwitch,
}

/// Trained tokens of a trajectory that were said in one slice of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Which trajectory, by its place among those laid out.
    pub trajectory: usize,
    /// Which of its trained tokens.
    pub trained: Range<usize>,
}

impl Layout<'_> {
    /// Log-probabilities of the trained tokens of each trajectory.
    pub fn scores(
        &self,
        learner: &Learner,
        trajectories: &[&Trajectory],
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut logps: Vec<Vec<f32>> =
            trajectories.iter().map(|trajectory| vec![0.0; trajectory.trained_tokens()]).collect();
        self.each_batch(learner.model().device(), trajectories, |parts, batch| {
            for (part, logp) in parts.iter().zip(learner.scores(&batch)?.logp) {
                logps[part.trajectory][part.trained.clone()].copy_from_slice(&logp);
            }
            Ok(())
        })?;
        Ok(logps)
    }

    /// One update from trajectories; interrupted, it moves nothing. `loss` is asked for each part of them, given the log-probabilities that the model
    /// gives its tokens; what it returns is the part's share of the loss and dL/dlogp of each token.
    pub fn update(
        &self,
        updater: &mut Updater,
        trajectories: &[&Trajectory],
        learning_rate: f64,
        mut loss: impl FnMut(&Part, &[f32]) -> (f64, Vec<f32>),
    ) -> Result<UpdateReport, TrainError> {
        let mut update = updater.begin();
        self.each_batch(update.learner().model().device(), trajectories, |parts, batch| {
            let result = update.add(batch, |scores| {
                let mut sum = LossGradient { value: 0.0, coefficients: vec![] };
                for (part, new) in parts.iter().zip(&scores.logp) {
                    let (value, coefficients) = loss(part, new);
                    sum.value += value;
                    sum.coefficients.push(coefficients);
                }
                sum
            });
            Ok(result?)
        })?;
        Ok(update.finish(learning_rate)?)
    }

    /// Goes through the micro-batches, the next one being made meanwhile.
    fn each_batch(
        &self,
        device: Device,
        trajectories: &[&Trajectory],
        mut then: impl FnMut(&[Part], MicroBatch) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        std::thread::scope(|scope| {
            let batches = self.batches(trajectories);
            let (ready, next) = sync_channel(0);
            let making = scope.spawn(move || {
                for slices in batches {
                    // whoever does not want it has failed and says so
                    if ready.send(Prepared::new(self, trajectories, &slices)).is_err() {
                        return;
                    }
                }
            });
            for prepared in next {
                if self.stop.asked() {
                    return Err(TrainError::Interrupted);
                }
                let Prepared { parts, sequences, pictures } = prepared?;
                let placed = pictures.on(device);
                let episodes: Vec<Episode> = sequences
                    .iter()
                    .enumerate()
                    .map(|(at, (tokens, trained))| Episode { tokens, pictures: pictures.shown(at), trained })
                    .collect();
                then(&parts, MicroBatch { episodes: &episodes, pictures: &placed })?;
            }
            making.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(())
        })
    }

    /// Which slices (of which trajectory, and its index there) are computed together: shorter ones first, as many as the
    /// budget of tokens takes.
    fn batches(&self, trajectories: &[&Trajectory]) -> Vec<Vec<(usize, usize)>> {
        let slices = |at: usize| (0..trajectories[at].slices.len()).map(move |slice| (at, slice));
        let mut order: Vec<(usize, usize)> = (0..trajectories.len()).flat_map(slices).collect();
        let length = |&(at, slice): &(usize, usize)| trajectories[at].slices[slice].tokens.len();
        order.sort_by_key(length);
        let mut batches: Vec<Vec<(usize, usize)>> = vec![];
        let mut filled = 0;
        for slice in order {
            filled += length(&slice);
            match batches.last_mut() {
                Some(batch) if filled <= self.micro_batch_tokens => batch.push(slice),
                _ => {
                    batches.push(vec![slice]);
                    filled = length(&slice);
                }
            }
        }
        batches
    }
}

/// A micro-batch on the host.
struct Prepared {
    parts: Vec<Part>,
    /// Tokens, and which of them are trained.
    sequences: Vec<(Vec<u32>, Vec<bool>)>,
    pictures: Pictures,
}

impl Prepared {
    fn new(
        layout: &Layout,
        trajectories: &[&Trajectory],
        slices: &[(usize, usize)],
    ) -> Result<Self, TrainError> {
        let (mut parts, mut sequences, mut shown, mut live) = (vec![], vec![], vec![], vec![]);
        for &(at, slice) in slices {
            let trajectory = trajectories[at];
            let view: SliceView = trajectory
                .views()
                .nth(slice)
                .ok_or_else(|| TrainError::Options(format!("{}: no slice {slice}", trajectory.id)))?;
            sequences
                .push((view.tokens.iter().map(|token| token.0).collect(), trajectory.action_mask(&view)));
            let steps = &trajectory.steps[view.live.clone()];
            shown.push(layout.screens.of(steps)?);
            live.push(steps);
            parts.push(Part { trajectory: at, trained: view.trained });
        }
        let digest = |slice: usize, screen: usize| &live[slice][screen].observation.screenshot.digest;
        let known = |slice: usize, screen: usize| layout.features?.get(digest(slice, screen));
        let pictures = Pictures::with_known(layout.processor, &shown, known)?;
        Ok(Self { parts, sequences, pictures })
    }
}
