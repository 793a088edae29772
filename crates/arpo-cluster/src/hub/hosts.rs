//! What is known of hosts: failures in a row, quarantine, and which tasks they could not set up.

use super::registry::Desktop;
use crate::protocol::status::HostStatus;
use arpo_suite::HostUse;
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
    last_failure: Option<String>,
    /// The time of its desktops that are gone.
    desktops: Duration,
    /// The time of calls that are over.
    busy: Duration,
    /// Bytes of its screens.
    received: u64,
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

    /// One of its desktops or workers failed. Returns how long the host is quarantined, if this was too much.
    pub(super) fn failed(&mut self, host: &str, reason: &str, now: Instant) -> Option<Duration> {
        let host = self.by_name.entry(host.to_owned()).or_default();
        host.last_failure = Some(reason.to_owned());
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

    /// A desktop is not there any more, perhaps in the middle of a call.
    pub(super) fn desktop_gone(&mut self, host: &str, desktop: &Desktop, now: Instant) {
        let host = self.by_name.entry(host.to_owned()).or_default();
        host.desktops += now.saturating_duration_since(desktop.since);
        let calling = desktop.pending.as_ref().map(|pending| now.saturating_duration_since(pending.since));
        host.busy += calling.unwrap_or_default();
    }

    /// A call took this time, and brought a screen of so many bytes.
    pub(super) fn call_over(&mut self, host: &str, time: Duration, bytes: usize) {
        let host = self.by_name.entry(host.to_owned()).or_default();
        host.busy += time;
        host.received += bytes as u64;
    }

    /// By name, without what is going on.
    pub(super) fn uses(&self) -> Vec<HostUse> {
        let of = |(name, host): (&String, &Host)| HostUse {
            host: name.clone(),
            desktops: host.desktops,
            busy: host.busy,
            failures: host.all_failures,
            received: host.received,
        };
        self.by_name.iter().map(of).collect()
    }

    /// A host and what it is used for, for the user.
    pub(super) fn status(
        &self,
        HostUse { host, desktops, busy, failures, received }: HostUse,
        now: Instant,
    ) -> HostStatus {
        let known = self.by_name.get(&host);
        let until = known.and_then(|known| known.quarantined_until);
        let left = until.map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero());
        HostStatus {
            host,
            utilisation: busy.as_secs_f64() / desktops.as_secs_f64().max(f64::MIN_POSITIVE),
            failures,
            received,
            last_failure: known.and_then(|known| known.last_failure.clone()),
            quarantines: known.map_or(0, |known| known.quarantines),
            quarantined_seconds: left.map(|left| left.as_secs_f64()),
        }
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
        assert_eq!((hosts.failed("a", "why", start), hosts.failed("a", "why", start)), (None, None));
        hosts.succeeded("a");
        assert_eq!((hosts.failed("a", "why", start), hosts.failed("a", "why", start)), (None, None));
        assert_eq!(hosts.failed("a", "why", start), Some(first));
        assert!(hosts.is_quarantined("a", start) && !hosts.is_quarantined("b", start));
        // those that were still running there count, but do not make it longer
        for _ in 0..9 {
            assert_eq!(hosts.failed("a", "why", start), None);
        }
        let later = start + first;
        assert!(!hosts.is_quarantined("a", later));
        assert_eq!(hosts.failed("a", "why", later), Some(2 * first));
        let mut at = later;
        for times in [4, 8, 16, 16] {
            at += Duration::from_hours(1);
            let times_out = (0..3).filter_map(|_| hosts.failed("a", "why", at)).collect::<Vec<_>>();
            assert_eq!(times_out, [times * first]);
        }
        let [used] = &hosts.uses()[..] else { panic!() };
        assert_eq!(used.failures, 2 + 3 + 9 + 1 + 12);
        let status = hosts.status(used.clone(), at);
        assert_eq!((status.quarantines, status.last_failure.as_deref()), (6, Some("why")));
        assert_eq!(status.quarantined_seconds, Some(160.0));
    }

    #[test]
    fn a_task_is_blamed_on_the_second_host() {
        let mut hosts = Hosts::default();
        assert!(hosts.bad_task("a", "t") && hosts.bad_task("a", "t"));
        assert!(!hosts.bad_task("b", "t") && !hosts.bad_task("a", "t"));
        assert!(hosts.bad_task("b", "u"));
    }
}
