//! An episode: its plan, its history while it runs, and its trajectory.

pub use crate::episode_screen::EpisodeScreen;

use crate::TrainError;
use crate::dialogue::Assembled;
use crate::policy::Response;
use arpo_agent::conversation::Turn;
use arpo_core::action::Action;
use arpo_core::task::Task;
use arpo_core::trajectory::{
    EpisodeId, Observation, Outcome, PolicyVersion, Slice, Step, TokenId, TokenSpan, Trajectory,
};
use std::borrow::Cow;
use std::ops::Range;
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
    /// A plan that the agent reads beside the instruction while it acts. It is in no transcript: the episode is stored and
    /// trained on as if the agent had acted without it.
    pub hint: Option<Arc<str>>,
}

impl EpisodePlan {
    /// The bits of a world's seed that distinguish worlds; the others distinguish the faults of its episodes.
    pub const WORLD: u64 = 0xffff_ffff;

    /// What the agent is asked to do while it acts.
    pub fn prompt(&self) -> Cow<'_, str> {
        let instruction = self.task.instruction.as_str();
        match &self.hint {
            None => instruction.into(),
            Some(hint) => format!("{instruction}\nPlan:\n{hint}").into(),
        }
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

impl History {
    /// The turns of its first `seen` screens; a screen without a response is none.
    pub(crate) fn turns(&self, seen: usize) -> Vec<Turn> {
        let turn = |(screen, response): (&EpisodeScreen, &Arc<Response>)| Turn {
            screenshot: screen.reference(),
            response: response.text.clone(),
        };
        self.screens.iter().take(seen).zip(&self.responses).map(turn).collect()
    }
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
        // those of an episode that ended without an evaluation may still be there
        screens.iter().for_each(EpisodeScreen::release_pixels);
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
                observation: Observation { screenshot: screen.reference() },
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
