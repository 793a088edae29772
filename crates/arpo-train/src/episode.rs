//! An episode: its plan, its history while it runs, and its trajectory.

use crate::TrainError;
use crate::dialogue::Assembled;
use crate::policy::Response;
use arpo_core::action::Action;
use arpo_core::task::Task;
use arpo_core::trajectory::{
    EpisodeId, ImageRef, Observation, Outcome, PolicyVersion, Slice, Step, TokenId, TokenSpan, Trajectory,
};
use arpo_engine::Screenshot;
use arpo_env::environment::{EnvironmentError, Screen};
use image::RgbImage;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

/// An episode to collect.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodePlan {
    /// Unique in its run.
    pub id: EpisodeId,
    /// Its task.
    pub task: Arc<Task>,
    /// Seed of the desktop: distractors, positions, looks.
    pub world_seed: u64,
    /// Seed of the sampled tokens.
    pub sampling_seed: u64,
    /// Most turns.
    pub max_steps: usize,
}

/// A screenshot of an episode, with the PNG it came in, if it came in one: storing or sending it encodes nothing then.
#[derive(Debug, Clone)]
pub struct EpisodeScreen {
    /// Its pixels and their digest.
    pub screenshot: Screenshot,
    /// Exactly these pixels as a PNG.
    pub png: Option<Arc<[u8]>>,
}

impl Deref for EpisodeScreen {
    type Target = Screenshot;

    fn deref(&self) -> &Screenshot {
        &self.screenshot
    }
}

/// The screens and responses of an episode so far. Cloning it copies neither pixels nor text.
#[derive(Debug, Clone)]
pub struct History {
    /// Its plan.
    pub plan: Arc<EpisodePlan>,
    /// Screens; one more than responses while a response is pending.
    pub screens: Vec<EpisodeScreen>,
    /// Responses.
    pub responses: Vec<Arc<Response>>,
}

/// Where an episode's time went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EpisodeTimings {
    /// From its reset to its end.
    pub total: Duration,
    /// In calls of the desktop.
    pub desktop: Duration,
    /// Between requests and responses.
    pub policy: Duration,
}

/// A completed episode.
#[derive(Debug, Clone)]
pub struct CompletedEpisode {
    /// The episode as it is stored and trained on.
    pub trajectory: Trajectory,
    /// What the agent saw, one screen for each step.
    pub screens: Vec<EpisodeScreen>,
    /// Where its time went.
    pub timings: EpisodeTimings,
}

/// Turns that were sampled in one sequence, as a policy transcribes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptSlice {
    /// The whole sequence, with what the style keeps of earlier slices, and the spans of all responses in it.
    pub assembled: Assembled,
    /// The turns that were sampled in it.
    pub turns: Range<usize>,
    /// The first turn whose screen is in it.
    pub first_live: usize,
    /// The first turn whose response is in it.
    pub first_response: usize,
}

impl TranscriptSlice {
    /// The spans of the turns that were sampled in it.
    fn spans(&self) -> &[TokenSpan] {
        let Range { start, end } = self.turns;
        &self.assembled.spans[start - self.first_response..end - self.first_response]
    }
}

/// An ended episode, before it becomes a trajectory.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) history: History,
    pub(crate) actions: Vec<Vec<Action>>,
    pub(crate) outcome: Outcome,
    pub(crate) score: f64,
    pub(crate) timings: EpisodeTimings,
}

impl Ended {
    /// Turns it into a trajectory. A last screen without a response is left out.
    pub(crate) fn completed(
        mut self,
        version: PolicyVersion,
        transcribe: impl FnOnce(&History) -> Result<Vec<TranscriptSlice>, TrainError>,
    ) -> Result<CompletedEpisode, TrainError> {
        let History { plan, screens, responses } = &mut self.history;
        screens.truncate(responses.len());
        let plan = Arc::clone(plan);
        let transcript = transcribe(&self.history)?;
        let spans = transcript.iter().flat_map(TranscriptSlice::spans);
        let History { screens, responses, .. } = self.history;
        // a step that was not executed before the desktop failed has no actions
        self.actions.resize(responses.len(), vec![]);
        let steps = screens
            .iter()
            .zip(&responses)
            .zip(self.actions)
            .zip(spans)
            .map(|(((screen, response), actions), &span)| Step {
                observation: Observation { screenshot: reference(screen) },
                response: response.text.clone(),
                actions,
                span,
            })
            .collect();
        let slice = |TranscriptSlice { assembled, turns, first_live, .. }| Slice {
            tokens: assembled.tokens.into_iter().map(TokenId).collect(),
            first_live,
            end: turns.end,
        };
        let trajectory = Trajectory {
            id: plan.id.clone(),
            task: plan.task.id.clone(),
            policy_version: responses.iter().map(|response| response.version).min().unwrap_or(version),
            slices: transcript.into_iter().map(slice).collect(),
            steps,
            sampler_logp: responses.iter().flat_map(|response| &response.logp).copied().collect(),
            score: self.score,
            well_formed: !matches!(self.outcome, Outcome::Unparsable { .. }),
            outcome: self.outcome,
        };
        trajectory.check()?;
        Ok(CompletedEpisode { trajectory, screens, timings: self.timings })
    }
}

/// A screen with the digest of its pixels; an error if it cannot be decoded.
pub(crate) fn episode_screen(screen: &Screen) -> Result<EpisodeScreen, EnvironmentError> {
    Ok(EpisodeScreen { screenshot: screenshot(screen.image()?), png: screen.png().cloned() })
}

/// A screenshot with the digest of its pixels.
pub(crate) fn screenshot(image: Arc<RgbImage>) -> Screenshot {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, image.dimensions(), image.as_raw()).hash(&mut hasher);
        hasher.finish()
    };
    Screenshot { digest: format!("{:016x}{:016x}", half(0), half(1)).into(), image }
}

/// A trajectory's reference to a screenshot.
pub(crate) fn reference(screen: &Screenshot) -> ImageRef {
    let (width, height) = screen.image.dimensions();
    ImageRef { digest: screen.digest.to_string(), width, height }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pixels_have_equal_digests() {
        let pixels = |grey, width| Arc::new(RgbImage::from_pixel(width, 12 / width, image::Rgb([grey; 3])));
        let digest = |image| screenshot(image).digest;
        assert_eq!(digest(pixels(7, 4)), digest(pixels(7, 4)));
        assert_ne!(digest(pixels(7, 4)), digest(pixels(8, 4)));
        assert_ne!(digest(pixels(7, 4)), digest(pixels(7, 3)));
    }
}
