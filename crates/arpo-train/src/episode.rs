//! An episode: what is to be played, what has happened so far, and what it was in the end.

use crate::TrainError;
use crate::dialogue::Assembled;
use crate::policy::Answer;
use arpo_agent::geometry::Size;
use arpo_core::action::{Action, ModelBox};
use arpo_core::task::Task;
use arpo_core::trajectory::{
    EpisodeId, ImageRef, Observation, Outcome, PolicyVersion, Slice, Step, TokenId, Trajectory,
};
use arpo_engine::Screenshot;
use image::RgbImage;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// An episode to play.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodePlan {
    /// Unique in its run.
    pub id: EpisodeId,
    /// What is asked.
    pub task: Arc<Task>,
    /// Of the desktop: distractors, places, looks.
    pub world_seed: u64,
    /// Of the agent's words.
    pub sampling_seed: u64,
    /// Turns at most.
    pub max_steps: usize,
}

/// What has happened in an episode: screens and answers by turns. Cloning it copies no pixels and no words.
#[derive(Debug, Clone)]
pub struct History {
    /// What is played.
    pub plan: Arc<EpisodePlan>,
    /// What was seen; one more than answers while the agent is to answer.
    pub screens: Vec<Screenshot>,
    /// What was said.
    pub answers: Vec<Arc<Answer>>,
}

/// Where an episode's time went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EpisodeTimings {
    /// From its reset to its end.
    pub total: Duration,
    /// In calls of the desktop.
    pub desktop: Duration,
    /// Between questions and answers.
    pub policy: Duration,
}

/// An episode that was played.
#[derive(Debug, Clone)]
pub struct PlayedEpisode {
    /// The episode as it is stored and trained on.
    pub trajectory: Trajectory,
    /// What the agent saw, one screen for each step.
    pub screens: Vec<Arc<RgbImage>>,
    /// Where its time went.
    pub timings: EpisodeTimings,
}

/// Turns that were said in one sequence, as a policy writes them down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptSlice {
    /// The whole sequence, with the words of earlier slices, and all the agent's words in it.
    pub assembled: Assembled,
    /// The turns that were said in it.
    pub turns: Range<usize>,
    /// The first turn whose screen is in it.
    pub first_live: usize,
}

/// How an episode ended, before it is written down.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) history: History,
    pub(crate) actions: Vec<Vec<Action>>,
    pub(crate) outcome: Outcome,
    pub(crate) score: f64,
    pub(crate) timings: EpisodeTimings,
}

impl Ended {
    /// Writes it down. A last screen that was not answered is left out.
    pub(crate) fn played(
        mut self,
        version: PolicyVersion,
        transcribe: impl FnOnce(&History) -> Result<Vec<TranscriptSlice>, TrainError>,
    ) -> Result<PlayedEpisode, TrainError> {
        let History { plan, screens, answers } = &mut self.history;
        screens.truncate(answers.len());
        let plan = Arc::clone(plan);
        let transcript = transcribe(&self.history)?;
        let spans = transcript.iter().flat_map(|slice| &slice.assembled.spans[slice.turns.clone()]);
        let History { screens, answers, .. } = self.history;
        // a step that could not be carried out before the desktop failed has no actions
        self.actions.resize(answers.len(), vec![]);
        let steps = screens
            .iter()
            .zip(&answers)
            .zip(self.actions)
            .zip(spans)
            .map(|(((screen, answer), actions), &span)| Step {
                observation: Observation { screenshot: reference(screen) },
                response: answer.text.clone(),
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
            policy_version: answers.iter().map(|answer| answer.version).min().unwrap_or(version),
            slices: transcript.into_iter().map(slice).collect(),
            steps,
            sampler_logp: answers.iter().flat_map(|answer| &answer.logp).copied().collect(),
            score: self.score,
            well_formed: !matches!(self.outcome, Outcome::Unparsable { .. }),
            outcome: self.outcome,
        };
        trajectory.check()?;
        let screens = screens.into_iter().map(|screen| screen.image).collect();
        Ok(PlayedEpisode { trajectory, screens, timings: self.timings })
    }
}

/// A screenshot named by its pixels.
pub(crate) fn screenshot(image: Arc<RgbImage>) -> Screenshot {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, image.dimensions(), image.as_raw()).hash(&mut hasher);
        hasher.finish()
    };
    Screenshot { digest: format!("{:016x}{:016x}", half(0), half(1)).into(), image }
}

/// A screenshot as a trajectory names it.
pub(crate) fn reference(screen: &Screenshot) -> ImageRef {
    let (width, height) = screen.image.dimensions();
    ImageRef { digest: screen.digest.to_string(), width, height }
}

/// An action in pixels of the screen, from one in pixels of the picture that the agent saw.
pub(crate) fn on_screen(action: &Action, seen: Size, screen: Size) -> Action {
    let mut action = action.clone();
    if seen == screen {
        return action;
    }
    let across = f64::from(screen.width) / f64::from(seen.width);
    let down = f64::from(screen.height) / f64::from(seen.height);
    let scale = |place: &mut ModelBox| {
        *place = ModelBox {
            x1: place.x1 * across,
            y1: place.y1 * down,
            x2: place.x2 * across,
            y2: place.y2 * down,
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
    fn places_are_found_on_the_screen() {
        let (seen, screen) = (Size { width: 56, height: 28 }, Size { width: 112, height: 84 });
        let drag =
            Action::Drag { start_box: ModelBox::point(1.0, 2.0), end_box: ModelBox::point(10.0, 20.0) };
        let moved =
            Action::Drag { start_box: ModelBox::point(2.0, 6.0), end_box: ModelBox::point(20.0, 60.0) };
        assert_eq!(on_screen(&drag, seen, screen), moved);
        assert_eq!(on_screen(&drag, seen, seen), drag);
        let place =
            |x, y| Action::Scroll { start_box: Some(ModelBox::point(x, y)), direction: Direction::Down };
        assert_eq!(on_screen(&place(3.0, 3.0), seen, screen), place(6.0, 9.0));
        assert_eq!(on_screen(&Action::Wait {}, seen, screen), Action::Wait {});
    }

    #[test]
    fn equal_pixels_have_equal_names() {
        let picture = |grey, width| Arc::new(RgbImage::from_pixel(width, 12 / width, image::Rgb([grey; 3])));
        let name = |image| screenshot(image).digest;
        assert_eq!(name(picture(7, 4)), name(picture(7, 4)));
        assert_ne!(name(picture(7, 4)), name(picture(8, 4)));
        assert_ne!(name(picture(7, 4)), name(picture(7, 3)));
    }
}
