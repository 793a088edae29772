//! Statistics of a collection: counts, durations, failures, utilisation of desktops and policy.

use arpo_suite::HostUse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Why an episode or the start of a desktop failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It could not be started.
    Start,
    /// A reset or a step failed.
    Broken,
    /// A call did not return before its deadline.
    Overrun,
    /// Its code panicked.
    Panic,
    /// A completely black screenshot.
    BlackScreen,
    /// A screenshot of another size than the screen's.
    WrongSize,
    /// The evaluator failed, or returned no valid score.
    Evaluator,
    /// The task cannot be set up or evaluated: not the desktop's fault.
    BadTask,
    /// The policy gave no response: not the desktop's fault.
    NoResponse,
}

impl FailureKind {
    /// Its name in metrics.
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
            Self::NoResponse => "no_response",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Statistics of a collection.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectReport {
    /// Its duration.
    pub seconds: f64,
    /// Completed episodes.
    pub episodes: usize,
    /// Episodes that a failure ended, of a desktop or of the policy.
    pub lost: usize,
    /// Episodes that began although their task cannot be set up or evaluated.
    pub unplayable: usize,
    /// Lost episodes that were replaced by a refill.
    pub refilled: usize,
    /// Groups that stayed smaller than planned.
    pub partial_groups: usize,
    /// Responses.
    pub steps: usize,
    /// Tokens of the responses.
    pub tokens: usize,
    /// Passes of the policy.
    pub passes: u64,
    /// Failures by kind; each ended an episode or a start.
    pub failures: BTreeMap<FailureKind, u64>,
    /// Desktops started in place of a failed one.
    pub replacements: u64,
    /// Desktops in quarantine at the end.
    pub quarantined: usize,
    /// Share of the desktops' time spent executing calls (reset, act, evaluate), over all desktops and the whole
    /// collection.
    pub desktop_utilisation: f64,
    /// The same until the last planned episode began; after that, more and more desktops are idle.
    pub desktop_utilisation_until_last: f64,
    /// Share of the time in which a pass was running.
    pub policy_utilisation: f64,
    /// Prompt tokens that the policy found in its cache.
    pub cache_hits: u64,
    /// Prompt tokens that it computed again and that an unlimited cache would have held.
    pub recomputed: u64,
    /// What the hosts of the desktops did, by name; empty if there are no workers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, HostReport>,
}

/// What the desktops of a host did during a collection.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostReport {
    /// The time of its desktops, summed.
    pub desktop_seconds: f64,
    /// How much of that they were in calls.
    pub busy_seconds: f64,
    /// Failures of its desktops and workers.
    pub failures: u64,
}

impl HostReport {
    /// The share of its desktops' time that they were in calls.
    pub fn utilisation(self) -> f64 {
        if self.desktop_seconds > 0.0 { self.busy_seconds / self.desktop_seconds } else { 0.0 }
    }
}

/// What hosts did between two moments; a host that came in between has done nothing before.
pub(super) fn hosts_between(before: &[HostUse], after: Vec<HostUse>) -> BTreeMap<String, HostReport> {
    let none = HostUse::default();
    let difference = |now: HostUse| {
        let then = before.iter().find(|then| then.host == now.host).unwrap_or(&none);
        let report = HostReport {
            desktop_seconds: now.desktops.saturating_sub(then.desktops).as_secs_f64(),
            busy_seconds: now.busy.saturating_sub(then.busy).as_secs_f64(),
            failures: now.failures.saturating_sub(then.failures),
        };
        (now.host, report)
    };
    after.into_iter().map(difference).collect()
}

impl CollectReport {
    /// Of the prompt tokens that an unlimited cache would have held, the share found in the cache; 1 if there were none.
    pub fn cache_hit_rate(&self) -> f64 {
        let all = self.cache_hits + self.recomputed;
        if all == 0 { 1.0 } else { self.cache_hits as f64 / all as f64 }
    }

