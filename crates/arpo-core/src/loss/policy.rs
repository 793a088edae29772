//! The clipped policy objective of GRPO and ARPO.
//!
//! For a token with advantage A and probability ratio r = exp(new - old) it minimises
//! `max(-A r, -A clip(r, 1 - low, 1 + high))`, and for A < 0 at most `-A dual` (dual clip), plus a KL term;
//! the paper's equation with the released code's additions (EasyR1's `compute_policy_loss`).
//!
//! The old log-probabilities are those of the current policy before the update, also for replayed trajectories, so ratios
//! start at 1. Where another policy sampled the tokens (a stale sampler, a stored success), [`PolicySample::behaviour`]
//! holds its log-probabilities, and each token is weighted by `min(exp(old - behaviour), truncation)`.

use super::kl::{KlKind, kl};
use super::normaliser::{Normaliser, token_scales};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The policy loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Lower clip: a token has no gradient once its probability ratio has fallen below 1 - `clip_low`.
    #[schemars(range(min = 0.0, max = 0.99))]
    pub clip_low: f64,
    /// Upper clip: a token has no gradient once its probability ratio has risen above 1 + `clip_high`.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub clip_high: f64,
    /// Dual clip: for negative advantages the ratio is capped at this value, above 1. 0 switches it off, as in the paper; the
    /// released code uses 3.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub clip_dual: f64,
    /// The divisor of a trajectory's sum over tokens.
    pub normaliser: Normaliser,
    /// The divisor of `normaliser = "constant"`, in tokens.
    #[schemars(range(min = 1))]
    pub constant_tokens: usize,
    /// The KL estimator of the penalty against the reference model.
    pub kl: KlKind,
    /// Weight of the KL penalty. With 0, as in ARPO, no reference model is loaded.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub kl_coefficient: f64,
    /// Source of the old log-probabilities of fresh tokens. Those of replayed tokens are always recomputed.
    pub old: OldLogp,
    /// Truncated importance sampling: a fresh token has the weight min(exp(old - sampler), this), where sampler is the
    /// log-probability it was sampled with. 0 switches it off.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub importance_truncation: f64,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self {
            clip_low: 0.2,
            clip_high: 0.3,
            clip_dual: 0.0,
            normaliser: Normaliser::Trajectory,
            constant_tokens: 1024,
            kl: KlKind::LowVarKl,
            kl_coefficient: 0.0,
            old: OldLogp::Learner,
            importance_truncation: 0.0,
        }
    }
}

/// Where the old log-probabilities come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldLogp {
    /// Those of the sampler: no extra forward pass is needed, and the ratio corrects for a stale sampler.
    Sampler,
    /// Recomputed by the learner before the first update of the iteration, as in the released code.
    Learner,
}

/// The trained tokens of one trajectory; the slices are of the same length.
#[derive(Debug, Clone, Copy)]
pub struct PolicySample<'a> {
    /// The trajectory's advantage, the same for all its tokens.
    pub advantage: f64,
    /// Under the weights being updated.
    pub new_logp: &'a [f32],
    /// Under the weights before the update.
    pub old_logp: &'a [f32],
    /// Under the reference model; used only if `kl_coefficient` is not 0.
    pub reference_logp: Option<&'a [f32]>,
    /// The policy that sampled the tokens, and the truncation of the weights; `None` for no correction.
    pub behaviour: Option<Behaviour<'a>>,
}

/// The behaviour policy: it sampled the tokens and is not the old policy.
#[derive(Debug, Clone, Copy)]
pub struct Behaviour<'a> {
    /// Its log-probabilities of the tokens.
    pub logp: &'a [f32],
    /// The maximum weight of a token.
    pub truncation: f64,
}

impl Behaviour<'_> {
    /// For a range of the tokens.
    #[must_use]
    pub fn of(self, tokens: Range<usize>) -> Self {
        Self { logp: &self.logp[tokens], ..self }
    }
}

/// Value, gradient and metrics.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PolicyLoss {
    /// The loss.
    pub value: f64,
    /// dL/dlogp of every token, by trajectory.
    pub gradient: Vec<Vec<f32>>,
    /// Sums over tokens.
    pub statistics: LossStatistics,
}

