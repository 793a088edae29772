//! The first messages between ranks.

use crate::token;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The version of everything between ranks; all must have the same.
pub(crate) const VERSION: u32 = 3;

/// What lets a process in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pass {
    /// The version between ranks.
    protocol: u32,
    /// The version of the program.
    program: String,
    /// The shared token; empty for none.
    token: String,
}

impl Pass {
    pub(crate) fn new(token: &str) -> Self {
        Self { protocol: VERSION, program: env!("CARGO_PKG_VERSION").into(), token: token.into() }
    }

    /// Whether the process may come in; an error says what was expected.
    pub(crate) fn check(&self, expected: &str) -> Result<(), String> {
        // first, so that whoever does not have it learns nothing else
        if !expected.is_empty() && !token::is_same(expected, &self.token) {
            let variable = token::TOKEN_VARIABLE;
            return Err(format!("another token: expected rank 0's {variable} in the environment"));
        }
        let Self { protocol, program, .. } = self;
        let ours = env!("CARGO_PKG_VERSION");
        if *protocol != VERSION || program != ours {
            return Err(format!(
                "version {program} with protocol {protocol} between ranks: expected {ours} with {VERSION}, rank 0's own"
            ));
        }
        Ok(())
    }
}

/// A process wants to be a rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    pub(crate) pass: Pass,
    /// Its host's name.
    pub(crate) host: String,
    /// Its process number.
    pub(crate) process: u32,
}

/// Rank 0 takes a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Welcome {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// What is added to the number of a rank other than 0 for its number in the run.
    pub(crate) offset: usize,
    /// All ranks are on one machine, so that nobody else needs to reach them.
    pub(crate) one_machine: bool,
    pub(crate) deadline_ms: u64,
    pub(crate) silence_ms: u64,
}

/// Rank 0 does not take a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refused {
    pub(crate) reason: String,
}

/// Where a rank listens for the rank before it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ready {
    pub(crate) port: u16,
}

/// Where the next rank listens.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Neighbour {
    /// Its address as rank 0 sees it; `None` for the machine of rank 0.
    pub(crate) host: Option<IpAddr>,
    pub(crate) port: u16,
}

/// The first message between neighbours.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RingHello {
    pub(crate) pass: Pass,
    pub(crate) rank: usize,
}

/// The name of this machine.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "a host".into() } else { name.chars().take(64).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_token_or_version_is_refused() {
        assert_eq!(Pass::new("t").check("t"), Ok(()));
        assert_eq!(Pass::new("t").check(""), Ok(()));
        assert!(Pass::new("u").check("t").unwrap_err().starts_with("another token: expected"));
        let old = Pass { program: "0.0.1".into(), ..Pass::new("t") };
        let problem = old.check("t").unwrap_err();
        assert!(problem.starts_with("version 0.0.1 with protocol 3 between ranks: expected"), "{problem}");
        // whoever has another token is not told the version
        assert!(Pass { protocol: 9, ..Pass::new("u") }.check("t").unwrap_err().starts_with("another token"));
    }
}
