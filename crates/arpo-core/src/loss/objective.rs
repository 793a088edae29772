//! The objective of one token, given its probability ratio and advantage: with a clip, or with a soft gate.
//!
//! - clip (PPO, GRPO): `max(-A r, -A clip(r, 1 - low, 1 + high))`, and for A < 0 at most `-A dual` (dual clip);
//! - soft gate (SAPO, Gao et al. 2025): `-A (4 / tau) sigmoid(tau (r - 1))`. Its gradient equals the unclipped one at
//!   r = 1 and fades as the ratio moves away on either side, instead of falling to 0 at an edge. Bad tokens have a higher
//!   temperature tau, so that their gradient, which raises all other tokens, fades sooner.

use super::policy::LossConfig;
use super::sigmoid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What keeps the policy near the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// A clip: no gradient beyond `clip_low`, `clip_high` and `clip_dual`. PPO, GRPO, ARPO, GSPO.
    Clip,
    /// A soft gate: the gradient fades with the temperatures `tau_positive` and `tau_negative`. SAPO.
    SoftGate,
}

/// One token's objective, its derivative with respect to the new log-probability, and what clipped it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TokenObjective {
    pub(super) value: f64,
    pub(super) derivative: f64,
    /// The low or high clip removed the gradient.
    pub(super) clipped: bool,
    /// The dual clip removed the gradient.
    pub(super) clipped_dual: bool,
}

/// The objective of a token.
pub(super) fn token_objective(log_ratio: f64, advantage: f64, config: &LossConfig) -> TokenObjective {
    match config.objective {
        Objective::Clip => clip(log_ratio.exp(), advantage, config),
        Objective::SoftGate => soft_gate(log_ratio.exp(), advantage, config),
    }
}

fn clip(ratio: f64, advantage: f64, config: &LossConfig) -> TokenObjective {
    let plain = -advantage * ratio;
    let bounded = -advantage * ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high);
    let clipped = plain < bounded;
    let value = plain.max(bounded);
    let ceiling = -advantage * config.clip_dual;
    let clipped_dual = advantage < 0.0 && config.clip_dual > 0.0 && value > ceiling;
    // d(-A r)/dlogp = -A r, and 0 where a clip is active
    let derivative = if clipped || clipped_dual { 0.0 } else { plain };
    TokenObjective { value: if clipped_dual { ceiling } else { value }, derivative, clipped, clipped_dual }
}

fn soft_gate(ratio: f64, advantage: f64, config: &LossConfig) -> TokenObjective {
    let tau = if advantage > 0.0 { config.tau_positive } else { config.tau_negative };
    let gate = sigmoid(tau * (ratio - 1.0));
    let value = -advantage * 4.0 / tau * gate;
    // d sigmoid = sigmoid (1 - sigmoid), and dr/dlogp = r; the gate closes faster than an enormous ratio grows
    let slope = 4.0 * gate * (1.0 - gate);
    let derivative = if slope > 0.0 { -advantage * slope * ratio } else { 0.0 };
    TokenObjective { value, derivative, clipped: false, clipped_dual: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(log_ratio: f64, advantage: f64, config: &LossConfig) -> (f64, f64, bool, bool) {
        let TokenObjective { value, derivative, clipped, clipped_dual } =
            token_objective(log_ratio, advantage, config);
        (value, derivative, clipped, clipped_dual)
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
    fn soft_gates_by_hand() {
        let config = LossConfig { objective: Objective::SoftGate, ..LossConfig::default() };
        let close = |log_ratio: f64, advantage: f64, value: f64, derivative: f64| {
            let (found, slope, clipped, dual) = one(log_ratio, advantage, &config);
            assert!((found - value).abs() < 1e-9 && (slope - derivative).abs() < 1e-9, "{found}, {slope}");
            assert!(!clipped && !dual);
        };
        // at a ratio of 1 the gate is half open: 4 / tau / 2, and the gradient that of the plain objective
        close(0.0, 2.0, -4.0, -2.0);
        close(0.0, -2.0, 4.0 / 1.05, 2.0);
        // ratio 2, A = 1: sigmoid(1) = 0.731058579, and 4 x 0.731058579 x 0.268941421 x 2
        close(2.0f64.ln(), 1.0, -2.924_234_315, -1.572_895_466);
        // ratio 1/2, A = -1, tau 1.05: sigmoid(-0.525) = 0.371683812, and 4 x 0.371683812 x 0.628316188 / 2
        close(0.5f64.ln(), -1.0, 1.415_938_330, 0.467_069_912);
    }

    /// The gate fades where the clip would already have cut, and sooner for bad tokens.
    #[test]
    fn the_gate_closes_softly() {
        let config = LossConfig { objective: Objective::SoftGate, ..LossConfig::default() };
        let slope = |ratio: f64, advantage: f64| one(ratio.ln(), advantage, &config).1.abs() / ratio;
        assert!(slope(1.0, 1.0) > slope(1.5, 1.0) && slope(1.5, 1.0) > slope(4.0, 1.0));
        assert!(slope(4.0, 1.0) > 0.0 && slope(0.2, 1.0) < 1.0);
        assert!(slope(1.5, -1.0) < slope(1.5, 1.0));
        // a ratio beyond all bounds has no gradient, and no NaN
        assert_eq!(one(800.0, 1.0, &config), (-4.0, 0.0, false, false));
    }
}
