//! The offline baselines of the paper: they learn from collected episodes, without fresh rollouts.
//!
//! - rejection sampling: imitate the successes (supervised);
//! - DPO (Rafailov et al. 2023): prefer a success to a failure of the same task;
//! - KTO (Ethayarajh et al. 2024): successes are desirable, failures undesirable, no pairs needed.
//!
//! DPO and KTO depend only on the sum of a trajectory's log-probabilities, so within a trajectory every token has the same
//! gradient: one value per trajectory is returned, not one per token.

use super::{log_sigmoid, sigmoid, sum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// DPO: prefer a success over a failure of the same task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DpoConfig {
    /// Strength of the tie to the reference model; smaller values allow larger changes.
    #[schemars(range(min = 0.0001, max = 100.0))]
    pub beta: f64,
    /// Assumed probability that a preference is mislabelled (conservative DPO).
    #[schemars(range(min = 0.0, max = 0.5))]
    pub label_smoothing: f64,
}

impl Default for DpoConfig {
    fn default() -> Self {
        Self { beta: 0.1, label_smoothing: 0.0 }
    }
}

/// KTO: successes are desirable, failures undesirable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KtoConfig {
    /// Strength of the tie to the reference model; smaller values allow larger changes.
    #[schemars(range(min = 0.0001, max = 100.0))]
    pub beta: f64,
    /// Weight of successes.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub desirable_weight: f64,
    /// Weight of failures.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub undesirable_weight: f64,
}

impl Default for KtoConfig {
    fn default() -> Self {
        Self { beta: 0.1, desirable_weight: 1.0, undesirable_weight: 1.0 }
    }
}

/// Log-probabilities of one trajectory's trained tokens.
#[derive(Debug, Clone, Copy)]
pub struct OfflineSample<'a> {
    /// Under the weights being updated.
    pub new_logp: &'a [f32],
    /// Under the reference model.
    pub reference_logp: &'a [f32],
}

impl OfflineSample<'_> {
    /// The log-ratio of the whole trajectory's probability, new over reference.
    pub fn log_ratio(&self) -> f64 {
        assert_eq!(self.new_logp.len(), self.reference_logp.len(), "number of reference log-probabilities");
        sum(self.new_logp) - sum(self.reference_logp)
    }
}

/// Rejection sampling: the share of a trajectory, or of a part of its tokens, in the mean of -logp over a batch, and dL/dlogp of
/// every one of these tokens. `scale` is the trajectory's entry of [`super::token_scales`] over that batch.
pub fn supervised_loss(new_logp: &[f32], scale: f64) -> (f64, f64) {
    (-scale * sum(new_logp), -scale)
}

/// One preference's loss, and dL/dlogp of every token of its two trajectories.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DpoLoss {
    /// The loss.
    pub value: f64,
    /// dL/dlogp of every token of the chosen trajectory.
    pub chosen_gradient: f64,
    /// dL/dlogp of every token of the rejected trajectory.
    pub rejected_gradient: f64,
    /// beta x (log-ratio of the chosen - log-ratio of the rejected): positive once the preference holds.
    pub margin: f64,
}

/// DPO on one pair.
pub fn dpo_loss(chosen: &OfflineSample, rejected: &OfflineSample, config: &DpoConfig) -> DpoLoss {
    let margin = config.beta * (chosen.log_ratio() - rejected.log_ratio());
    let smoothing = config.label_smoothing;
    let value = -(1.0 - smoothing) * log_sigmoid(margin) - smoothing * log_sigmoid(-margin);
    let slope = smoothing * sigmoid(margin) - (1.0 - smoothing) * sigmoid(-margin);
    let gradient = config.beta * slope;
    DpoLoss { value, chosen_gradient: gradient, rejected_gradient: -gradient, margin }
}

