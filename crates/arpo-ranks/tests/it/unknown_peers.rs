//! Whoever is not a rank of this run is refused with one line, and holds nobody up.

use crate::{PATIENT, here, options};
use arpo_ranks::rendezvous::{Rendezvous, join};
use arpo_ranks::{Collectives, RankError};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

#[test]
fn unknown_peers_are_refused_and_the_run_begins() {
    let rendezvous = Rendezvous::listen("test", here(), "secret").unwrap();
    let address = rendezvous.address();
    let dial = move |token: &'static str| {
        thread::spawn(move || join(&address.to_string(), token, PATIENT, &mut || Ok(())))
    };
    // one says nothing at all, one speaks another language, one announces four gigabytes, one has another token
    let _silent = TcpStream::connect(address).unwrap();
    let mut browser = TcpStream::connect(address).unwrap();
    browser.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut long = TcpStream::connect(address).unwrap();
    long.write_all(&[0x81, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]).unwrap();
    let wrong = dial("guess");
    let waiting = thread::spawn(move || {
        let mut refused = vec![];
        let mut news = |line: &str| refused.push(line.to_owned());
        let group = rendezvous.gather(2, options(PATIENT, PATIENT), PATIENT, &mut news, &mut || Ok(()));
        (group, refused)
    });
    let problem = wrong.join().unwrap().unwrap_err();
    assert_eq!(
        problem.to_string(),
        "rank 0 refuses this process: another token: expected rank 0's ARPO_CLUSTER_TOKEN in the environment"
    );
    // until it is hung up on
    browser.set_read_timeout(Some(PATIENT)).unwrap();
    let mut answer = vec![];
    let _ = browser.read_to_end(&mut answer);
    let mut group = dial("secret").join().unwrap().unwrap();
    let (zero, refused) = waiting.join().unwrap();
    let mut zero = zero.unwrap();
    // it stays until rank 0 has passed the barrier, too
    let other = thread::spawn(move || (group.barrier(), group));
    zero.barrier().unwrap();
    other.join().unwrap().0.unwrap();
    let all = refused.join("\n");
    for expected in [
        "not a message of this protocol: a kind of 71",
        "a Hello of 4294967295 bytes: expected at most 4096",
        "another token",
    ] {
        assert!(all.contains(expected), "{all}");
    }
    assert!(
        refused.iter().all(|line| line.starts_with("refused 127.0.0.1:") && !line.contains("secret")),
        "{all}"
    );
}

#[test]
fn ranks_that_do_not_come_are_an_error() {
    let gather = |look: &mut dyn FnMut() -> Result<(), RankError>| {
        let rendezvous = Rendezvous::listen("test", here(), "").unwrap();
        let limit = Duration::from_millis(200);
        rendezvous.gather(3, options(PATIENT, PATIENT), limit, &mut |_| {}, look).unwrap_err().to_string()
    };
    let problem = gather(&mut || Ok(()));
    assert!(
        problem.starts_with("0 of 2 other ranks came to 127.0.0.1:") && problem.ends_with("within 0.2 s"),
        "{problem}"
    );
    assert_eq!(gather(&mut || Err(RankError::Stopped)), "stopped on request");
    let problem = join("127.0.0.1:1", "", Duration::ZERO, &mut || Ok(())).unwrap_err().to_string();
    assert!(problem.starts_with("no rank 0 at 127.0.0.1:1: "), "{problem}");
}

/// Ranks that reach rank 0 by IPv4 and by IPv6 find each other, too.
#[test]
fn ranks_come_by_either_kind_of_address() {
    let any = "[::]:0".parse().unwrap();
    // not on a machine without IPv6
    let Ok(rendezvous) = Rendezvous::listen("test", any, "secret") else { return };
    let port = rendezvous.address().port();
    let others: Vec<_> = ["127.0.0.1", "[::1]", "127.0.0.1"]
        .map(|host| {
            let address = format!("{host}:{port}");
            thread::spawn(move || {
                let mut group = join(&address, "secret", PATIENT, &mut || Ok(())).unwrap();
                group.barrier().unwrap();
                // until rank 0 leaves
                let _ = group.receive(0, None);
            })
        })
        .into();
    let options = options(PATIENT, PATIENT);
    let mut group = rendezvous.gather(4, options, PATIENT, &mut |_| {}, &mut || Ok(())).unwrap();
    group.barrier().unwrap();
    drop(group);
    for other in others {
        other.join().unwrap();
    }
}

#[test]
fn other_machines_need_a_token() {
    let problem =
        Rendezvous::listen("learn.listen", "0.0.0.0:0".parse().unwrap(), "").unwrap_err().to_string();
    assert!(problem.starts_with("`learn.listen` = 0.0.0.0:0 can be reached by other machines"), "{problem}");
}

#[test]
fn a_group_of_one_needs_nobody() {
    let rendezvous = Rendezvous::listen("test", here(), "").unwrap();
    let mut group =
        rendezvous.gather(1, options(PATIENT, PATIENT), PATIENT, &mut |_| {}, &mut || Ok(())).unwrap();
    assert_eq!((group.rank(), group.size(), group.all_reduce_f64(&[2.5]).unwrap()), (0, 1, vec![2.5]));
}