    /// Adds a later collection. Shares of time are weighted by the durations of the whole collections.
    pub fn add(&mut self, other: &Self) {
        let whole = (self.seconds + other.seconds).max(f64::MIN_POSITIVE);
        let weighted = |one: f64, two: f64| (one * self.seconds + two * other.seconds) / whole;
        self.desktop_utilisation = weighted(self.desktop_utilisation, other.desktop_utilisation);
        self.desktop_utilisation_until_last =
            weighted(self.desktop_utilisation_until_last, other.desktop_utilisation_until_last);
        self.policy_utilisation = weighted(self.policy_utilisation, other.policy_utilisation);
        self.seconds += other.seconds;
        self.episodes += other.episodes;
        self.lost += other.lost;
        self.unplayable += other.unplayable;
        self.refilled += other.refilled;
        self.partial_groups += other.partial_groups;
        self.steps += other.steps;
        self.tokens += other.tokens;
        self.passes += other.passes;
        self.cache_hits += other.cache_hits;
        self.recomputed += other.recomputed;
        self.replacements += other.replacements;
        self.quarantined = other.quarantined;
        for (&kind, &count) in &other.failures {
            *self.failures.entry(kind).or_default() += count;
        }
        for (host, other) in &other.hosts {
            let host = self.hosts.entry(host.clone()).or_default();
            host.desktop_seconds += other.desktop_seconds;
            host.busy_seconds += other.busy_seconds;
            host.failures += other.failures;
        }
    }
}

/// The running statistics of a collection.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) report: CollectReport,
    began: Instant,
    /// When the last planned episode began, and how long desktops had been busy by then.
    all_begun: Option<(Duration, Duration)>,
    pub(super) desktops_busy: Duration,
    pub(super) policy_busy: Duration,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            report: CollectReport::default(),
            began: Instant::now(),
            all_begun: None,
            desktops_busy: Duration::ZERO,
            policy_busy: Duration::ZERO,
        }
    }
}

impl Tally {
    /// Records that the last planned episode has begun; `in_calls` is the time that running calls have taken so far.
    pub(super) fn all_begun(&mut self, in_calls: Duration) {
        let (elapsed, busy) = (self.began.elapsed(), self.desktops_busy + in_calls);
        self.all_begun.get_or_insert((elapsed, busy));
    }

    pub(super) fn failure(&mut self, kind: FailureKind) {
        *self.report.failures.entry(kind).or_default() += 1;
    }

    /// The final report, for this number of desktops.
    pub(super) fn closed(mut self, desktops: usize) -> CollectReport {
        let elapsed = self.began.elapsed();
        let share = |busy: Duration, elapsed: Duration, of: usize| {
            let all = elapsed.as_secs_f64() * of.max(1) as f64;
            // the clocks are not read at the same moment, so a full share may come out slightly above 1
            if all > 0.0 { (busy.as_secs_f64() / all).min(1.0) } else { 0.0 }
        };
        let (until_last, busy_until_last) = self.all_begun.unwrap_or((elapsed, self.desktops_busy));
        self.report.seconds = elapsed.as_secs_f64();
        self.report.desktop_utilisation = share(self.desktops_busy, elapsed, desktops);
        self.report.desktop_utilisation_until_last = share(busy_until_last, until_last, desktops);
        self.report.policy_utilisation = share(self.policy_busy, elapsed, 1);
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_reported_by_what_they_did_since() {
        let used = |host: &str, desktops, busy, failures| HostUse {
            host: host.into(),
            desktops: Duration::from_secs(desktops),
            busy: Duration::from_secs(busy),
            failures,
            received: 0,
        };
        let before = [used("a", 100, 50, 3)];
        let report = hosts_between(&before, vec![used("a", 140, 80, 4), used("b", 10, 0, 0)]);
        assert_eq!(report["a"], HostReport { desktop_seconds: 40.0, busy_seconds: 30.0, failures: 1 });
        assert!((report["a"].utilisation() - 0.75).abs() < 1e-12 && report["b"].utilisation() == 0.0);
        let mut all = CollectReport { hosts: report.clone(), ..CollectReport::default() };
        all.add(&CollectReport { hosts: report, ..CollectReport::default() });
        assert_eq!(all.hosts["a"], HostReport { desktop_seconds: 80.0, busy_seconds: 60.0, failures: 2 });
    }

    #[test]
    fn shares_of_time_are_weighted_by_the_duration_of_their_collection() {
        let report = |seconds: f64, share: f64| CollectReport {
            seconds,
            desktop_utilisation: share,
            desktop_utilisation_until_last: share + 0.25,
            policy_utilisation: share / 2.0,
            ..CollectReport::default()
        };
        let mut all = report(30.0, 0.5);
        all.add(&report(10.0, 0.25));
        // (30 x 0.5 + 10 x 0.25) / 40
        assert_eq!(all, report(40.0, 0.4375));
        let mut none = CollectReport::default();
        none.add(&CollectReport::default());
        assert_eq!(none, CollectReport::default());
    }
}