/// KTO's reference point: the mean log-ratio on mismatched pairs of prompt and trajectory, at least 0. It is treated as a
/// constant in the gradient.
pub fn kto_reference_point(mismatched: &[OfflineSample]) -> f64 {
    if mismatched.is_empty() {
        return 0.0;
    }
    let total: f64 = mismatched.iter().map(OfflineSample::log_ratio).sum();
    (total / mismatched.len() as f64).max(0.0)
}

/// KTO on one trajectory: the loss, and dL/dlogp of every one of its tokens.
pub fn kto_loss(
    sample: &OfflineSample,
    desirable: bool,
    reference_point: f64,
    config: &KtoConfig,
) -> (f64, f64) {
    let (weight, sign) =
        if desirable { (config.desirable_weight, 1.0) } else { (config.undesirable_weight, -1.0) };
    let value = sigmoid(sign * config.beta * (sample.log_ratio() - reference_point));
    (weight * (1.0 - value), -sign * weight * config.beta * value * (1.0 - value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::{Normaliser, token_scales};

    const NEW: [f32; 2] = [-0.5, -1.5];
    const REFERENCE: [f32; 2] = [-0.75, -2.0];

    fn sample<'a>(new_logp: &'a [f32], reference_logp: &'a [f32]) -> OfflineSample<'a> {
        OfflineSample { new_logp, reference_logp }
    }

    #[test]
    fn imitation_is_the_mean_of_minus_logp() {
        let scales = token_scales(&[2, 1], Normaliser::Token, 1);
        let (first, gradient) = supervised_loss(&NEW, scales[0]);
        let (second, other) = supervised_loss(&REFERENCE[..1], scales[1]);
        assert!((first + second - (0.5 + 1.5 + 0.75) / 3.0).abs() < 1e-12);
        assert_eq!((gradient, other), (-1.0 / 3.0, -1.0 / 3.0));
    }

    #[test]
    fn dpo_by_hand() {
        // log-ratios 0.75 and -0.75, beta 0.1: margin 0.15
        let config = DpoConfig::default();
        let loss = dpo_loss(&sample(&NEW, &REFERENCE), &sample(&REFERENCE, &NEW), &config);
        assert!((loss.margin - 0.15).abs() < 1e-12);
        assert!((loss.value - 0.620_957_047_789_532).abs() < 1e-12, "{}", loss.value);
        assert!((loss.chosen_gradient + 0.1 * 0.462_570_154_656_250_4).abs() < 1e-12);
        assert!((loss.chosen_gradient + loss.rejected_gradient).abs() < 1e-15);
    }

    #[test]
    fn kto_by_hand() {
        // at the reference point the value is 1/2 and the slope beta / 4, for successes and failures alike
        let config = KtoConfig { beta: 0.2, desirable_weight: 1.0, undesirable_weight: 2.0 };
        let at_reference = sample(&NEW, &REFERENCE);
        assert_eq!(kto_loss(&at_reference, true, 0.75, &config), (0.5, -0.05));
        assert_eq!(kto_loss(&at_reference, false, 0.75, &config), (1.0, 0.1));
    }

    #[test]
    fn reference_point_is_never_negative() {
        assert!((kto_reference_point(&[sample(&NEW, &REFERENCE)]) - 0.75).abs() < 1e-12);
        assert_eq!(kto_reference_point(&[sample(&REFERENCE, &NEW)]).to_bits(), 0.0f64.to_bits());
        assert_eq!(kto_reference_point(&[]).to_bits(), 0.0f64.to_bits());
    }

    #[test]
    fn extreme_margins_stay_finite() {
        let (low, high) = ([-9000.0f32], [-1.0f32]);
        let config = DpoConfig { beta: 1.0, label_smoothing: 0.1 };
        let loss = dpo_loss(&sample(&low, &high), &sample(&high, &low), &config);
        assert!(loss.value.is_finite() && loss.chosen_gradient.is_finite());
        let (value, gradient) = kto_loss(&sample(&low, &high), true, 0.0, &KtoConfig::default());
        assert!((value - 1.0).abs() < 1e-12 && gradient.abs() < 1e-12);
    }
}
