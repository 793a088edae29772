//! The sections that steer how episodes are collected: how many, in which order, how long a desktop may take, and which
//! faults are played on purpose.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How episodes are collected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CollectConfig {
    /// Tasks per iteration.
    #[schemars(range(min = 1, max = 100_000))]
    pub tasks: usize,
    /// Rollouts per task: the group whose rewards are compared.
    #[schemars(range(min = 2, max = 10_000))]
    pub group_size: usize,
    /// An episode is cut off after this many turns.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_steps: usize,
    /// Sampling temperature while training.
    #[schemars(range(min = 0.01, max = 10.0))]
    pub temperature: f64,
    /// Desktops at once. It need not divide the number of episodes.
    #[schemars(range(min = 1, max = 10_000))]
    pub desktops: usize,
    /// Episodes under way at once at most; desktops beyond that are reset ahead for the next episodes. 0: as many as the
    /// cache holds, so that none has to be read again.
    #[schemars(range(max = 10_000))]
    pub running: usize,
    /// Whether the learner works while the next episodes are played.
    pub mode: CollectMode,
    /// In an overlapped run, how many versions old the weights may be that episodes are played with.
    #[schemars(range(min = 1, max = 1000))]
    pub staleness: u64,
    /// Who waits for whom.
    pub order: Order,
    /// A desktop may take this long to start, in seconds ...
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub start_seconds: f64,
    /// ... to be reset for an episode, ...
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub reset_seconds: f64,
    /// ... for one action with its screenshot, ...
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub step_seconds: f64,
    /// ... and to be judged. One that takes longer is given up and replaced.
    #[schemars(range(min = 0.001, max = 86_400.0))]
    pub evaluate_seconds: f64,
    /// A desktop that failed is replaced at once; after the second failure in a row this many seconds pass before, and
    /// twice as many after each further one, up to 64 times as many.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub back_off_seconds: f64,
    /// A desktop is not replaced any more after this many failures in a row. It gets one more chance in each
    /// iteration.
    #[schemars(range(min = 1, max = 1000))]
    pub quarantine_after: usize,
    /// Episodes of a group that are played again at most because their desktop failed; then the group stays smaller.
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

/// When episodes are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectMode {
    /// With the weights just learnt, as in the paper; the learner waits.
    Synchronous,
    /// While the learner works, with weights a little older.
    Overlapped,
}

/// Who waits for whom while episodes are collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// All desktops act, then the policy answers all of them: the same seed gives the same episodes to the bit, however
    /// desktops are timed.
    Rounds,
    /// Each desktop advances on its own, and the policy answers whatever waits: fastest.
    Arrival,
    /// As rounds, and the next episodes begin only when all have ended, as in the released code: for comparison.
    LockStep,
}

/// Faults that are played on purpose, to see that a run survives them. Rates are per call of a desktop; a call has one
/// fault at most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FaultsConfig {
    /// The desktop breaks during a reset or a step, and stays broken.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub crash: f64,
    /// A call does not come back before its deadline.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub hang: f64,
    /// A call takes `slow_seconds` more; no failure unless that passes its deadline.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub slow: f64,
    /// How much longer a slow call takes.
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
        self.together() > 0.0
    }

    /// The chance that a call has a fault, at most.
    pub(super) fn together(&self) -> f64 {
        let Self { crash, hang, slow, black_screen, truncated_screen, evaluator_error, .. } = self;
        crash + hang + slow + black_screen + truncated_screen + evaluator_error
    }
}
