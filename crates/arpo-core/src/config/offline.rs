//! The section `offline`: the methods that learn from collected episodes.

use crate::loss::offline::{DpoConfig, KtoConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The offline methods, which learn from collected episodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OfflineConfig {
    /// Passes over the collected episodes.
    #[schemars(range(min = 1, max = 10_000))]
    pub epochs: usize,
    /// DPO: prefer a success over a failure of the same task.
    pub dpo: DpoConfig,
    /// KTO: successes are desirable, failures undesirable.
    pub kto: KtoConfig,
}

impl Default for OfflineConfig {
    fn default() -> Self {
        Self { epochs: 3, dpo: DpoConfig::default(), kto: KtoConfig::default() }
    }
}
