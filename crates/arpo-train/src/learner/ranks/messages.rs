//! What rank 0 and the others say to each other while they sample and learn. Numbers of the loss travel as bytes, because
//! JSON has neither NaN nor infinity.

use crate::learner::Scorer;
use crate::learner::micro_batches::SliceIndex;
use crate::policy::engine::SamplingParams;
use crate::policy::{CacheUse, Response};
use arpo_core::trajectory::{ImageRef, PolicyVersion, Trajectory};
use serde::{Deserialize, Serialize};

/// Rank 0 to another rank. Work and requests have numbers, so that what is left of cancelled ones is recognised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Command {
    /// The next trajectory of the work that follows. They are numbered from 0.
    Trajectory(Box<Trajectory>),
    /// A screenshot, whose PNG is the payload.
    Screen(ImageRef),
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
    /// Sample a response, beginning with the next `Generate`: the tokens of the prompt are the payload, and these its
    /// screenshots, by their digests.
    Request { number: u64, screens: Vec<String>, sampling: SamplingParams },
    /// The requests since the last `Generate` are complete: compute them together, so that what is in a batch does not depend
    /// on when they arrive.
    Generate {},
    /// Drop all requests.
    DropRequests {},
    /// The weights as they are now have this version; what was computed with older ones is discarded.
    Publish { version: PolicyVersion },
    /// The weights that rank 0 broadcasts next have this version: sample with them from now on.
    TakeWeights { version: PolicyVersion },
    /// Give back the device memory that only sampling needs.
    ReleaseMemory {},
}

/// Another rank to rank 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Answer {
    /// Log-probabilities and entropies of a micro-batch's trained tokens, one after the other, are the payload.
    Scores { number: u64 },
    /// A micro-batch was not computed, because an earlier one was not finite.
    NotComputed { number: u64 },
    /// The log-probabilities of all trained tokens of all micro-batches, in order, are the payload.
    LogProbs { number: u64 },
    /// The response to a request: its tokens, and after them their log-probabilities, are the payload.
    Response { number: u64, text: String, complete: bool, version: PolicyVersion, cache: CacheUse },
}

impl Answer {
    /// The number of the work or request that it belongs to.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Scores { number }
            | Self::NotComputed { number }
            | Self::LogProbs { number }
            | Self::Response { number, .. } => *number,
        }
    }

    /// The answer to a request, with its payload.
    pub(super) fn response(number: u64, response: Response, cache: CacheUse) -> (Self, Vec<u8>) {
        let Response { text, tokens, logp, complete, version } = response;
        let payload = [tokens_to_bytes(&tokens), to_bytes(&logp)].concat();
        (Self::Response { number, text, complete, version, cache }, payload)
    }
}

/// The tokens and log-probabilities of a response.
pub(crate) fn response_values(payload: &[u8]) -> (Vec<u32>, Vec<f32>) {
    let (tokens, logp) = payload.split_at(payload.len() / 2);
    (tokens_from_bytes(tokens), from_bytes(logp))
}

pub(super) fn tokens_to_bytes(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

pub(super) fn tokens_from_bytes(bytes: &[u8]) -> Vec<u32> {
    let token = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.chunks_exact(4).map(token).collect()
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

    #[test]
    fn a_response_travels_to_the_bit() {
        let response = Response {
            text: "Action: wait()".into(),
            tokens: vec![7, u32::MAX, 151_645],
            logp: vec![-0.25, f32::MIN_POSITIVE, -17.5],
            complete: true,
            version: PolicyVersion(3),
        };
        let cache = CacheUse { hits: 5, recomputed: 1 };
        let (answer, payload) = Answer::response(9, response.clone(), cache);
        assert_eq!(answer.number(), 9);
        assert_eq!(response_values(&payload), (response.tokens, response.logp));
    }
}
