//! Ranks as processes: this test program started again. One is killed, one is frozen, one connection is cut.

use crate::wire::Wire;
use crate::{PATIENT, here, options, reason};
use arpo_ranks::rendezvous::{Rendezvous, join};
use arpo_ranks::{Collectives, Group, HostValues};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Where a process that is started as a rank finds rank 0.
const ADDRESS: &str = "ARPO_TEST_RANK_0";

/// Where a process that is started as rank 0 listens.
const LISTEN: &str = "ARPO_TEST_LISTEN";

/// The exit code of a test program whose test has panicked.
const FAILED: i32 = 101;

/// Not a test by itself: what a rank in another process does.
#[test]
fn rank_in_a_process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let mut group = join(&address, "secret", PATIENT, &mut || Ok(())).unwrap();
    loop {
        let mut values = HostValues::F32(vec![group.rank() as f32; 10_000]);
        if let Err(error) = group.all_reduce(&mut values) {
            if group.is_over() {
                return;
            }
            panic!("ended: {error}");
        }
    }
}

/// Not a test by itself: a rank 0 in another process that only lives, until the other rank has left.
#[test]
fn rank_0_in_a_process() {
    let Ok(address) = std::env::var(LISTEN) else { return };
    let rendezvous = Rendezvous::listen("test", address.parse().unwrap(), "secret").unwrap();
    let options = options(PATIENT, Duration::from_secs(3));
    let group = rendezvous.gather(2, options, PATIENT, &mut |_| {}, &mut || Ok(())).unwrap();
    while group.check().is_ok() {
        thread::sleep(Duration::from_millis(20));
    }
}

fn start(address: &str) -> Child {
    start_as("rank_in_a_process", ADDRESS, address)
}

/// Starts one of the above, with the variable that it needs.
fn start_as(name: &str, variable: &str, address: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("processes::{name}"), "--nocapture"])
        .env(variable, address)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A group with other ranks in processes, which sum without end.
fn group(size: usize, silence: Duration) -> (Group, Vec<Child>) {
    let rendezvous = Rendezvous::listen("test", here(), "secret").unwrap();
    let address = rendezvous.address().to_string();
    let children = (1..size).map(|_| start(&address)).collect();
    let options = options(PATIENT, silence);
    let group = rendezvous.gather(size, options, PATIENT, &mut |_| {}, &mut || Ok(())).unwrap();
    (group, children)
}

fn sum(group: &mut Group) -> Result<f32, arpo_ranks::RankError> {
    let mut values = HostValues::F32(vec![0.0; 10_000]);
    group.all_reduce(&mut values)?;
    let HostValues::F32(values) = values else { panic!() };
    Ok(values[9_999])
}

fn signal(child: &Child, name: &str) {
    let done = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(done.success());
}

fn output(child: Child) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_killed_process_ends_the_others_and_is_named() {
    let (mut group, mut children) = group(4, PATIENT);
    for _ in 0..20 {
        assert_eq!(sum(&mut group).unwrap().to_bits(), 6f32.to_bits());
    }
    let began = Instant::now();
    let killed = children.remove(1);
    signal(&killed, "-9");
    let process = killed.id();
    let reason = loop {
        match sum(&mut group) {
            Ok(_) => {}
            error => break reason(error),
        }
    };
    let (before, after) = reason.split_once(" (").unwrap();
    assert!(
        before.starts_with("rank ") && after.contains(&format!("process {process}) is gone")),
        "{reason}"
    );
    assert_eq!(output(killed).0, None);
    for child in children {
        let (code, said) = output(child);
        assert_eq!(code, Some(FAILED), "{said}");
        assert!(said.contains(&format!("ended: {reason}")), "{said}");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_frozen_process_is_noticed_by_its_silence() {
    let (mut group, children) = group(3, Duration::from_secs(3));
    sum(&mut group).unwrap();
    let began = Instant::now();
    signal(&children[0], "-STOP");
    let reason = loop {
        match sum(&mut group) {
            Ok(_) => {}
            error => break reason(error),
        }
    };
    let took = began.elapsed();
    let process = children[0].id();
    assert!(reason.contains(&format!("process {process}) hangs: nothing came within 3 s")), "{reason}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    signal(&children[0], "-9");
    for child in children {
        child.wait_with_output().unwrap();
    }
}

/// Whoever writes to it waits, until the silence ends the connection.
#[test]
fn a_process_that_freezes_while_it_is_written_to_is_noticed_by_its_silence() {
    let (mut group, children) = group(3, Duration::from_secs(3));
    sum(&mut group).unwrap();
    signal(&children[0], "-STOP");
    let (process, began) = (children[0].id(), Instant::now());
    // ranks are numbered in the order of their arrival, so either may be the frozen one; the other only takes messages
    let sent = loop {
        let sent = (1..3).try_for_each(|rank| group.send(rank, &"work", vec![0; 1 << 20]));
        if sent.is_err() {
            break reason(sent);
        }
    };
    let took = began.elapsed();
    assert!(sent.contains(&format!("process {process}) hangs: nothing came within 3 s")), "{sent}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    drop(group);
    signal(&children[0], "-9");
    for child in children {
        child.wait_with_output().unwrap();
    }
}

#[test]
fn ranks_whose_rank_0_is_gone_end() {
    let (group, children) = group(3, PATIENT);
    // as if it were killed: no goodbye
    group.end("rank 0 failed");
    drop(group);
    for child in children {
        let (code, said) = output(child);
        assert_eq!(code, Some(FAILED), "{said}");
        assert!(said.contains("ended: rank 0 failed"), "{said}");
    }
}

#[test]
fn a_cut_connection_ends_both_sides() {
    let rendezvous = Rendezvous::listen("test", here(), "secret").unwrap();
    let (zero, proxy) = (rendezvous.address(), TcpListener::bind(here()).unwrap());
    let address = proxy.local_addr().unwrap().to_string();
    let wire = thread::spawn(move || Wire::through(&proxy, zero));
    let child = start(&address);
    let options = options(PATIENT, PATIENT);
    let mut group = rendezvous.gather(2, options, PATIENT, &mut |_| {}, &mut || Ok(())).unwrap();
    sum(&mut group).unwrap();
    wire.join().unwrap().cut();
    let reason = loop {
        match sum(&mut group) {
            Ok(_) => {}
            error => break reason(error),
        }
    };
    assert!(reason.starts_with("rank 1 (") && reason.contains("the connection ended"), "{reason}");
    let (code, said) = output(child);
    assert_eq!(code, Some(FAILED), "{said}");
    assert!(said.contains("ended: rank 0 (") && said.contains("the connection ended"), "{said}");
}

/// It waits without a deadline, but only as long as rank 0 lives.
#[test]
fn a_rank_that_waits_for_rank_0_ends_with_it() {
    let cases = [("-9", "is gone: the connection ended"), ("-STOP", "hangs: nothing came within 3 s")];
    for (name, expected) in cases {
        let free = TcpListener::bind(here()).unwrap().local_addr().unwrap().to_string();
        let zero = start_as("rank_0_in_a_process", LISTEN, &free);
        let group = join(&free, "secret", PATIENT, &mut || Ok(())).unwrap();
        signal(&zero, name);
        let began = Instant::now();
        let said = reason(group.receive(0, None));
        assert!(said.starts_with("rank 0 (") && said.ends_with(expected), "{said}");
        assert!(began.elapsed() < PATIENT / 3, "{:?}", began.elapsed());
        drop(group);
        signal(&zero, "-9");
        zero.wait_with_output().unwrap();
    }
}
