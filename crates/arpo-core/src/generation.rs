//! OSWorld's generations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A version of OSWorld: task files, servers in guests, and functions of the same name differ between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Generation {
    /// OSWorld as ARPO used it.
    #[default]
    ArpoEra,
    /// OSWorld-Verified, the later revision.
    Verified,
}

impl Generation {
    /// All of them, the oldest first.
    pub const ALL: [Self; 2] = [Self::ArpoEra, Self::Verified];

    /// Its name on command lines.
    pub fn key(self) -> &'static str {
        match self {
            Self::ArpoEra => "arpo-era",
            Self::Verified => "verified",
        }
    }
}
