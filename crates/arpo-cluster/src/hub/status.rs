//! How the cluster is at a moment: what `arpo cluster status` and the metrics of a run show.

use super::registry::{Connection, Desktop, Registry};
use crate::protocol::Call;
use crate::protocol::status::{ClusterStatus, DesktopStatus, WorkerStatus};
use arpo_suite::HostUse;
use std::time::{Duration, Instant};

impl Registry {
    /// What the hosts have done so far, with what is going on.
    pub(super) fn uses(&self, now: Instant) -> Vec<HostUse> {
        let mut uses = self.hosts.uses();
        for worker in self.workers.values() {
            let Some(used) = uses.iter_mut().find(|used| used.host == worker.host) else { continue };
            for Desktop { since, pending, .. } in worker.desktops.values() {
                used.desktops += now.saturating_duration_since(*since);
                let calling = pending.as_ref().map(|pending| now.saturating_duration_since(pending.since));
                used.busy += calling.unwrap_or_default();
            }
        }
        uses
    }

    /// All of it, for a user.
    pub(super) fn status(&self, listening: Duration, wanted: usize, now: Instant) -> ClusterStatus {
        let seconds = |since: Instant| now.saturating_duration_since(since).as_secs_f64();
        let desktop = |desktop: &Desktop| DesktopStatus {
            slot: desktop.slot,
            task: desktop.task.as_ref().map(ToString::to_string),
            call: desktop
                .pending
                .as_ref()
                .map(|pending| (name(&pending.call).into(), seconds(pending.since))),
        };
        let workers = self.workers.values().map(|worker| WorkerStatus {
            host: worker.host.clone(),
            process: worker.process,
            capacity: worker.capacity,
            lost_seconds: match worker.connection {
                Connection::Up { .. } => None,
                Connection::Lost { since } => Some(seconds(since)),
            },
            desktops: worker.desktops.values().map(desktop).collect(),
        });
        ClusterStatus {
            seconds: listening.as_secs_f64(),
            wanted,
            lost_workers: self.lost,
            hosts: self.uses(now).into_iter().map(|used| self.hosts.status(used, now)).collect(),
            workers: workers.collect(),
        }
    }
}

fn name(call: &Call) -> &'static str {
    match call {
        Call::Make { .. } => "make",
        Call::Reset { .. } => "reset",
        Call::Step { .. } => "step",
        Call::Evaluate {} => "evaluate",
        Call::Inspect {} => "inspect",
        Call::Close {} => "close",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Quarantine;
    use crate::hub::registry::tests::registry;
    use std::sync::mpsc::channel;

    #[test]
    fn a_host_is_used_as_long_as_its_desktops_are_in_calls() {
        let start = Instant::now();
        let mut registry = registry(&[("a", "one", 2)], Quarantine::default());
        let at = registry.place(0, channel().0, start).unwrap();
        assert!(registry.call(&at, 1, Call::Evaluate {}, start));
        let later = Instant::now() + Duration::from_secs(10);
        let status = registry.status(Duration::from_secs(9), 4, later);
        assert!((status.hosts[0].utilisation - 1.0).abs() < 0.1, "{status:?}");
        let [worker] = &status.workers[..] else { panic!() };
        assert_eq!((worker.capacity, worker.desktops.len(), worker.lost_seconds), (2, 1, None));
        assert_eq!(worker.desktops[0].call.as_ref().unwrap().0, "evaluate");
        registry.release(&at);
        let [used] = &registry.uses(later)[..] else { panic!() };
        assert!(used.desktops < Duration::from_secs(5), "its time ended with it: {used:?}");
    }
}
