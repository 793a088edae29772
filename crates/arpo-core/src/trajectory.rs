//! An episode as it is stored and trained on: its turns, and the token sequences in which they were sampled.
//!
//! An episode whose screenshots all fit into the model's context is ONE sequence (prompt, screenshots, responses), as in
//! the paper. A longer one is several: a new [`Slice`] begins wherever older screenshots left the context. Only the
//! tokens inside the steps' spans are trained, each exactly once, in the slice it was sampled in, and each of them has the
//! log-probability it was sampled with.

use crate::action::Action;
use crate::task::TaskId;
use crate::token_runs;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// One token of the model's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenId(pub u32);

/// The version of the weights that acted: the number of iterations done; the base model is version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyVersion(pub u64);

/// The name of an episode, unique in its run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpisodeId(String);

impl EpisodeId {
    /// The `index`-th episode of `task` in an iteration.
    pub fn new(iteration: u64, task: &TaskId, index: usize) -> Self {
        Self(format!("{iteration}:{task}:{index}"))
    }
}

impl fmt::Display for EpisodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A reference to an image: its bytes are in the run folder under this digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageRef {
    /// Digest of the content, so that equal screenshots are stored and encoded once.
    pub digest: String,
    /// In screen pixels.
    pub width: u32,
    /// In screen pixels.
    pub height: u32,
}

/// What the agent sees before it acts. The instruction belongs to the task and is not repeated here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The screen.
    pub screenshot: ImageRef,
}

/// A half-open range of positions in the tokens of the slice that a step was sampled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSpan {
    /// First position.
    pub start: usize,
    /// One past the last position.
    pub end: usize,
}

impl TokenSpan {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// True if it contains no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One turn: a screenshot, the agent's response, and its actions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What the agent saw.
    pub observation: Observation,
    /// The response, as sampled.
    pub response: String,
    /// The parsed actions; empty if the response could not be parsed.
    pub actions: Vec<Action>,
    /// The response's trained tokens.
    pub span: TokenSpan,
}

/// How an episode ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// The agent ended it: finished, or the task cannot be done.
    Finished {},
    /// The step limit was reached.
    StepLimit {},
    /// A response could not be parsed.
    Unparsable {
        /// The parser's error.
        reason: String,
    },
    /// The desktop failed: not the agent's fault, never trained on.
    EnvironmentError {
        /// The environment's error.
        reason: String,
    },
}

impl Outcome {
    /// The score reflects the agent, not a failure of the environment.
    pub fn is_trainable(&self) -> bool {
        !matches!(self, Self::EnvironmentError { .. })
    }
}

/// A part of an episode that is one sequence to the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// The prompt and everything up to the slice's last response, screenshots as placeholders.
    #[serde(with = "token_runs")]
    pub tokens: Vec<TokenId>,
    /// The first step whose screenshot is in the tokens; earlier steps appear as text only.
    pub first_live: usize,
    /// One past the last step sampled in it; its first step is where the previous slice ended.
    pub end: usize,
}

/// A slice with the steps and tokens of its trajectory that belong to it.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceView<'a> {
    /// Its token sequence.
    pub tokens: &'a [TokenId],
    /// The steps whose screenshots are in the sequence, in order.
    pub live: Range<usize>,
    /// The steps that were sampled in it.
    pub steps: Range<usize>,
    /// The range of its trained tokens among all trained tokens of the trajectory.
    pub trained: Range<usize>,
}

/// A whole episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trajectory {
    /// Unique in its run.
    pub id: EpisodeId,
    /// The task attempted.
    pub task: TaskId,
    /// The weights that acted.
    pub policy_version: PolicyVersion,
    /// The sequences it was sampled in, in order.
    pub slices: Vec<Slice>,
    /// The turns, in order.
    pub steps: Vec<Step>,
    /// For every trained token, in order, the log-probability it was sampled with.
    pub sampler_logp: Vec<f32>,
    /// The evaluator's score, in [0, 1].
    pub score: f64,
    /// Every response could be parsed.
    pub well_formed: bool,
    /// How it ended.
    pub outcome: Outcome,
}

