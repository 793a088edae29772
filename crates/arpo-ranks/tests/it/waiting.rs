//! Ranks that look for rank 0 and wait for the others: how it is found, what they are told, and who is counted.

use crate::{PATIENT, here, options};
use arpo_ranks::rendezvous::{Rendezvous, join};
use arpo_ranks::{Group, RankError};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A rank that has said hello, and now waits for the others or leaves.
fn waiting(address: SocketAddr, leaves: bool) -> JoinHandle<Result<Group, RankError>> {
    let (sender, said_hello) = channel();
    let mut looks = 0;
    let mut look = move || {
        // the first time it has not dialled yet
        looks += 1;
        if looks == 2 {
            sender.send(()).unwrap();
        }
        if looks > 1 && leaves { Err(RankError::Stopped) } else { Ok(()) }
    };
    let rank = thread::spawn(move || join(&address.to_string(), "secret", PATIENT, &mut look));
    said_hello.recv_timeout(PATIENT).unwrap();
    rank
}

#[test]
fn rank_0_is_found_by_a_name_with_several_addresses() {
    let rendezvous = Rendezvous::listen("test", here(), "secret").unwrap();
    // where a machine has IPv6, `::1` may come first
    let address = format!("localhost:{}", rendezvous.address().port());
    let other = thread::spawn(move || join(&address, "secret", PATIENT, &mut || Ok(())));
    let zero = rendezvous.gather(2, options(PATIENT, PATIENT), PATIENT, &mut |_| {}, &mut || Ok(())).unwrap();
    assert_eq!((zero.rank(), other.join().unwrap().unwrap().rank()), (0, 1));
}

#[test]
fn a_name_without_an_address_is_asked_for_until_the_deadline() {
    // too long for a name, so that no server is asked
    let address = format!("{}:7701", "x".repeat(64));
    let (limit, began, mut looks) = (Duration::from_millis(500), Instant::now(), 0);
    let joined = join(&address, "", limit, &mut || {
        looks += 1;
        Ok(())
    });
    assert!(began.elapsed() >= limit && looks > 1, "{looks}");
    let problem = joined.unwrap_err().to_string();
    let expected = format!("no rank 0 at {address}: ");
    assert!(problem.starts_with(&expected) && !problem.contains('\n'), "{problem}");
    // what is no address at all never becomes one
    let problem = join("nowhere", "", PATIENT, &mut || Ok(())).unwrap_err().to_string();
    assert!(problem.starts_with("no rank 0 at nowhere: ") && began.elapsed() < PATIENT, "{problem}");
}

#[test]
fn those_who_wait_are_told_why_the_run_does_not_begin() {
    let rendezvous = Rendezvous::listen("test", here(), "secret").unwrap();
    let address = rendezvous.address();
    let others = [false, false].map(|leaves| waiting(address, leaves));
    let limit = Duration::from_secs(2);
    let gathered = rendezvous.gather(4, options(PATIENT, PATIENT), limit, &mut |_| {}, &mut || Ok(()));
    let problem = gathered.unwrap_err().to_string();
    assert_eq!(problem, format!("2 of 3 other ranks came to {address} within 2 s"));
    for other in others {
        let told = other.join().unwrap().unwrap_err();
        assert_eq!(told, RankError::Refused(format!("the run did not begin: {problem}")));
    }
}

/// As one that was killed and is started again.
#[test]
fn a_rank_that_leaves_while_it_waits_is_not_counted() {
    let rendezvous = Rendezvous::listen("test", here(), "secret").unwrap();
    let address = rendezvous.address();
    assert_eq!(waiting(address, true).join().unwrap().unwrap_err(), RankError::Stopped);
    let (sender, news) = channel();
    let gathering = thread::spawn(move || {
        let mut say = |line: &str| sender.send(line.to_owned()).unwrap();
        rendezvous.gather(3, options(PATIENT, PATIENT), PATIENT, &mut say, &mut || Ok(()))
    });
    let line = news.recv_timeout(PATIENT).unwrap();
    let expected = format!("process {}) left before the others had come", std::process::id());
    assert!(line.starts_with("a rank (") && line.ends_with(&expected), "{line}");
    let others = [false, false].map(|leaves| waiting(address, leaves));
    let zero = gathering.join().unwrap().unwrap();
    assert_eq!(zero.size(), 3);
    // none leaves before all are there
    let others = others.map(|other| other.join().unwrap().unwrap());
    assert!(others.iter().all(|other| other.size() == 3));
}

#[test]
fn rank_0_that_leaves_before_the_run_begins_is_named() {
    let listener = TcpListener::bind(here()).unwrap();
    let address = listener.local_addr().unwrap();
    let other = waiting(address, false);
    let (mut stream, _) = listener.accept().unwrap();
    // with bytes that nobody has read, the connection would end in another way
    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    drop(stream);
    let problem = other.join().unwrap().unwrap_err().to_string();
    assert_eq!(problem, format!("rank 0 at {address} closed the connection before the run began"));
}
