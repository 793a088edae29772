//! The sections for episode collection: how many episodes, in which order, the deadlines of a desktop, and injected
//! faults.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How episodes are collected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CollectConfig {
    /// Tasks per iteration.
    #[schemars(range(min = 1, max = 100_000))]
    pub tasks: usize,
    /// Rollouts per task: the group that advantages are computed over.
    #[schemars(range(min = 2, max = 10_000))]
    pub group_size: usize,
    /// Step limit: an episode is truncated after this many turns.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_steps: usize,
    /// Sampling temperature while training.
    #[schemars(range(min = 0.01, max = 10.0))]
    pub temperature: f64,
    /// Desktops that run in parallel. The number need not divide the number of episodes.
    #[schemars(range(min = 1, max = 10_000))]
    pub desktops: usize,
    /// Maximum number of concurrent episodes; the other desktops are reset in advance for the next episodes. 0: as many as
    /// the KV cache holds, so that no episode is evicted and prefilled again.
    #[schemars(range(max = 10_000))]
    pub running: usize,
    /// Whether the learner updates while the next episodes are collected.
    pub mode: CollectMode,
    /// In an overlapped run, how many versions old the weights that sample may be.
    #[schemars(range(min = 1, max = 1000))]
    pub staleness: u64,
    /// How desktops and policy are synchronised.
    pub order: Order,
    /// Deadline for starting a desktop, in seconds.
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub start_seconds: f64,
    /// Deadline for resetting a desktop, in seconds.
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub reset_seconds: f64,
    /// Deadline for one action with its screenshot, in seconds.
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub step_seconds: f64,
    /// Deadline for the evaluation of an episode, in seconds. A desktop that misses a deadline is replaced.
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub evaluate_seconds: f64,
    /// Back-off before a desktop is replaced, in seconds. The first failure is replaced at once; the second in a row waits
    /// this long, and each further one twice as long, up to 64 times.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub back_off_seconds: f64,
    /// A desktop is quarantined after this many failures in a row. It is tried once more in each iteration.
    #[schemars(range(min = 1, max = 1000))]
    pub quarantine_after: usize,
    /// How many episodes of a group are repeated at most because their desktop failed; beyond that the group stays smaller.
    #[schemars(range(max = 10_000))]
    pub refills: usize,
}

impl Default for CollectConfig {
    fn default() -> Self {
        Self {
            tasks: 8,
            group_size: 8,
            max_steps: 15,
            temperature: 1.0,
            desktops: 64,
            running: 0,
            mode: CollectMode::Synchronous,
            staleness: 1,
            order: Order::Rounds,
            start_seconds: 300.0,
            reset_seconds: 120.0,
            step_seconds: 30.0,
            evaluate_seconds: 120.0,
            back_off_seconds: 1.0,
            quarantine_after: 5,
            refills: 8,
        }
    }
}

/// When episodes are collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectMode {
    /// Collect with the current weights, then update, as in the paper.
    Synchronous,
    /// Collect while the learner updates, with slightly older weights.
    Overlapped,
}

/// How desktops and policy are synchronised during collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// All desktops act, then the policy responds to all of them. The same seed gives bit-identical episodes, whatever the
    /// timing of the desktops.
    Rounds,
    /// Each desktop advances on its own, and the policy responds to whatever is pending. This is the fastest.
    Arrival,
    /// As `rounds`, but the next episodes start only when all have ended, as in the released code. For comparison.
    LockStep,
}

/// Fault injection, to test that a run survives failures. Rates are probabilities per call of a desktop; a call has at most
/// one fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FaultsConfig {
    /// The desktop breaks during a reset or a step, and stays broken.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub crash: f64,
    /// A call does not return before its deadline.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub hang: f64,
    /// A call takes `slow_seconds` longer; it fails only if it then misses its deadline.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub slow: f64,
    /// How much longer a slow call takes, in seconds.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub slow_seconds: f64,
    /// The screenshot after a reset or a step is black.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub black_screen: f64,
    /// The screenshot after a reset or a step lacks its lower half.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub truncated_screen: f64,
    /// The evaluator fails.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub evaluator_error: f64,
}

impl Default for FaultsConfig {
    fn default() -> Self {
        Self {
            crash: 0.0,
            hang: 0.0,
            slow: 0.0,
            slow_seconds: 1.0,
            black_screen: 0.0,
            truncated_screen: 0.0,
            evaluator_error: 0.0,
        }
    }
}

impl FaultsConfig {
    /// True if any fault may happen.
    pub fn any(&self) -> bool {
        self.total_rate() > 0.0
    }

    /// The sum of the rates: an upper bound on the probability that a call has a fault.
    pub(super) fn total_rate(&self) -> f64 {
        let Self { crash, hang, slow, black_screen, truncated_screen, evaluator_error, .. } = self;
        crash + hang + slow + black_screen + truncated_screen + evaluator_error
    }
}