/// An inconsistent trajectory.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TrajectoryError {
    /// Slices must cover all steps in order, and contain at least the current screenshot of each step.
    #[error(
        "{id}: slice {slice} shows screens from {first_live} and ends before step {end}, expected {expected}"
    )]
    Slice {
        /// The episode.
        id: EpisodeId,
        /// Its number.
        slice: usize,
        /// Its first screenshot.
        first_live: usize,
        /// One past its last step.
        end: usize,
        /// What was expected.
        expected: String,
    },
    /// Spans must be in order and within the tokens of their slice.
    #[error("{id}: step {step} spans tokens {start}..{end}, expected {from} <= start <= end <= {tokens}")]
    Span {
        /// The episode.
        id: EpisodeId,
        /// The turn.
        step: usize,
        /// Its first token.
        start: usize,
        /// One past its last token.
        end: usize,
        /// Where the previous turn ended.
        from: usize,
        /// How many tokens there are.
        tokens: usize,
    },
    /// Every trained token has one log-probability.
    #[error("{id}: {logps} sampler log-probabilities for {trained} trained tokens")]
    LogpCount {
        /// The episode.
        id: EpisodeId,
        /// The number of log-probabilities.
        logps: usize,
        /// The number of trained tokens.
        trained: usize,
    },
    /// Scores and log-probabilities must be finite, and scores in range.
    #[error("{id}: {what} is {value}, expected {expected}")]
    Value {
        /// The episode.
        id: EpisodeId,
        /// The name of the value.
        what: &'static str,
        /// The value.
        value: f64,
        /// What was expected.
        expected: &'static str,
    },
}

impl Trajectory {
    /// An episode that was finished without a turn, by the weights of its iteration: what tests begin with.
    pub fn without_turns(iteration: u64, task: &TaskId, index: usize, score: f64) -> Self {
        Self {
            id: EpisodeId::new(iteration, task, index),
            task: task.clone(),
            policy_version: PolicyVersion(iteration),
            slices: vec![],
            steps: vec![],
            sampler_logp: vec![],
            score,
            well_formed: true,
            outcome: Outcome::Finished {},
        }
    }

    /// Number of trained tokens.
    pub fn trained_tokens(&self) -> usize {
        self.steps.iter().map(|step| step.span.len()).sum()
    }

    /// Number of tokens, over all slices.
    pub fn tokens(&self) -> usize {
        self.slices.iter().map(|slice| slice.tokens.len()).sum()
    }

