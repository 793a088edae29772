//! Advantages from the rewards of a group (rollouts of the same task).
//!
//! Every trained token of a member gets that member's advantage. A group without information (one member, or equal
//! rewards) has advantages of exactly 0, so a caller may skip it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Added to the standard deviation, as in the released code.
const STD_EPSILON: f64 = 1e-6;

/// How rewards are compared within a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdvantageKind {
    /// (reward - mean) / (unbiased standard deviation + 1e-6).
    Grpo,
    /// reward - mean: Dr. GRPO, which does not amplify groups of small spread.
    DrGrpo,
    /// reward - mean of the others.
    Rloo,
}

/// How advantages are computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdvantageConfig {
    /// How rewards are compared within a group.
    pub kind: AdvantageKind,
    /// GiGPO: weight of the step advantages, which compare the steps of a group at equal screenshots by their discounted
    /// returns, in the same way. They are added to the advantage of the episode. 0 switches them off.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub step_weight: f64,
    /// Discount of the returns that step advantages compare, per turn still to come.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub step_discount: f64,
}

impl Default for AdvantageConfig {
    fn default() -> Self {
        Self { kind: AdvantageKind::Grpo, step_weight: 0.0, step_discount: 0.95 }
    }
}

/// The advantage of each member of a group.
pub fn group_advantages(rewards: &[f64], kind: AdvantageKind) -> Vec<f64> {
    if !has_spread(rewards) {
        return vec![0.0; rewards.len()];
    }
    let count = rewards.len() as f64;
    let mean = rewards.iter().sum::<f64>() / count;
    let scale = match kind {
        AdvantageKind::Grpo => {
            let squares: f64 = rewards.iter().map(|reward| (reward - mean).powi(2)).sum();
            1.0 / ((squares / (count - 1.0)).sqrt() + STD_EPSILON)
        }
        AdvantageKind::DrGrpo => 1.0,
        // r - (sum - r) / (n - 1) = (r - mean) n / (n - 1)
        AdvantageKind::Rloo => count / (count - 1.0),
    };
    rewards.iter().map(|reward| (reward - mean) * scale).collect()
}

/// Whether the group carries information: two members with different rewards.
#[expect(clippy::float_cmp, reason = "equal rewards are bit-identical, not approximately equal")]
pub fn has_spread(rewards: &[f64]) -> bool {
    rewards.windows(2).any(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(actual: &[f64], expected: &[f64]) {
        assert_eq!(actual.len(), expected.len());
        for (a, e) in actual.iter().zip(expected) {
            assert!((a - e).abs() < 1e-5, "{actual:?} is not {expected:?}");
        }
    }

    /// One success among 8: the values of the paper's replayed group.
    #[test]
    fn one_success_among_eight() {
        let mut rewards = [0.0; 8];
        rewards[0] = 1.0;
        let advantages = group_advantages(&rewards, AdvantageKind::Grpo);
        close(&advantages[..2], &[2.474_866_7, -0.353_552_3]);
    }

    #[test]
    fn without_std_and_leave_one_out() {
        let rewards = [1.0, 0.0, 0.0, 1.0];
        close(&group_advantages(&rewards, AdvantageKind::DrGrpo), &[0.5, -0.5, -0.5, 0.5]);
        let two_thirds = 2.0 / 3.0;
        let rloo = group_advantages(&rewards, AdvantageKind::Rloo);
        close(&rloo, &[two_thirds, -two_thirds, -two_thirds, two_thirds]);
    }

    #[test]
    fn nothing_to_learn_is_exactly_zero() {
        for kind in [AdvantageKind::Grpo, AdvantageKind::DrGrpo, AdvantageKind::Rloo] {
            assert_eq!(group_advantages(&[], kind), Vec::<f64>::new());
            assert_eq!(group_advantages(&[0.7], kind), [0.0]);
            // 0.1 three times has a mean that is not 0.1 in floating point
            assert_eq!(group_advantages(&[0.1, 0.1, 0.1], kind), [0.0; 3]);
        }
    }
}