/// Sums over tokens, so that those of micro-batches add up; the methods are the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossStatistics {
    /// How many tokens.
    pub tokens: usize,
    /// Tokens whose gradient the low or high clip removed.
    pub clipped: usize,
    /// Tokens whose gradient the dual clip removed.
    pub clipped_dual: usize,
    /// Sum of old - new.
    pub old_minus_new: f64,
    /// Sum of the KL estimates against the reference model.
    pub reference_kl: f64,
    /// Sum of importance weights.
    pub importance: f64,
    /// Tokens whose importance weight was truncated.
    pub truncated: usize,
}

impl LossStatistics {
    /// Fraction of tokens clipped by the low or high clip.
    pub fn clip_fraction(&self) -> f64 {
        self.per_token(self.clipped as f64)
    }

    /// Fraction of tokens clipped by the dual clip.
    pub fn clip_fraction_dual(&self) -> f64 {
        self.per_token(self.clipped_dual as f64)
    }

    /// How far the policy has moved in the update: mean of old - new.
    pub fn policy_kl(&self) -> f64 {
        self.per_token(self.old_minus_new)
    }

    /// Mean KL against the reference model.
    pub fn reference_kl(&self) -> f64 {
        self.per_token(self.reference_kl)
    }

    /// Mean importance weight; 1 without correction.
    pub fn mean_importance(&self) -> f64 {
        self.per_token(self.importance)
    }

    /// Fraction of tokens whose importance weight was truncated.
    pub fn truncated_fraction(&self) -> f64 {
        self.per_token(self.truncated as f64)
    }

    /// Adds another micro-batch's sums.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.clipped += other.clipped;
        self.clipped_dual += other.clipped_dual;
        self.old_minus_new += other.old_minus_new;
        self.reference_kl += other.reference_kl;
        self.importance += other.importance;
        self.truncated += other.truncated;
    }

    fn per_token(&self, sum: f64) -> f64 {
        if self.tokens == 0 { 0.0 } else { sum / self.tokens as f64 }
    }
}

/// The loss of a whole optimiser batch.
pub fn policy_loss(batch: &[PolicySample], config: &LossConfig) -> PolicyLoss {
    let lengths: Vec<usize> = batch.iter().map(|sample| sample.new_logp.len()).collect();
    let scales = token_scales(&lengths, config.normaliser, config.constant_tokens);
    let mut loss = PolicyLoss::default();
    for (sample, scale) in batch.iter().zip(scales) {
        let (value, gradient, statistics) = sample_loss(sample, scale, config);
        loss.value += value;
        loss.gradient.push(gradient);
        loss.statistics.add(&statistics);
    }
    loss
}

/// One trajectory's share of a batch's loss: `scale` is its entry of [`token_scales`] over that batch.
pub fn sample_loss(
    sample: &PolicySample,
    scale: f64,
    config: &LossConfig,
) -> (f64, Vec<f32>, LossStatistics) {
    let tokens = sample.new_logp.len();
    assert_eq!(sample.old_logp.len(), tokens, "number of old log-probabilities");
    let has_kl = config.kl_coefficient > 0.0;
    let reference = sample.reference_logp.filter(|_| has_kl);
    assert!(!has_kl || reference.is_some(), "a KL term needs the reference's log-probabilities");
    assert!(reference.is_none_or(|logps| logps.len() == tokens), "number of reference log-probabilities");
    assert!(sample.behaviour.is_none_or(|b| b.logp.len() == tokens), "number of behaviour log-probabilities");

    let mut statistics = LossStatistics { tokens, ..LossStatistics::default() };
    let mut value = 0.0;
    let mut gradient = Vec::with_capacity(tokens);
    for token in 0..tokens {
        let (new, old) = (f64::from(sample.new_logp[token]), f64::from(sample.old_logp[token]));
        let clipped = clipped_objective(new - old, sample.advantage, config);
        let weight = match sample.behaviour {
            None => 1.0,
            Some(behaviour) => {
                let weight = (old - f64::from(behaviour.logp[token])).exp();
                let truncated = weight > behaviour.truncation;
                statistics.truncated += usize::from(truncated);
                // not `min`, which would turn a NaN weight into the truncation
                if truncated { behaviour.truncation } else { weight }
            }
        };
        let (mut token_value, mut token_gradient) = (weight * clipped.value, weight * clipped.derivative);
        if let Some(reference) = reference {
            let (estimate, derivative) = kl(new, f64::from(reference[token]), config.kl);
            token_value += config.kl_coefficient * estimate;
            token_gradient += config.kl_coefficient * derivative;
            statistics.reference_kl += estimate;
        }
        value += scale * token_value;
        gradient.push((scale * token_gradient) as f32);
        statistics.clipped += usize::from(clipped.higher);
        statistics.clipped_dual += usize::from(clipped.lower);
        statistics.old_minus_new += old - new;
        statistics.importance += weight;
    }
    (value, gradient, statistics)
}

