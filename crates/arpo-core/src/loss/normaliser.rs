//! The weight of one token of a trajectory in the loss of a batch.
//!
//! The scales are computed once for the whole batch and passed to its micro-batches, so splitting a batch does not change
//! its gradient.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The divisor of a trajectory's sum over tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Normaliser {
    /// The trajectory's number of trained tokens; all trajectories have equal weight. As in the paper.
    Trajectory,
    /// The batch's number of trained tokens; all tokens have equal weight.
    Token,
    /// A constant, so that long failures are not penalised less per token. Trajectories are then averaged.
    Constant,
}

/// The weight of every token of each trajectory, given their numbers of trained tokens. `constant_tokens` is used by
/// [`Normaliser::Constant`] only. The scale of a trajectory without trained tokens is 0.
pub fn token_scales(trained_tokens: &[usize], normaliser: Normaliser, constant_tokens: usize) -> Vec<f64> {
    let trajectories = trained_tokens.len() as f64;
    let total: usize = trained_tokens.iter().sum();
    trained_tokens
        .iter()
        .map(|&tokens| match normaliser {
            _ if tokens == 0 => 0.0,
            Normaliser::Trajectory => 1.0 / (trajectories * tokens as f64),
            Normaliser::Token => 1.0 / total as f64,
            Normaliser::Constant => 1.0 / (trajectories * constant_tokens as f64),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let lengths = [2, 0, 8];
        assert_eq!(token_scales(&lengths, Normaliser::Trajectory, 1), [1.0 / 6.0, 0.0, 1.0 / 24.0]);
        assert_eq!(token_scales(&lengths, Normaliser::Token, 1), [0.1, 0.0, 0.1]);
        assert_eq!(token_scales(&lengths, Normaliser::Constant, 100), [1.0 / 300.0, 0.0, 1.0 / 300.0]);
        assert_eq!(token_scales(&[], Normaliser::Token, 1), [0.0; 0]);
    }
}
