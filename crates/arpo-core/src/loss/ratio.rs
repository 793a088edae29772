//! The level of the probability ratio: one ratio for each token, as in GRPO, or one for each sequence, as in GSPO (Zheng
//! et al. 2025).
//!
//! A sequence of n tokens has the ratio `exp(mean of new - old)`, the n-th root of the ratio of its probabilities, so that
//! the clip means the same for short and long sequences. All its tokens share it. The reward belongs to the whole
//! episode, so the sequence of GSPO's definition is the trajectory: what the desktop answers in between is no choice of
//! the policy and cancels. A turn is the sequence of systems that train on one turn at a time, and the right one where
//! turns have advantages of their own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What has a probability ratio of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// Every token: GRPO and ARPO.
    Token,
    /// Every response of the agent: the mean over its tokens, in log space.
    Turn,
    /// The whole episode: the mean over all its trained tokens, in log space. GSPO.
    Trajectory,
}

/// The trained tokens of one turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnTokens {
    /// How many.
    pub count: usize,
    /// Added to the trajectory's advantage.
    pub advantage: f64,
}

/// Means over a whole trajectory, for a caller that has only some of its tokens at hand.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TrajectoryMeans {
    /// Mean of new - old.
    pub log_ratio: f64,
    /// Mean of old - behaviour; 0 without importance weights.
    pub log_importance: f64,
}

/// Mean of `new - old`; 0 without tokens.
pub fn mean_difference(new: &[f32], old: &[f32]) -> f64 {
    mean(&differences(new, old))
}

/// For every token the log-ratio of what it belongs to. `whole` is the trajectory's; without it these tokens are the
/// whole trajectory. Without `turns` they are one turn.
pub(super) fn log_ratios(
    new: &[f32],
    old: &[f32],
    level: RatioLevel,
    turns: &[TurnTokens],
    whole: Option<f64>,
) -> Vec<f64> {
    let mut ratios = differences(new, old);
    match level {
        RatioLevel::Token => {}
        RatioLevel::Turn => {
            let mut rest = ratios.as_mut_slice();
            for count in turn_lengths(turns, new.len()) {
                let (turn, later) = rest.split_at_mut(count);
                let shared = mean(turn);
                turn.fill(shared);
                rest = later;
            }
        }
        RatioLevel::Trajectory => {
            let shared = whole.unwrap_or_else(|| mean(&ratios));
            ratios.fill(shared);
        }
    }
    ratios
}

/// Numbers of tokens of the turns; they add up to `tokens`.
pub(super) fn turn_lengths(turns: &[TurnTokens], tokens: usize) -> impl Iterator<Item = usize> {
    assert!(
        turns.is_empty() || turns.iter().map(|turn| turn.count).sum::<usize>() == tokens,
        "the turns have all tokens"
    );
    let single = turns.is_empty().then_some(tokens);
    turns.iter().map(|turn| turn.count).chain(single)
}

fn differences(new: &[f32], old: &[f32]) -> Vec<f64> {
    new.iter().zip(old).map(|(&new, &old)| f64::from(new) - f64::from(old)).collect()
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_a_sequence_share_its_mean() {
        // differences 0.5, -0.25, 0.25, 0.0
        let (new, old) = ([-1.0f32, -1.25, -0.5, -2.0], [-1.5f32, -1.0, -0.75, -2.0]);
        let turns = [1, 2, 0, 1].map(|count| TurnTokens { count, advantage: 0.0 });
        let ratios = |level, whole| log_ratios(&new, &old, level, &turns, whole);
        assert_eq!(ratios(RatioLevel::Token, None), [0.5, -0.25, 0.25, 0.0]);
        assert_eq!(ratios(RatioLevel::Turn, None), [0.5, 0.0, 0.0, 0.0]);
        assert_eq!(ratios(RatioLevel::Trajectory, None), [0.125; 4]);
        // two of eight tokens: the other slices of the trajectory count, too
        assert_eq!(ratios(RatioLevel::Trajectory, Some(-0.5)), [-0.5; 4]);
        assert_eq!(log_ratios(&new, &old, RatioLevel::Turn, &[], None), [0.125; 4]);
        assert_eq!(mean_difference(&new, &old).to_bits(), 0.125f64.to_bits());
        assert!(log_ratios(&[], &[], RatioLevel::Trajectory, &[], None).is_empty());
    }
}
