//! The reward of an episode: the task's score plus a penalty for unparsable responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a score becomes a reward.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RewardConfig {
    /// An episode is a success if its score is above this: for replay, task selection, effort, and in every report.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub success_above: f64,
    /// Weight of the format reward, which is -1 for an episode with an unparsable response and 0 otherwise.
    /// The paper uses 1.0, the released code 0.5.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub format_weight: f64,
    /// Evaluate the task even if an unparsable response ended the episode, as in the released code: the earlier actions may
    /// have solved it. Otherwise the score is 0.
    pub judge_unparsable: bool,
}

impl Default for RewardConfig {
    fn default() -> Self {
        Self { success_above: 0.1, format_weight: 0.5, judge_unparsable: false }
    }
}

impl RewardConfig {
    /// Whether a score counts as a success.
    pub fn is_success(&self, score: f64) -> bool {
        score > self.success_above
    }
}

/// score + weight x format.
pub fn reward(score: f64, well_formed: bool, config: &RewardConfig) -> f64 {
    score + config.format_weight * format_reward(well_formed)
}

/// 0 for an episode whose responses could all be parsed, -1 otherwise.
pub fn format_reward(well_formed: bool) -> f64 {
    if well_formed { 0.0 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paper_and_released_code() {
        let with = |format_weight| RewardConfig { format_weight, ..RewardConfig::default() };
        assert_eq!(reward(1.0, true, &with(1.0)).to_bits(), 1.0f64.to_bits());
        assert_eq!(reward(0.0, false, &with(1.0)).to_bits(), (-1.0f64).to_bits());
        assert_eq!(reward(0.0, false, &with(0.5)).to_bits(), (-0.5f64).to_bits());
        assert_eq!(reward(0.25, false, &with(0.0)).to_bits(), 0.25f64.to_bits());
    }
}
