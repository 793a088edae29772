//! The distribution tokens are sampled from. Sampler and learner share it, with the same temperature and the same
//! forbidden tokens, so that the learner's log-probabilities are those of the sampler.

use arpo_torch::kernels::sample::{self, RowSample};
use tch::{Device, Kind, Tensor};

/// Low enough that its probability is exactly 0, and still finite, so that 0 times it is 0.
const FORBIDDEN_LOGIT: f64 = -1e30;

/// Tokens that may not occur in a response: image placeholders, roles. One sampled placeholder would misalign an
/// episode.
#[derive(Debug)]
pub struct Forbidden {
    tokens: Option<Tensor>,
    /// The same for the sampling kernels.
    bitmask: Tensor,
}

impl Forbidden {
    /// These tokens; an empty slice forbids none.
    pub fn new(tokens: &[u32], device: Device) -> Self {
        let bitmask = sample::bitmask(tokens).to_device(device);
        let tokens: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
        Self { tokens: (!tokens.is_empty()).then(|| Tensor::from_slice(&tokens).to_device(device)), bitmask }
    }

    /// Logits `[rows, vocabulary]` divided by the temperature (a scalar, or one for each row), in f32, with forbidden
    /// tokens masked.
    pub fn scaled(&self, logits: &Tensor, temperature: &Tensor) -> Tensor {
        let logits = logits.to_kind(Kind::Float) / temperature;
        match &self.tokens {
            None => logits,
            Some(tokens) => logits.index_fill(1, tokens, FORBIDDEN_LOGIT),
        }
    }

    /// The log-softmax that is sampled from, in f32: `[rows, vocabulary]`.
    pub fn log_distribution(&self, logits: &Tensor, temperature: &Tensor) -> Tensor {
        self.scaled(logits, temperature).log_softmax(-1, Kind::Float)
    }

    /// A token sampled from each row of logits and its log-probability, f64 `[rows, 2]`: the same distribution as
    /// [`Forbidden::log_distribution`], up to rounding. `None` where there is no kernel.
    pub fn sample(&self, logits: &Tensor, rows: &[RowSample]) -> Option<Tensor> {
        sample::sample(logits, &self.bitmask, rows)
    }
}
