//! KL estimates against a reference model, per token.
//!
//! The four kinds and the clamp are those of the released code (EasyR1's `compute_kl`); ARPO itself uses no KL term.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The released code clamps the low-variance estimate to this.
const LOW_VARIANCE_LIMIT: f64 = 10.0;

/// The KL estimator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlKind {
    /// new - reference.
    Kl,
    /// |new - reference|.
    Abs,
    /// (new - reference)^2 / 2.
    Mse,
    /// exp(reference - new) - (reference - new) - 1, at most 10 (Schulman's k3).
    LowVarKl,
}

/// The estimate for one token and its derivative with respect to the new log-probability.
pub fn kl(new_logp: f64, reference_logp: f64, kind: KlKind) -> (f64, f64) {
    let difference = new_logp - reference_logp;
    match kind {
        KlKind::Kl => (difference, 1.0),
        KlKind::Abs if difference == 0.0 => (0.0, 0.0),
        KlKind::Abs => (difference.abs(), difference.signum()),
        KlKind::Mse => (0.5 * difference * difference, difference),
        KlKind::LowVarKl => {
            let ratio = (-difference).exp();
            let estimate = ratio + difference - 1.0;
            if estimate > LOW_VARIANCE_LIMIT { (LOW_VARIANCE_LIMIT, 0.0) } else { (estimate, 1.0 - ratio) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivatives_agree_with_finite_differences() {
        let (new, reference, h) = (-1.2, -0.7, 1e-6);
        for kind in [KlKind::Kl, KlKind::Abs, KlKind::Mse, KlKind::LowVarKl] {
            let slope = (kl(new + h, reference, kind).0 - kl(new - h, reference, kind).0) / (2.0 * h);
            assert!((kl(new, reference, kind).1 - slope).abs() < 1e-8, "{kind:?}");
        }
    }

    #[test]
    fn far_apart_is_clamped_and_flat() {
        assert_eq!(kl(-9.0, -1.0, KlKind::LowVarKl), (10.0, 0.0));
        assert_eq!(kl(-1.0, -1.0, KlKind::Abs), (0.0, 0.0));
    }
}
