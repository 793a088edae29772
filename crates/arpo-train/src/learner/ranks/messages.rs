//! What rank 0 and the others say to each other while they learn. Numbers of the loss travel as bytes, because JSON has
//! neither NaN nor infinity.

use crate::learner::Scorer;
use crate::learner::micro_batches::SliceIndex;
use arpo_core::trajectory::Trajectory;
use serde::{Deserialize, Serialize};

/// Rank 0 to another rank. Work has a number, so that what is left of cancelled work is recognised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Command {
    /// The next trajectory of the work that follows. They are numbered from 0.
    Trajectory(Box<Trajectory>),
    /// A screenshot, which is the payload, in RGB.
    Screen { digest: String, width: u32, height: u32 },
    /// Forget all screenshots.
    ForgetScreens {},
    /// Compute the log-probabilities of the trained tokens of these micro-batches.
    LogProbs { number: u64, scorer: Scorer, batches: Vec<Vec<SliceIndex>> },
    /// Compute these micro-batches of an update, one a round; after each forward pass wait for the loss.
    Update { number: u64, batches: Vec<Vec<SliceIndex>>, rounds: usize },
    /// The loss of the micro-batch that was computed last: its value and coefficients are the payload.
    Loss { number: u64 },
    /// This round goes on without a micro-batch of yours.
    Pass { number: u64 },
    /// Sum the gradients and update the weights.
    Finish { number: u64, learning_rate: f64 },
    /// Abandon the work; the weights stay as they are.
    Cancel { number: u64 },
    /// Gather the optimiser's moments on rank 0.
    GatherMoments {},
}

/// Another rank to rank 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Answer {
    /// Log-probabilities and entropies of a micro-batch's trained tokens, one after the other, are the payload.
    Scores { number: u64 },
    /// A micro-batch was not computed, because an earlier one was not finite.
    NotComputed { number: u64 },
    /// The log-probabilities of all trained tokens of all micro-batches, in order, are the payload.
    LogProbs { number: u64 },
}

impl Answer {
    /// The number of the work that it belongs to.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Scores { number } | Self::NotComputed { number } | Self::LogProbs { number } => *number,
        }
    }
}

pub(super) fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(super) fn from_bytes(bytes: &[u8]) -> Vec<f32> {
    let value = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.chunks_exact(4).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_travel_to_the_bit() {
        let values = [0.0, -0.0, 1.5, f32::NAN, f32::NEG_INFINITY, f32::MIN_POSITIVE / 2.0];
        let back = from_bytes(&to_bytes(&values));
        assert_eq!(back.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), values.map(f32::to_bits));
    }
}
