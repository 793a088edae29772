//! Ranks in threads and in processes: their sums are right and the same everywhere; whoever is lost is named.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod faults;
mod groups;
mod processes;
mod sums;
mod unknown_peers;
mod waiting;
mod wire;

use arpo_ranks::rendezvous::{Rendezvous, join};
use arpo_ranks::{Group, GroupOptions, RankError};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Long enough for a busy machine, short enough for a test.
pub(crate) const PATIENT: Duration = Duration::from_mins(1);

pub(crate) fn options(deadline: Duration, silence: Duration) -> GroupOptions {
    GroupOptions { deadline, silence }
}

pub(crate) fn here() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// Runs a function on every rank of a group in threads; results by rank.
pub(crate) fn ranks<T: Send>(
    size: usize,
    options: GroupOptions,
    work: impl Fn(Group) -> T + Send + Sync,
) -> Vec<T> {
    let rendezvous = Rendezvous::listen("test", here(), "secret").unwrap();
    let address = rendezvous.address().to_string();
    thread::scope(|scope| {
        let others: Vec<_> = (1..size)
            .map(|_| {
                scope.spawn(|| {
                    let group = join(&address, "secret", PATIENT, &mut || Ok(())).unwrap();
                    (group.rank(), work(group))
                })
            })
            .collect();
        let group = rendezvous.gather(size, options, PATIENT, &mut |_| {}, &mut || Ok(())).unwrap();
        let mut results = vec![(0, work(group))];
        results.extend(others.into_iter().map(|other| other.join().unwrap()));
        results.sort_by_key(|(rank, _)| *rank);
        results.into_iter().map(|(_, result)| result).collect()
    })
}

/// The same for work that all ranks finish: none leaves before the others have finished, too.
pub(crate) fn together<T: Send>(size: usize, work: impl Fn(&mut Group) -> T + Send + Sync) -> Vec<T> {
    let done = AtomicUsize::new(0);
    ranks(size, options(PATIENT, PATIENT), |mut group: Group| {
        let result = work(&mut group);
        done.fetch_add(1, Ordering::SeqCst);
        while done.load(Ordering::SeqCst) < size {
            thread::sleep(Duration::from_millis(1));
        }
        result
    })
}

/// The text of the error that a lost rank causes.
pub(crate) fn reason<T: std::fmt::Debug>(result: Result<T, RankError>) -> String {
    match result.unwrap_err() {
        RankError::Lost(reason) => reason,
        other => panic!("{other:?}"),
    }
}
