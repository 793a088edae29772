//! Who hosts which desktop: workers, their desktops and what these were asked, and which host gets the next.
//!
//! Plain state without sockets or clocks of its own. It is locked for moments only, never during a call.

use super::hosts::{Hosts, Quarantine};
use crate::link::Link;
use crate::protocol::{Answer, Call, Message, Request};
use arpo_core::task::TaskId;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// All workers.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) workers: BTreeMap<String, Worker>,
    /// What is known of their hosts.
    pub(super) hosts: Hosts,
    /// The host of the last desktop of each slot that failed.
    failed_on: BTreeMap<usize, String>,
    desktops: u64,
    connections: u64,
    /// Workers that were lost, in all.
    pub(super) lost: u64,
    /// No more workers and desktops are taken.
    pub(super) closed: bool,
}

/// A worker, as it introduced itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Introduction {
    pub(super) worker: String,
    pub(super) host: String,
    pub(super) process: u32,
    pub(super) capacity: usize,
}

pub(super) struct Worker {
    pub(super) host: String,
    pub(super) process: u32,
    pub(super) capacity: usize,
    pub(super) desktops: BTreeMap<u64, Desktop>,
    pub(super) connection: Connection,
}

pub(super) enum Connection {
    Up { number: u64, link: Link },
    Lost { since: Instant },
}

pub(super) struct Desktop {
    pub(super) slot: usize,
    pub(super) since: Instant,
    /// Of its last reset.
    pub(super) task: Option<TaskId>,
    pub(super) replies: Sender<Answer>,
    pub(super) pending: Option<Pending>,
}

pub(super) struct Pending {
    pub(super) number: u64,
    pub(super) call: Call,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
}

/// A worker that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LostWorker {
    pub(super) host: String,
    /// How long its host is quarantined, if this was one failure too many.
    pub(super) quarantined: Option<Duration>,
}

/// Where a desktop is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) worker: String,
    pub(super) host: String,
    pub(super) desktop: u64,
}

impl Registry {
    pub(super) fn new(quarantine: Quarantine) -> Self {
        Self { hosts: Hosts::new(quarantine), ..Self::default() }
    }

    /// A worker connects, perhaps not for the first time. Its desktops that are still used are known to the welcome;
    /// the requests without an answer are sent again. Returns the number of the connection.
    pub(super) fn attach(
        &mut self,
        introduction: &Introduction,
        link: Link,
        welcome: impl FnOnce(Vec<u64>) -> Option<crate::protocol::frame::Frame>,
    ) -> Option<u64> {
        self.connections += 1;
        let number = self.connections;
        let Introduction { worker, host, process, capacity } = introduction.clone();
        let known = self.workers.remove(&worker).map(|known| {
            if let Connection::Up { link, .. } = &known.connection {
                link.cut();
            }
            known.desktops
        });
        let desktops = known.unwrap_or_default();
        link.send(welcome(desktops.keys().copied().collect())?);
        for (id, desktop) in &desktops {
            if let Some(pending) = &desktop.pending {
                send(&link, *id, pending);
            }
        }
        self.hosts.seen(&host);
        let connection = Connection::Up { number, link };
        self.workers.insert(worker, Worker { host, process, capacity, desktops, connection });
        Some(number)
    }

    /// A connection is lost; a newer one of the same worker is not affected. True if the worker has none now.
    pub(super) fn detach(&mut self, worker: &str, number: u64, now: Instant) -> bool {
        let Some(known) = self.workers.get_mut(worker) else { return false };
        let current = matches!(known.connection, Connection::Up { number: current, .. } if current == number);
        if current {
            known.connection = Connection::Lost { since: now };
        }
        current
    }

    /// Gives up the workers that have been lost for longer than the grace time; their desktops' calls fail.
    pub(super) fn give_up(&mut self, grace: Duration, now: Instant) -> Vec<LostWorker> {
        self.remove(now, |worker| {
            matches!(worker.connection, Connection::Lost { since } if now.saturating_duration_since(since) > grace)
        })
    }

    /// Gives up the workers of a process that has ended.
    pub(super) fn process_ended(&mut self, host: &str, process: u32, now: Instant) -> Vec<LostWorker> {
        self.remove(now, |worker| worker.host == host && worker.process == process)
    }

    fn remove(&mut self, now: Instant, gone: impl Fn(&Worker) -> bool) -> Vec<LostWorker> {
        let removed: Vec<Worker> =
            self.workers.extract_if(.., |_, worker| gone(worker)).map(|(_, worker)| worker).collect();
        let lose = |Worker { host, desktops, .. }| {
            for desktop in desktops.values() {
                self.hosts.desktop_gone(&host, desktop, now);
            }
            self.lost += 1;
            // one failure, however many desktops it had: it may be back in a moment
            let quarantined = self.hosts.failed(&host, "a worker was lost", now);
            LostWorker { host, quarantined }
        };
        removed.into_iter().map(lose).collect()
    }

