//! What is known of hosts: failures in a row, quarantine, and which tasks they could not set up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Longest quarantine, as a multiple of the first.
const LONGEST_QUARANTINE: u32 = 16;

/// When a host is given no more work, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quarantine {
    /// Failures in a row before it.
    pub after: usize,
    /// How long the first is; each further one is twice as long.
    pub first: Duration,
}

impl Default for Quarantine {
    fn default() -> Self {
        Self { after: 8, first: Duration::from_mins(1) }
    }
}

/// All hosts, by name.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    quarantine: Quarantine,
    by_name: BTreeMap<String, Host>,
    /// The hosts on which a task could not be set up or evaluated.
    bad_tasks: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Host {
    /// In a row.
    failures: usize,
    all_failures: u64,
    quarantines: u32,
    quarantined_until: Option<Instant>,
}

/// What a user may want to know of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostReport {
    /// Its name.
    pub host: String,
    /// Failures of its desktops, in all.
    pub failures: u64,
    /// How often it was quarantined.
    pub quarantines: u32,
}

impl Hosts {
    pub(super) fn new(quarantine: Quarantine) -> Self {
        Self { quarantine, ..Self::default() }
    }

    /// A worker is on it.
    pub(super) fn seen(&mut self, host: &str) {
        self.by_name.entry(host.to_owned()).or_default();
    }

    /// One of its desktops did what it should.
    pub(super) fn succeeded(&mut self, host: &str) {
        if let Some(host) = self.by_name.get_mut(host) {
            host.failures = 0;
        }
    }

    /// One of its desktops failed. Returns how long the host is quarantined, if this was too much.
    pub(super) fn failed(&mut self, host: &str, now: Instant) -> Option<Duration> {
        let host = self.by_name.entry(host.to_owned()).or_default();
        host.failures += 1;
        host.all_failures += 1;
        if host.failures < self.quarantine.after || host.quarantined_until.is_some_and(|until| now < until) {
            return None;
        }
        let time = self.quarantine.first * (1 << host.quarantines.min(LONGEST_QUARANTINE.ilog2()));
        host.quarantines += 1;
        host.failures = 0;
        host.quarantined_until = Some(now + time);
        Some(time)
    }

    pub(super) fn is_quarantined(&self, host: &str, now: Instant) -> bool {
        let until = self.by_name.get(host).and_then(|host| host.quarantined_until);
        until.is_some_and(|until| now < until)
    }

    /// A task could not be set up there. True if it is so on this host only.
    pub(super) fn bad_task(&mut self, host: &str, task: &str) -> bool {
        let hosts = self.bad_tasks.entry(task.to_owned()).or_default();
        hosts.insert(host.to_owned());
        hosts.len() == 1
    }

    /// By name.
    pub(super) fn report(&self) -> Vec<HostReport> {
        let report = |(name, host): (&String, &Host)| HostReport {
            host: name.clone(),
            failures: host.all_failures,
            quarantines: host.quarantines,
        };
        self.by_name.iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_quarantined_for_longer_each_time() {
        let first = Duration::from_secs(10);
        let mut hosts = Hosts::new(Quarantine { after: 3, first });
        let start = Instant::now();
        assert_eq!((hosts.failed("a", start), hosts.failed("a", start)), (None, None));
        hosts.succeeded("a");
        assert_eq!((hosts.failed("a", start), hosts.failed("a", start)), (None, None));
        assert_eq!(hosts.failed("a", start), Some(first));
        assert!(hosts.is_quarantined("a", start) && !hosts.is_quarantined("b", start));
        // those that were still running there count, but do not make it longer
        for _ in 0..9 {
            assert_eq!(hosts.failed("a", start), None);
        }
        let later = start + first;
        assert!(!hosts.is_quarantined("a", later));
        assert_eq!(hosts.failed("a", later), Some(2 * first));
        let mut at = later;
        for times in [4, 8, 16, 16] {
            at += Duration::from_hours(1);
            let times_out = (0..3).filter_map(|_| hosts.failed("a", at)).collect::<Vec<_>>();
            assert_eq!(times_out, [times * first]);
        }
        assert_eq!(
            hosts.report(),
            [HostReport { host: "a".into(), failures: 2 + 3 + 9 + 1 + 12, quarantines: 6 }]
        );
    }

    #[test]
    fn a_task_is_blamed_on_the_second_host() {
        let mut hosts = Hosts::default();
        assert!(hosts.bad_task("a", "t") && hosts.bad_task("a", "t"));
        assert!(!hosts.bad_task("b", "t") && !hosts.bad_task("a", "t"));
        assert!(hosts.bad_task("b", "u"));
    }
}