/// One token's objective, its derivative with respect to the new log-probability, and what clipped it.
struct Clipped {
    value: f64,
    derivative: f64,
    higher: bool,
    lower: bool,
}

fn clipped_objective(log_ratio: f64, advantage: f64, config: &LossConfig) -> Clipped {
    let ratio = log_ratio.exp();
    let plain = -advantage * ratio;
    let bounded = -advantage * ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high);
    let higher = plain < bounded;
    let value = plain.max(bounded);
    let ceiling = -advantage * config.clip_dual;
    let lower = advantage < 0.0 && config.clip_dual > 0.0 && value > ceiling;
    // d(-A r)/dlogp = -A r, and 0 where a clip is active
    let derivative = if higher || lower { 0.0 } else { plain };
    Clipped { value: if lower { ceiling } else { value }, derivative, higher, lower }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(log_ratio: f64, advantage: f64, config: &LossConfig) -> (f64, f64, bool, bool) {
        let clipped = clipped_objective(log_ratio, advantage, config);
        (clipped.value, clipped.derivative, clipped.higher, clipped.lower)
    }

    #[test]
    fn clips_by_hand() {
        let config = LossConfig { clip_dual: 3.0, ..LossConfig::default() };
        assert_eq!(one(0.0, 2.0, &config), (-2.0, -2.0, false, false));
        // a good token is not pushed beyond 1.3, a bad one not below 0.8
        assert_eq!(one(2.0f64.ln(), 1.0, &config), (-1.3, 0.0, true, false));
        assert_eq!(one(0.5f64.ln(), -1.0, &config), (0.8, 0.0, true, false));
        // but a good one is still pushed up from 0.5 and a bad one down from 2; from 10 the dual clip stops it
        assert_eq!(one(0.5f64.ln(), 1.0, &config), (-0.5, -0.5, false, false));
        assert_eq!(one(2.0f64.ln(), -1.0, &config), (2.0, 2.0, false, false));
        assert_eq!(one(10.0f64.ln(), -1.0, &config), (3.0, 0.0, false, true));
        let no_dual = LossConfig::default();
        let (value, derivative, _, lower) = one(10.0f64.ln(), -1.0, &no_dual);
        assert!((value - 10.0).abs() < 1e-12 && (derivative - 10.0).abs() < 1e-12 && !lower);
    }

    #[test]
    fn importance_weights_are_truncated() {
        let (new, old) = ([-1.0f32, -1.0], [-1.0f32, -1.0]);
        let behaviour = [-1.0 - 0.5f32.ln(), -1.0 - 8.0f32.ln()]; // weights 0.5 and 8
        let sample = PolicySample {
            advantage: 1.0,
            new_logp: &new,
            old_logp: &old,
            reference_logp: None,
            behaviour: Some(Behaviour { logp: &behaviour, truncation: 2.0 }),
        };
        let (value, gradient, statistics) = sample_loss(&sample, 1.0, &LossConfig::default());
        assert!((value + 2.5).abs() < 1e-6);
        assert!((gradient[0] + 0.5).abs() < 1e-6 && (gradient[1] + 2.0).abs() < 1e-6);
        assert!((statistics.mean_importance() - 1.25).abs() < 1e-6);
        assert_eq!(statistics.truncated, 1);
    }

    #[test]
    fn no_tokens_no_loss() {
        let sample = PolicySample {
            advantage: 1.0,
            new_logp: &[],
            old_logp: &[],
            reference_logp: None,
            behaviour: None,
        };
        let loss = policy_loss(&[sample], &LossConfig::default());
        assert_eq!(loss, PolicyLoss { gradient: vec![vec![]], ..PolicyLoss::default() });
        assert!(loss.statistics.policy_kl().abs() < f64::EPSILON);
    }
}
