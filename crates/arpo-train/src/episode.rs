//! An episode: its plan, its history while it runs, and its trajectory.

use crate::TrainError;
use crate::dialogue::Assembled;
use crate::policy::Response;
use arpo_agent::geometry::Size;
use arpo_core::action::{Action, ModelBox};
use arpo_core::task::Task;
use arpo_core::trajectory::{
    EpisodeId, ImageRef, Observation, Outcome, PolicyVersion, Slice, Step, TokenId, Trajectory,
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
    /// The whole sequence, with the text of earlier slices, and the spans of all responses in it.
    pub assembled: Assembled,
    /// The turns that were sampled in it.
    pub turns: Range<usize>,
    /// The first turn whose screen is in it.
    pub first_live: usize,
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
        let spans = transcript.iter().flat_map(|slice| &slice.assembled.spans[slice.turns.clone()]);
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
        let slice = |TranscriptSlice { assembled, turns, first_live }| Slice {
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

/// Converts an action from pixels of the image that the agent saw to pixels of the screen.
pub(crate) fn on_screen(action: &Action, seen: Size, screen: Size) -> Action {
    let mut action = action.clone();
    if seen == screen {
        return action;
    }
    let across = f64::from(screen.width) / f64::from(seen.width);
    let down = f64::from(screen.height) / f64::from(seen.height);
    // far outside the screen, but a number: an infinite one could not be sent to another machine
    let scaled = |number: f64, by: f64| (number * by).clamp(f64::MIN, f64::MAX);
    let scale = |area: &mut ModelBox| {
        *area = ModelBox {
            x1: scaled(area.x1, across),
            y1: scaled(area.y1, down),
            x2: scaled(area.x2, across),
            y2: scaled(area.y2, down),
        };
    };
    match &mut action {
        Action::Click { start_box }
        | Action::LeftDouble { start_box }
        | Action::RightSingle { start_box }
        | Action::Hover { start_box } => scale(start_box),
        Action::Drag { start_box, end_box } | Action::Select { start_box, end_box } => {
            scale(start_box);
            scale(end_box);
        }
        Action::Scroll { start_box, .. } => start_box.iter_mut().for_each(scale),
        Action::Hotkey { .. }
        | Action::Press { .. }
        | Action::Keydown { .. }
        | Action::Keyup { .. }
        | Action::Type { .. }
        | Action::Wait {}
        | Action::Finished { .. }
        | Action::CallUser {}
        | Action::ErrorEnv {}
        | Action::Other { .. } => {}
    }
    action
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::action::Direction;

    #[test]
    fn coordinates_are_scaled_to_the_screen() {
        let (seen, screen) = (Size { width: 56, height: 28 }, Size { width: 112, height: 84 });
        let drag =
            Action::Drag { start_box: ModelBox::point(1.0, 2.0), end_box: ModelBox::point(10.0, 20.0) };
        let scaled =
            Action::Drag { start_box: ModelBox::point(2.0, 6.0), end_box: ModelBox::point(20.0, 60.0) };
        assert_eq!(on_screen(&drag, seen, screen), scaled);
        assert_eq!(on_screen(&drag, seen, seen), drag);
        let scroll =
            |x, y| Action::Scroll { start_box: Some(ModelBox::point(x, y)), direction: Direction::Down };
        assert_eq!(on_screen(&scroll(3.0, 3.0), seen, screen), scroll(6.0, 9.0));
        assert_eq!(on_screen(&Action::Wait {}, seen, screen), Action::Wait {});
    }

    #[test]
    fn equal_pixels_have_equal_digests() {
        let pixels = |grey, width| Arc::new(RgbImage::from_pixel(width, 12 / width, image::Rgb([grey; 3])));
        let digest = |image| screenshot(image).digest;
        assert_eq!(digest(pixels(7, 4)), digest(pixels(7, 4)));
        assert_ne!(digest(pixels(7, 4)), digest(pixels(8, 4)));
        assert_ne!(digest(pixels(7, 4)), digest(pixels(7, 3)));
    }
}
