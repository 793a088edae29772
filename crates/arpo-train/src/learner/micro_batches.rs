//! Trajectories in micro-batches within a token budget, prepared one at a time: the next one on the host while the model
//! computes the current one.

use super::TrainedSpan;
use crate::TrainError;
use crate::images::BatchImages;
use crate::run::stop::StopSwitch;
use crate::screens::Screens;
use arpo_core::trajectory::{SliceView, Trajectory};
use arpo_engine::FeatureCache;
use arpo_image::ImageProcessor;
use arpo_model::training::{MicroBatch, SequenceInput};
use arpo_ranks::Sentinel;
use std::sync::mpsc::sync_channel;
use tch::Device;

/// Makes micro-batches.
#[derive(Debug)]
pub(super) struct MicroBatches {
    /// How a screenshot becomes patches.
    pub(super) processor: ImageProcessor,
    /// Features that the sampler has computed, if the vision tower is not trained.
    pub(super) features: Option<FeatureCache>,
    /// Tokens of a micro-batch, unless a single slice has more.
    pub(super) tokens: usize,
    /// Once it is on, no further micro-batch is computed.
    pub(super) stop: StopSwitch,
    /// The ranks that only sample: once one of them is lost, no further micro-batch is computed, either.
    pub(super) samplers: Option<Sentinel>,
}

/// A slice of a trajectory: the trajectory's index, and the slice's within it.
pub(super) type SliceIndex = (usize, usize);

impl MicroBatches {
    /// Hands the micro-batches of all slices to `compute` one after the other.
    pub(super) fn each(
        &self,
        device: Device,
        trajectories: &[&Trajectory],
        screens: &Screens,
        compute: impl FnMut(&[TrainedSpan], MicroBatch) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let all = self.plan(trajectories, slices_of(trajectories));
        self.each_of(device, trajectories, screens, &all, compute)
    }

    /// The same for these micro-batches.
    pub(super) fn each_of(
        &self,
        device: Device,
        trajectories: &[&Trajectory],
        screens: &Screens,
        batches: &[Vec<SliceIndex>],
        mut compute: impl FnMut(&[TrainedSpan], MicroBatch) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        std::thread::scope(|scope| {
            let (staged, next) = sync_channel(0);
            let staging = scope.spawn(move || {
                for slices in batches {
                    // the receiver is gone if computing has failed; the error is returned there
                    if staged.send(StagedBatch::new(self, trajectories, screens, slices)).is_err() {
                        return;
                    }
                }
            });
            for batch in next {
                if self.stop.requested() {
                    return Err(TrainError::Interrupted);
                }
                if let Some(samplers) = &self.samplers {
                    samplers.check()?;
                }
                let StagedBatch { spans, sequences, images } = batch?;
                let on_device = images.on(device);
                let episodes: Vec<SequenceInput> = sequences
                    .iter()
                    .enumerate()
                    .map(|(at, (tokens, trained))| SequenceInput {
                        tokens,
                        images: images.shown(at),
                        trained,
                    })
                    .collect();
                compute(&spans, MicroBatch { sequences: &episodes, images: &on_device })?;
            }
            staging.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(())
        })
    }

    /// Which slices are computed together: shorter ones first, as many as fit into the token budget.
    pub(super) fn plan(
        &self,
        trajectories: &[&Trajectory],
        mut order: Vec<SliceIndex>,
    ) -> Vec<Vec<SliceIndex>> {
        let length = |&(at, slice): &SliceIndex| trajectories[at].slices[slice].tokens.len();
        order.sort_by_key(length);
        let mut batches: Vec<Vec<SliceIndex>> = vec![];
        let mut filled = 0;
        for slice in order {
            filled += length(&slice);
            match batches.last_mut() {
                Some(batch) if filled <= self.tokens => batch.push(slice),
                _ => {
                    batches.push(vec![slice]);
                    filled = length(&slice);
                }
            }
        }
        batches
    }
}

/// All slices of trajectories.
pub(super) fn slices_of(trajectories: &[&Trajectory]) -> Vec<SliceIndex> {
    let slices = |at: usize| (0..trajectories[at].slices.len()).map(move |slice| (at, slice));
    (0..trajectories.len()).flat_map(slices).collect()
}

/// A micro-batch on the host.
struct StagedBatch {
    spans: Vec<TrainedSpan>,
    /// Tokens, and which of them are trained.
    sequences: Vec<(Vec<u32>, Vec<bool>)>,
    images: BatchImages,
}

impl StagedBatch {
    fn new(
        with: &MicroBatches,
        trajectories: &[&Trajectory],
        screens: &Screens,
        slices: &[SliceIndex],
    ) -> Result<Self, TrainError> {
        let (mut spans, mut sequences, mut shown, mut live) = (vec![], vec![], vec![], vec![]);
        for &(at, slice) in slices {
            let trajectory = trajectories[at];
            let view: SliceView = trajectory
                .views()
                .nth(slice)
                .ok_or_else(|| TrainError::Internal(format!("{}: no slice {slice}", trajectory.id)))?;
            sequences
                .push((view.tokens.iter().map(|token| token.0).collect(), trajectory.action_mask(&view)));
            let steps = &trajectory.steps[view.live.clone()];
            shown.push(screens.of(steps)?);
            live.push(steps);
            spans.push(TrainedSpan { trajectory: at, trained: view.trained });
        }
        let digest = |slice: usize, screen: usize| &live[slice][screen].observation.screenshot.digest;
        let known = |slice: usize, screen: usize| with.features.as_ref()?.get(digest(slice, screen));
        let images = BatchImages::with_known(&with.processor, &shown, known)?;
        Ok(Self { spans, sequences, images })
    }
}
