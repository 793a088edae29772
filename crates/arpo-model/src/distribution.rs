//! The distribution tokens are sampled from. Sampler and learner share it: the same temperature, the same tokens left
//! out, so that the learner's log-probabilities are those of what was sampled.

use arpo_torch::kernels::draw::{self, RowDraw};
use tch::{Device, Kind, Tensor};

/// Low enough that its probability is exactly 0, and still a number, so that 0 times it is 0.
const FORBIDDEN_LOGIT: f64 = -1e30;

/// Tokens that may not occur in an action: pictures' placeholders, roles. One sampled placeholder would misalign an
/// episode.
#[derive(Debug)]
pub struct Forbidden {
    tokens: Option<Tensor>,
    /// The same for the kernels that draw.
    bits: Tensor,
}

impl Forbidden {
    /// These tokens, none to leave none out.
    pub fn new(tokens: &[u32], device: Device) -> Self {
        let bits = draw::bits(tokens).to_device(device);
        let tokens: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
        Self { tokens: (!tokens.is_empty()).then(|| Tensor::from_slice(&tokens).to_device(device)), bits }
    }

    /// Logits `[rows, vocabulary]` over the temperature (a number, or one for each row), in f32, the forbidden ones as
    /// good as minus infinity.
    pub fn scaled(&self, logits: &Tensor, temperature: &Tensor) -> Tensor {
        let logits = logits.to_kind(Kind::Float) / temperature;
        match &self.tokens {
            None => logits,
            Some(tokens) => logits.index_fill(1, tokens, FORBIDDEN_LOGIT),
        }
    }

    /// Logarithms of the distribution that is sampled from, in f32: `[rows, vocabulary]`.
    pub fn log_distribution(&self, logits: &Tensor, temperature: &Tensor) -> Tensor {
        self.scaled(logits, temperature).log_softmax(-1, Kind::Float)
    }

    /// A token from each row of logits and its log-probability, f64 `[rows, 2]`: what a draw from the distribution above
    /// gives, up to rounding. `None` where there is no kernel for that.
    pub fn draw(&self, logits: &Tensor, rows: &[RowDraw]) -> Option<Tensor> {
        draw::draw(logits, &self.bits, rows)
    }
}
