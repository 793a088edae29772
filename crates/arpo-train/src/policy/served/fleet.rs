//! The servers of a run: which of them have the current weights, and which is asked next.
//!
//! A server is asked only while it is known to have the current weights. It falls behind when new weights are aimed at,
//! when it does not respond, and when an answer comes from other weights; its keeper (`keeper`) then brings it up to date,
//! however long that takes. So a server that missed an update, or was started again, gets no questions until it has caught
//! up. An episode stays with its server, which has its prefix in the cache, and moves only when that falls behind.

use crate::run::stop::StopSwitch;
use arpo_core::trajectory::{EpisodeId, PolicyVersion};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a wait looks whether it should end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Weights that the servers shall have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Their version.
    pub(super) version: PolicyVersion,
    /// Their name on the servers, different for every run.
    pub(super) label: String,
    /// The folder that holds them.
    pub(super) folder: PathBuf,
}

/// Why a server could not be brought up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setback {
    /// In one line.
    pub(super) reason: String,
    /// Waiting does not help: the server would have to be started in another way.
    pub(super) refused: bool,
}

#[derive(Debug, PartialEq)]
enum Standing {
    /// It has the target's weights.
    Ready,
    /// It has not; the last setback on the way to this target.
    Behind(Option<Setback>),
}

#[derive(Debug)]
struct Member {
    address: String,
    standing: Standing,
    /// Requests that it has now.
    asked: usize,
    /// It has had weights of the run.
    was_ready: bool,
    /// It is not coming back, and why.
    given_up: Option<String>,
    /// The folder that it reads while it starts.
    starting: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Member>,
    /// The server of each episode.
    homes: HashMap<EpisodeId, usize>,
    target: Option<Arc<Target>>,
    closing: bool,
}

/// The servers of a run.
#[derive(Debug)]
pub(super) struct Fleet {
    state: Mutex<State>,
    changed: Condvar,
    /// Requests that a server has at once, at most.
    slots: usize,
}

/// A request that a server has now: one of its slots, free again on drop.
#[derive(Debug)]
pub(super) struct Slot<'f> {
    fleet: &'f Fleet,
    pub(super) server: usize,
    pub(super) address: String,
    /// The weights it had when the slot was taken.
    pub(super) target: Arc<Target>,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.fleet.lock().members[self.server].asked -= 1;
        self.fleet.changed.notify_all();
    }
}

