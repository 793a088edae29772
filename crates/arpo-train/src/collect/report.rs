//! What is told of a collection: how much, how fast, what went wrong, how busy desktops and policy were.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What can go wrong with a desktop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It could not be made.
    Start,
    /// A reset or a step failed.
    Broken,
    /// A call did not return before its deadline.
    Overrun,
    /// Its code panicked.
    Panic,
    /// A screenshot without anything on it.
    BlackScreen,
    /// A screenshot of another size than the screen's.
    WrongSize,
    /// The evaluator failed, or gave no score.
    Evaluator,
    /// The task cannot be set up or judged: not the desktop's fault.
    BadTask,
}

impl FailureKind {
    /// As metrics name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Broken => "broken",
            Self::Overrun => "overrun",
            Self::Panic => "panic",
            Self::BlackScreen => "black_screen",
            Self::WrongSize => "wrong_size",
            Self::Evaluator => "evaluator",
            Self::BadTask => "bad_task",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a collection was like.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CollectReport {
    /// From its beginning to its end.
    pub seconds: f64,
    /// Episodes played to their own end.
    pub episodes: usize,
    /// Episodes that a failure ended.
    pub lost: usize,
    /// Lost episodes that another took the place of.
    pub refilled: usize,
    /// Groups that stayed smaller than planned.
    pub partial_groups: usize,
    /// Answers.
    pub steps: usize,
    /// Tokens of the answers.
    pub tokens: usize,
    /// Passes of the policy.
    pub passes: u64,
    /// Failures by kind; each ended an episode or a start.
    pub failures: BTreeMap<FailureKind, u64>,
    /// Desktops that were started in the place of a failed one.
    pub replacements: u64,
    /// Desktops out of use at the end.
    pub quarantined: usize,
    /// Share of the desktops' time in which they carried out a call: reset, act, be judged. All desktops, the whole
    /// collection.
    pub desktop_utilisation: f64,
    /// Share of the time in which a pass was running.
    pub policy_utilisation: f64,
}

/// Sums up while a collection is under way.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) report: CollectReport,
    pub(super) desktops_busy: Duration,
    pub(super) policy_busy: Duration,
}

impl Tally {
    pub(super) fn failure(&mut self, kind: FailureKind) {
        *self.report.failures.entry(kind).or_default() += 1;
    }

    /// The whole, after this time with this many desktops.
    pub(super) fn closed(mut self, elapsed: Duration, desktops: usize) -> CollectReport {
        let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        self.report.seconds = seconds;
        self.report.desktop_utilisation =
            self.desktops_busy.as_secs_f64() / (seconds * desktops.max(1) as f64);
        self.report.policy_utilisation = self.policy_busy.as_secs_f64() / seconds;
        self.report
    }
}
