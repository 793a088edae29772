//! The distribution tokens are sampled from. Sampler and learner share it, with the same temperature and the same
//! forbidden tokens, so that the learner's log-probabilities are those of the sampler.

use arpo_torch::kernels::Kernels;
use arpo_torch::kernels::sample::{RowSample, bitmask};
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
    kernels: Kernels,
}

impl Forbidden {
    /// These tokens; an empty slice forbids none. The kernels are the device's.
    pub fn new(tokens: &[u32], device: Device, kernels: &Kernels) -> Self {
        let bitmask = bitmask(tokens).to_device(device);
        let tokens: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
        let tokens = (!tokens.is_empty()).then(|| Tensor::from_slice(&tokens).to_device(device));
        Self { tokens, bitmask, kernels: kernels.clone() }
    }

    /// Whether there are kernels for [`Forbidden::sample`].
    pub fn has_kernels(&self) -> bool {
        self.kernels.sampling().is_some()
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
        self.kernels.sampling()?.sample(logits, &self.bitmask, rows)
    }
}