    /// The slices, each with its steps and tokens. The trajectory must have passed [`Self::check`].
    pub fn views(&self) -> impl ExactSizeIterator<Item = SliceView<'_>> {
        let (mut from, mut before) = (0, 0);
        self.slices.iter().map(move |slice| {
            let steps = from..slice.end;
            let count: usize = self.steps[steps.clone()].iter().map(|step| step.span.len()).sum();
            let trained = before..before + count;
            (from, before) = (slice.end, trained.end);
            SliceView { tokens: &slice.tokens, live: slice.first_live..slice.end, steps, trained }
        })
    }

    /// For every token of a slice, whether it is trained.
    pub fn action_mask(&self, slice: &SliceView) -> Vec<bool> {
        let mut mask = vec![false; slice.tokens.len()];
        for step in &self.steps[slice.steps.clone()] {
            mask[step.span.start..step.span.end].fill(true);
        }
        mask
    }

    /// Checks the invariants that other code relies on: call it on everything read from a file.
    pub fn check(&self) -> Result<(), TrajectoryError> {
        let id = || self.id.clone();
        self.check_slices()?;
        let mut first = 0;
        for slice in &self.slices {
            let (mut from, tokens) = (0, slice.tokens.len());
            for step in first..slice.end {
                let TokenSpan { start, end } = self.steps[step].span;
                if start < from || end < start || tokens < end {
                    return Err(TrajectoryError::Span { id: id(), step, start, end, from, tokens });
                }
                from = end;
            }
            first = slice.end;
        }
        let (logps, trained) = (self.sampler_logp.len(), self.trained_tokens());
        if logps != trained {
            return Err(TrajectoryError::LogpCount { id: id(), logps, trained });
        }
        if !(0.0..=1.0).contains(&self.score) {
            let (what, expected) = ("the score", "a number in [0, 1]");
            return Err(TrajectoryError::Value { id: id(), what, value: self.score, expected });
        }
        if let Some(&logp) = self.sampler_logp.iter().find(|logp| !logp.is_finite() || **logp > 0.0) {
            let (what, expected) = ("a log-probability", "a finite number, at most 0");
            return Err(TrajectoryError::Value { id: id(), what, value: f64::from(logp), expected });
        }
        Ok(())
    }

    fn check_slices(&self) -> Result<(), TrajectoryError> {
        let wrong = |slice: usize, expected: String| {
            let (first_live, end) = self.slices.get(slice).map_or((0, 0), |one| (one.first_live, one.end));
            Err(TrajectoryError::Slice { id: self.id.clone(), slice, first_live, end, expected })
        };
        let (mut from, steps) = (0, self.steps.len());
        for (number, &Slice { first_live, end, .. }) in self.slices.iter().enumerate() {
            if first_live > from || end <= from || end > steps {
                return wrong(number, format!("first screen <= {from} < end <= {steps}"));
            }
            from = end;
        }
        if from == steps { Ok(()) } else { wrong(self.slices.len(), format!("slices up to step {steps}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(start: usize, end: usize) -> Step {
        let screenshot = ImageRef { digest: "d".into(), width: 1920, height: 1080 };
        let observation = Observation { screenshot };
        Step { observation, response: String::new(), actions: vec![], span: TokenSpan { start, end } }
    }

    fn trajectory() -> Trajectory {
        let task = TaskId::new("t");
        Trajectory {
            id: EpisodeId::new(3, &task, 1),
            task,
            policy_version: PolicyVersion(3),
            slices: vec![Slice { tokens: (0..8).map(TokenId).collect(), first_live: 0, end: 2 }],
            steps: vec![step(2, 4), step(6, 7)],
            sampler_logp: vec![-0.5, 0.0, -1.0],
            score: 1.0,
            well_formed: true,
            outcome: Outcome::Finished {},
        }
    }

    #[test]
    fn mask_marks_the_spans() {
        let trajectory = trajectory();
        let slice = trajectory.views().next().unwrap();
        let mask: Vec<u8> = trajectory.action_mask(&slice).into_iter().map(u8::from).collect();
        assert_eq!(mask, [0, 0, 1, 1, 0, 0, 1, 0]);
        assert_eq!((slice.live, slice.steps, slice.trained), (0..2, 0..2, 0..3));
        assert_eq!(trajectory.check(), Ok(()));
    }

    /// Three steps, the first sampled in a slice of its own: in the second slice its tokens are not trained.
    fn sliced() -> Trajectory {
        Trajectory {
            slices: vec![
                Slice { tokens: (0..5).map(TokenId).collect(), first_live: 0, end: 1 },
                Slice { tokens: (0..9).map(TokenId).collect(), first_live: 1, end: 3 },
            ],
            steps: vec![step(3, 5), step(5, 6), step(7, 9)],
            sampler_logp: vec![-0.5; 5],
            ..trajectory()
        }
    }

    #[test]
    fn every_token_is_trained_in_the_slice_it_was_sampled_in() {
        let trajectory = sliced();
        assert_eq!(trajectory.check(), Ok(()));
        let views: Vec<SliceView> = trajectory.views().collect();
        let masks: Vec<Vec<u8>> = views
            .iter()
            .map(|view| trajectory.action_mask(view).into_iter().map(u8::from).collect())
            .collect();
        assert_eq!(masks, [vec![0, 0, 0, 1, 1], vec![0, 0, 0, 0, 0, 1, 0, 1, 1]]);
        assert_eq!(
            (views[1].live.clone(), views[1].steps.clone(), views[1].trained.clone()),
            (1..3, 1..3, 2..5)
        );
        assert_eq!((trajectory.trained_tokens(), trajectory.tokens()), (5, 14));
    }

    #[test]
    fn inconsistencies_are_named() {
        let broken = |change: fn(&mut Trajectory)| {
            let mut trajectory = sliced();
            change(&mut trajectory);
            trajectory.check().unwrap_err().to_string()
        };
        assert_eq!(
            broken(|t| t.slices[1].first_live = 2),
            "3:t:1: slice 1 shows screens from 2 and ends before step 3, expected first screen <= 1 < end <= 3"
        );
        assert_eq!(
            broken(|t| drop(t.slices.pop())),
            "3:t:1: slice 1 shows screens from 0 and ends before step 0, expected slices up to step 3"
        );
        let broken = |change: fn(&mut Trajectory)| {
            let mut trajectory = trajectory();
            change(&mut trajectory);
            trajectory.check().unwrap_err().to_string()
        };
        assert_eq!(
            broken(|t| t.steps[1].span.start = 3),
            "3:t:1: step 1 spans tokens 3..7, expected 4 <= start <= end <= 8"
        );
        assert_eq!(
            broken(|t| t.steps[1].span.end = 9),
            "3:t:1: step 1 spans tokens 6..9, expected 4 <= start <= end <= 8"
        );
        assert_eq!(
            broken(|t| t.sampler_logp.truncate(1)),
            "3:t:1: 1 sampler log-probabilities for 3 trained tokens"
        );
        assert_eq!(broken(|t| t.score = 1.5), "3:t:1: the score is 1.5, expected a number in [0, 1]");
        assert_eq!(
            broken(|t| t.sampler_logp[0] = f32::NAN),
            "3:t:1: a log-probability is NaN, expected a finite number, at most 0"
        );
    }

    #[test]
    fn only_the_agent_s_own_outcomes_are_trained_on() {
        let reason = || "x".to_owned();
        for (outcome, trainable) in [
            (Outcome::Finished {}, true),
            (Outcome::StepLimit {}, true),
            (Outcome::Unparsable { reason: reason() }, true),
            (Outcome::EnvironmentError { reason: reason() }, false),
        ] {
            assert_eq!(outcome.is_trainable(), trainable);
        }
    }

    #[test]
    fn json_is_read_back_equal() {
        for trajectory in [trajectory(), sliced()] {
            let json = serde_json::to_string(&trajectory).unwrap();
            assert_eq!(serde_json::from_str::<Trajectory>(&json).unwrap(), trajectory);
        }
    }
}