impl Fleet {
    /// Servers with so many slots each.
    pub(super) fn new(addresses: Vec<String>, slots: usize) -> Self {
        let member = |address| Member {
            address,
            standing: Standing::Behind(None),
            asked: 0,
            was_ready: false,
            given_up: None,
            starting: None,
        };
        let members = addresses.into_iter().map(member).collect();
        let state = Mutex::new(State { members, ..State::default() });
        Self { state, changed: Condvar::new(), slots }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, State>, most: Duration) -> MutexGuard<'g, State> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn len(&self) -> usize {
        self.lock().members.len()
    }

    pub(super) fn address(&self, server: usize) -> String {
        self.lock().members[server].address.clone()
    }

    pub(super) fn target(&self) -> Option<Arc<Target>> {
        self.lock().target.clone()
    }

    /// From now on all servers shall have these weights; none of them has.
    pub(super) fn aim(&self, target: Target) {
        let mut state = self.lock();
        state.target = Some(Arc::new(target));
        state.homes.clear();
        for member in &mut state.members {
            member.standing = Standing::Behind(None);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Forgets which episode has which server.
    pub(super) fn forget_episodes(&self) {
        self.lock().homes.clear();
    }

    /// Ends all waits, for good.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// A slot for the next request of an episode: at its own server, or else at the one with the fewest requests. Waits
    /// for it while the request is wanted; `None` after that, and at the deadline.
    pub(super) fn slot(
        &self,
        episode: &EpisodeId,
        avoid: Option<usize>,
        deadline: Instant,
        wanted: impl Fn() -> bool,
    ) -> Option<Slot<'_>> {
        let mut state = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.closing || !wanted() {
                return None;
            }
            if let (Some(server), Some(target)) = (self.choose(&state, episode, avoid), state.target.clone())
            {
                state.homes.insert(episode.clone(), server);
                let member = &mut state.members[server];
                member.asked += 1;
                return Some(Slot { fleet: self, server, address: member.address.clone(), target });
            }
            state = self.wait(state, left.min(POLL_INTERVAL));
        }
    }

    /// Another one than `avoid`, if there is another.
    fn choose(&self, state: &State, episode: &EpisodeId, avoid: Option<usize>) -> Option<usize> {
        let is_ready = |server: &usize| state.members[*server].standing == Standing::Ready;
        let home = state.homes.get(episode).copied().filter(is_ready).filter(|&home| Some(home) != avoid);
        // among equals the one with the fewest episodes
        let episodes = |server: usize| state.homes.values().filter(|&&home| home == server).count();
        let ready = (0..state.members.len()).filter(is_ready);
        let load = |server: usize| (Some(server) == avoid, state.members[server].asked, episodes(server));
        let server = home.or_else(|| ready.min_by_key(|&server| load(server)))?;
        (state.members[server].asked < self.slots).then_some(server)
    }

    /// Whether any server can be asked.
    pub(super) fn any_ready(&self) -> bool {
        self.lock().members.iter().any(|member| member.standing == Standing::Ready)
    }

    /// A server with these weights failed, so it is asked nothing more for now; true if that is new.
    pub(super) fn blame(&self, server: usize, target: &Target) -> bool {
        let mut state = self.lock();
        let current = state.target.as_deref() == Some(target);
        let member = &mut state.members[server];
        if !current || member.standing != Standing::Ready {
            return false;
        }
        member.standing = Standing::Behind(None);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Waits until a server is behind; returns the weights that it shall have, `None` when the fleet closes.
    pub(super) fn next_update(&self, server: usize) -> Option<Arc<Target>> {
        let mut state = self.lock();
        loop {
            if state.closing {
                return None;
            }
            if let (Some(target), Standing::Behind(_)) = (&state.target, &state.members[server].standing) {
                return Some(Arc::clone(target));
            }
            state = self.wait(state, Duration::from_secs(1));
        }
    }

    /// Records how an update went, unless there is another target by now.
    pub(super) fn updated(&self, server: usize, target: &Target, result: Result<(), Setback>) {
        let mut state = self.lock();
        if state.target.as_deref() == Some(target) {
            let member = &mut state.members[server];
            member.was_ready |= result.is_ok();
            if result.is_ok() {
                member.starting = None;
            }
            member.standing = match result {
                Ok(()) => Standing::Ready,
                Err(setback) => Standing::Behind(Some(setback)),
            };
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Whether a server has had weights since this was last asked.
    pub(super) fn has_been_ready(&self, server: usize) -> bool {
        std::mem::take(&mut self.lock().members[server].was_ready)
    }

    /// The weights that a server shall be started with; their folder is in use until it has weights.
    pub(super) fn starts(&self, server: usize) -> Option<Arc<Target>> {
        let mut state = self.lock();
        let target = state.target.clone()?;
        state.members[server].starting = Some(target.folder.clone());
        Some(target)
    }

    /// The folders that servers may be reading, besides the target's.
    pub(super) fn folders_in_use(&self) -> Vec<PathBuf> {
        self.lock().members.iter().filter_map(|member| member.starting.clone()).collect()
    }

    /// A server cannot run here.
    pub(super) fn give_up_on(&self, server: usize, reason: String) {
        self.lock().members[server].given_up = Some(reason);
        self.changed.notify_all();
    }

    /// Waits for so long, or until there is another target.
    pub(super) fn rest(&self, target: &Target, rest: Duration) {
        let until = Instant::now() + rest;
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.closing || state.target.as_deref() != Some(target) {
                return;
            }
            state = self.wait(state, left);
        }
    }

    /// Waits until every server has the weights or has had a setback, and at least one has them. An error names the
    /// setbacks, at the deadline or as soon as no server can be used as it was started. `None` if a stop is requested.
    pub(super) fn wait_for_any(&self, deadline: Instant, stop: &StopSwitch) -> Option<Result<(), String>> {
        let mut state = self.lock();
        loop {
            if stop.requested() || state.closing {
                return None;
            }
            let tried = |member: &Member| member.standing != Standing::Behind(None);
            let refused = |member: &Member| {
                member.given_up.is_some()
                    || matches!(&member.standing, Standing::Behind(Some(one)) if one.refused)
            };
            let ready = state.members.iter().any(|member| member.standing == Standing::Ready);
            if ready && state.members.iter().all(tried) {
                return Some(Ok(()));
            }
            let late = Instant::now() >= deadline;
            if late && ready {
                return Some(Ok(()));
            }
            if late || (!ready && state.members.iter().all(refused)) {
                return Some(Err(state.members.iter().map(described).collect::<Vec<_>>().join("; ")));
            }
            state = self.wait(state, POLL_INTERVAL);
        }
    }

    /// The servers that have not got the weights, and why.
    pub(super) fn setbacks(&self) -> String {
        let state = self.lock();
        let behind = state.members.iter().filter(|member| member.standing != Standing::Ready);
        behind.map(described).collect::<Vec<_>>().join("; ")
    }
}

fn described(member: &Member) -> String {
    if let Some(reason) = &member.given_up {
        return format!("{}: {reason}", member.address);
    }
    match &member.standing {
        Standing::Ready => format!("{} is ready", member.address),
        Standing::Behind(None) => format!("{} has not answered yet", member.address),
        Standing::Behind(Some(setback)) => format!("{}: {}", member.address, setback.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::task::TaskId;

    fn target(version: u64) -> Target {
        let (label, folder) = (format!("run-{version}"), PathBuf::from(format!("/w/{version}")));
        Target { version: PolicyVersion(version), label, folder }
    }

    fn fleet(servers: usize, slots: usize) -> Fleet {
        let fleet = Fleet::new((0..servers).map(|number| format!("http://{number}")).collect(), slots);
        fleet.aim(target(1));
        fleet
    }

    fn episode(number: usize) -> EpisodeId {
        EpisodeId::new(0, &TaskId::new("t"), number)
    }

    fn slot(fleet: &Fleet, number: usize) -> Option<Slot<'_>> {
        fleet.slot(&episode(number), None, Instant::now() + Duration::from_millis(1), || true)
    }

    #[test]
    fn episodes_are_spread_and_stay_with_their_servers() {
        let fleet = fleet(2, 9);
        (0..2).for_each(|server| fleet.updated(server, &target(1), Ok(())));
        let first: Vec<usize> = (0..4).map(|number| slot(&fleet, number).unwrap().server).collect();
        assert_eq!(first.iter().filter(|&&server| server == 0).count(), 2);
        let second: Vec<usize> = (0..4).map(|number| slot(&fleet, number).unwrap().server).collect();
        assert_eq!(first, second);
    }

    #[test]
    fn a_server_behind_is_not_asked_and_its_episodes_move() {
        let fleet = fleet(2, 9);
        assert!(slot(&fleet, 0).is_none(), "no server has the weights");
        fleet.updated(1, &target(1), Ok(()));
        assert_eq!(slot(&fleet, 0).unwrap().server, 1);
        fleet.updated(0, &target(1), Ok(()));
        assert_eq!(slot(&fleet, 0).unwrap().server, 1);
        assert!(fleet.blame(1, &target(1)) && !fleet.blame(1, &target(1)));
        assert_eq!(slot(&fleet, 0).unwrap().server, 0);
        // its keeper finds it, and it is asked again; the episode stays where it is
        assert_eq!(*fleet.next_update(1).unwrap(), target(1));
        fleet.updated(1, &target(1), Ok(()));
        assert_eq!(slot(&fleet, 0).unwrap().server, 0);
    }

    #[test]
    fn an_update_that_is_no_longer_the_newest_does_not_count() {
        let fleet = fleet(1, 9);
        fleet.aim(target(2));
        fleet.updated(0, &target(1), Ok(()));
        assert!(slot(&fleet, 0).is_none());
        assert!(!fleet.blame(0, &target(1)));
    }

    #[test]
    fn a_full_server_is_waited_for() {
        let fleet = fleet(1, 1);
        fleet.updated(0, &target(1), Ok(()));
        let taken = slot(&fleet, 0).unwrap();
        assert!(slot(&fleet, 1).is_none());
        drop(taken);
        assert!(slot(&fleet, 1).is_some());
        assert!(fleet.slot(&episode(2), None, Instant::now() + Duration::from_mins(1), || false).is_none());
    }

    #[test]
    fn a_run_waits_for_a_server_but_not_for_one_that_cannot_be_used() {
        let (fleet, stop) = (fleet(2, 1), StopSwitch::default());
        let setback = |refused| Err(Setback { reason: "no".into(), refused });
        let soon = || Instant::now() + Duration::from_millis(5);
        assert_eq!(
            fleet.wait_for_any(soon(), &stop),
            Some(Err("http://0 has not answered yet; http://1 has not answered yet".into()))
        );
        fleet.updated(0, &target(1), setback(true));
        fleet.updated(1, &target(1), setback(true));
        let far = Instant::now() + Duration::from_hours(1);
        assert_eq!(fleet.wait_for_any(far, &stop), Some(Err("http://0: no; http://1: no".into())));
        fleet.updated(1, &target(1), Ok(()));
        assert_eq!(fleet.wait_for_any(far, &stop), Some(Ok(())));
        assert_eq!(fleet.setbacks(), "http://0: no");
        stop.request();
        assert_eq!(fleet.wait_for_any(far, &stop), None);
    }
}