    /// A place for a desktop of a slot: on the worker with the most room, of a host that is not quarantined, and rather not
    /// where the slot's last desktop failed. `None` if there is none at present.
    pub(super) fn place(&mut self, slot: usize, replies: Sender<Answer>, now: Instant) -> Option<Location> {
        let connected =
            || self.workers.iter().filter(|(_, worker)| matches!(worker.connection, Connection::Up { .. }));
        // if no other host is left, a bad one is better than none
        let any_good = connected().any(|(_, worker)| !self.hosts.is_quarantined(&worker.host, now));
        let avoided = self.failed_on.get(&slot);
        let name = connected()
            .filter(|(_, worker)| worker.desktops.len() < worker.capacity)
            .filter(|(_, worker)| !any_good || !self.hosts.is_quarantined(&worker.host, now))
            .min_by_key(|(_, worker)| {
                let load = worker.desktops.len() * 1000 / worker.capacity;
                (avoided == Some(&worker.host), load)
            })
            .map(|(name, _)| name.clone())?;
        self.place_on(&name, slot, replies, now)
    }

    /// A place on this worker, whatever else it has; `None` if it is gone.
    pub(super) fn place_on(
        &mut self,
        name: &str,
        slot: usize,
        replies: Sender<Answer>,
        now: Instant,
    ) -> Option<Location> {
        self.desktops += 1;
        let (desktop, worker) = (self.desktops, self.workers.get_mut(name)?);
        worker.desktops.insert(desktop, Desktop { slot, since: now, task: None, replies, pending: None });
        Some(Location { host: worker.host.clone(), worker: name.to_owned(), desktop })
    }

    /// The host of each desktop, by slot.
    pub(super) fn places(&self) -> BTreeMap<usize, String> {
        let on = |worker: &Worker| {
            let host = worker.host.clone();
            worker.desktops.values().map(move |desktop| (desktop.slot, host.clone())).collect::<Vec<_>>()
        };
        self.workers.values().flat_map(on).collect()
    }

    /// Sends a call, or keeps it until its worker is back; false if the worker was given up.
    pub(super) fn call(&mut self, at: &Location, number: u64, call: Call, deadline: Instant) -> bool {
        let Some(worker) = self.workers.get_mut(&at.worker) else { return false };
        let Some(desktop) = worker.desktops.get_mut(&at.desktop) else { return false };
        if let Call::Reset { task, .. } = &call {
            desktop.task = Some(task.id.clone());
        }
        let pending = desktop.pending.insert(Pending { number, call, since: Instant::now(), deadline });
        if let Connection::Up { link, .. } = &worker.connection {
            send(link, at.desktop, pending);
        }
        true
    }

    /// An answer: handed to whoever waits for it, once.
    pub(super) fn answered(&mut self, worker: &str, answer: Answer) {
        let Some(Worker { host, desktops, .. }) = self.workers.get_mut(worker) else { return };
        let Some(desktop) = desktops.get_mut(&answer.desktop) else { return };
        if let Some(pending) = desktop.pending.take_if(|pending| pending.number == answer.number) {
            self.hosts.call_over(host, pending.since.elapsed(), answer.png.len());
            // whoever waited may have given up just now
            let _ = desktop.replies.send(answer);
        }
    }

    /// A desktop is not used any more.
    pub(super) fn release(&mut self, at: &Location) {
        let Some(worker) = self.workers.get_mut(&at.worker) else { return };
        let Some(desktop) = worker.desktops.remove(&at.desktop) else { return };
        let now = Instant::now();
        self.hosts.desktop_gone(&at.host, &desktop, now);
        if let Connection::Up { link, .. } = &worker.connection {
            let close = Pending { number: u64::MAX, call: Call::Close {}, since: now, deadline: now };
            send(link, at.desktop, &close);
        }
    }

    /// Remembers where a slot's desktop failed, so that the next one is elsewhere, or that it did not.
    pub(super) fn slot_failed(&mut self, slot: usize, host: Option<&str>) {
        match host {
            Some(host) => self.failed_on.insert(slot, host.to_owned()),
            None => self.failed_on.remove(&slot),
        };
    }

    /// Whether another connected host than this could do better.
    pub(super) fn has_other_host(&self, host: &str, now: Instant) -> bool {
        let mut workers = self.workers.values();
        workers.any(|worker| {
            worker.host != host
                && matches!(worker.connection, Connection::Up { .. })
                && !self.hosts.is_quarantined(&worker.host, now)
        })
    }

    /// Connected workers, and how many desktops they have room for.
    pub(super) fn capacity(&self) -> (usize, usize) {
        let connected =
            self.workers.values().filter(|worker| matches!(worker.connection, Connection::Up { .. }));
        connected.fold((0, 0), |(count, capacity), worker| (count + 1, capacity + worker.capacity))
    }

