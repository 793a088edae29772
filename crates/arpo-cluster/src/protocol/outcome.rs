//! How the results and errors of environments travel.

use arpo_env::environment::EnvironmentError;
use serde::{Deserialize, Serialize};

/// Longest text of an error; a guest's output may be much longer than anybody reads.
const LONGEST_REASON: usize = 4096;

/// What a call resulted in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// The desktop exists.
    Made {
        /// Same task, seed and actions give the same pixels and score.
        deterministic: bool,
        /// Width and height of its screen, if known.
        size: Option<(u32, u32)>,
    },
    /// The episode has started.
    Started {
        /// Width and height of its screen, if known.
        size: Option<(u32, u32)>,
    },
    /// The action was carried out.
    Stepped {
        /// The agent ended the episode.
        terminated: bool,
        /// The environment did.
        truncated: bool,
        /// The screen is the same as after the call before: none is sent.
        unchanged: bool,
    },
    /// The score, as the bits of its number: JSON has no way to write one that is not finite.
    Scored {
        /// The bits.
        bits: u64,
    },
    /// What the host has.
    Inspected(Inspection),
    /// The call failed.
    Failed(Failure),
}

/// What a worker found out about its host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspection {
    /// Processors.
    pub processors: usize,
    /// Memory, if that is known.
    pub memory_gib: Option<f64>,
    /// Why desktops cannot be started there: no Docker engine, no image; `None` if they can.
    pub problem: Option<String>,
}

/// An environment's error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Failure {
    /// The task cannot be set up or evaluated.
    BadTask {
        /// Which.
        task: String,
        /// Why.
        reason: String,
    },
    /// There is no episode.
    NoEpisode {},
    /// The call took too long.
    Deadline {
        /// The call.
        during: String,
    },
    /// The desktop broke.
    Broken {
        /// How.
        reason: String,
    },
}

impl From<EnvironmentError> for Failure {
    fn from(error: EnvironmentError) -> Self {
        match error {
            EnvironmentError::BadTask { task, reason } => {
                Self::BadTask { task: shortened(task), reason: shortened(reason) }
            }
            EnvironmentError::NoEpisode => Self::NoEpisode {},
            EnvironmentError::Deadline { during } => Self::Deadline { during: shortened(during.into()) },
            EnvironmentError::Broken { reason } => Self::Broken { reason: shortened(reason) },
        }
    }
}

impl From<Failure> for EnvironmentError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::BadTask { task, reason } => Self::BadTask { task, reason },
            Failure::NoEpisode {} => Self::NoEpisode,
            Failure::Deadline { during } => Self::Deadline { during: known_call(&during) },
            Failure::Broken { reason } => Self::Broken { reason },
        }
    }
}

/// The names of calls that environments use.
fn known_call(name: &str) -> &'static str {
    let known = ["reset", "step", "evaluate", "an injected hang"];
    known.into_iter().find(|known| *known == name).unwrap_or("a call")
}

/// The text, cut where a character begins.
fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_REASON {
        text.truncate(text.floor_char_boundary(LONGEST_REASON));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_arrive_as_they_were() {
        let errors = [
            EnvironmentError::BadTask { task: "t".into(), reason: "r".into() },
            EnvironmentError::NoEpisode,
            EnvironmentError::Deadline { during: "evaluate" },
            EnvironmentError::Broken { reason: "b".into() },
        ];
        for error in errors {
            assert_eq!(EnvironmentError::from(Failure::from(error.clone())), error);
        }
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let reason = "é".repeat(LONGEST_REASON);
        let Failure::Broken { reason } = Failure::from(EnvironmentError::Broken { reason }) else { panic!() };
        assert!(reason.len() <= LONGEST_REASON + '…'.len_utf8() && reason.ends_with("é…"));
    }
}