    /// Tells every worker that the run is over, and forgets them.
    pub(super) fn close(&mut self, message: &Message) {
        self.closed = true;
        for worker in std::mem::take(&mut self.workers).into_values() {
            if let (Connection::Up { link, .. }, Ok(frame)) = (worker.connection, message.frame()) {
                link.send(frame);
            }
        }
    }
}

fn send(link: &Link, desktop: u64, Pending { number, call, deadline, .. }: &Pending) {
    let left = deadline.saturating_duration_since(Instant::now());
    let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    let request = Request { desktop, number: *number, left_ms, call: call.clone() };
    // one that is too long was refused before it came here
    if let Ok(frame) = Message::Request(Box::new(request)).frame() {
        link.send(frame);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::channel;

    /// A connection to nobody in particular.
    fn link() -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Link::start(&TcpStream::connect(listener.local_addr().unwrap()).unwrap(), 1).unwrap()
    }

    /// Workers of these names, hosts and capacity.
    pub(in crate::hub) fn registry(workers: &[(&str, &str, usize)], quarantine: Quarantine) -> Registry {
        let mut registry = Registry::new(quarantine);
        for &(worker, host, capacity) in workers {
            let introduction =
                Introduction { worker: worker.into(), host: host.into(), process: 1, capacity };
            registry.attach(&introduction, link(), |_| Message::Heartbeat.frame().ok()).unwrap();
        }
        registry
    }

    const STRICT: Quarantine = Quarantine { after: 2, first: Duration::from_secs(10) };

    fn placed(registry: &mut Registry, slot: usize, now: Instant) -> Option<String> {
        registry.place(slot, channel().0, now).map(|at| at.worker)
    }

    #[test]
    fn a_replacement_is_rather_on_another_host() {
        let now = Instant::now();
        let mut registry = registry(&[("a", "one", 10), ("b", "two", 1)], STRICT);
        assert_eq!(placed(&mut registry, 0, now).as_deref(), Some("a"));
        registry.slot_failed(1, Some("one"));
        assert_eq!(placed(&mut registry, 1, now).as_deref(), Some("b"), "although it is smaller");
        assert_eq!(registry.places(), BTreeMap::from([(0, "one".to_owned()), (1, "two".to_owned())]));
        // if the other one is full, the same host is better than none
        registry.slot_failed(2, Some("one"));
        assert_eq!(placed(&mut registry, 2, now).as_deref(), Some("a"));
    }

    #[test]
    fn a_quarantined_host_is_used_only_if_no_other_is_left() {
        let now = Instant::now();
        let mut registry = registry(&[("a", "one", 10), ("b", "two", 1)], STRICT);
        registry.hosts.failed("one", "why", now);
        assert!(registry.hosts.failed("one", "why", now).is_some());
        assert!(!registry.has_other_host("two", now) && registry.has_other_host("one", now));
        assert_eq!(placed(&mut registry, 0, now).as_deref(), Some("b"));
        assert_eq!(placed(&mut registry, 1, now), None, "b is full, a is quarantined");
        assert_eq!(placed(&mut registry, 1, now + Duration::from_secs(10)).as_deref(), Some("a"));
        registry.process_ended("two", 1, now);
        assert_eq!(placed(&mut registry, 2, now).as_deref(), Some("a"), "the only one left");
    }

    #[test]
    fn a_worker_is_given_up_after_the_grace_time_and_not_before() {
        let (now, grace) = (Instant::now(), Duration::from_secs(5));
        let mut registry = registry(&[("a", "one", 2)], STRICT);
        let (sender, replies) = channel();
        let at = registry.place(0, sender, now).unwrap();
        assert!(!registry.detach("a", 99, now), "an older connection");
        assert!(registry.detach("a", 1, now));
        assert_eq!(registry.capacity(), (0, 0));
        assert!(registry.call(&at, 1, Call::Evaluate {}, now), "kept until it is back");
        assert_eq!(registry.give_up(grace, now + grace), []);
        let lost = LostWorker { host: "one".into(), quarantined: None };
        assert_eq!(registry.give_up(grace, now + 2 * grace), [lost]);
        assert!(!registry.call(&at, 2, Call::Evaluate {}, now) && registry.lost == 1);
        assert!(replies.recv().is_err(), "whoever waits is told");
    }

    #[test]
    fn a_host_that_keeps_losing_workers_is_quarantined_and_said_to_be() {
        let now = Instant::now();
        let mut registry = registry(&[("a", "one", 2), ("b", "one", 2), ("c", "two", 2)], STRICT);
        let quarantined: Vec<_> =
            registry.process_ended("one", 1, now).into_iter().map(|lost| lost.quarantined).collect();
        assert_eq!(quarantined, [None, Some(STRICT.first)]);
        assert!(registry.hosts.is_quarantined("one", now) && !registry.hosts.is_quarantined("two", now));
    }
}
