//! Peers that are not workers of this trainer: each is refused with one line, and costs nothing.

use crate::desktops::{Counts, TestHub, TestWorker, counting, eventually, hub, options};
use arpo_cluster::hub::{Hub, HubOptions};
use arpo_cluster::placement::listen::Listen;
use arpo_cluster::protocol::frame::{Frame, Kind};
use arpo_cluster::protocol::{Hello, Message, VERSION};
use arpo_cluster::worker::{Stop, Worker, WorkerOptions};
use arpo_core::config::Config;
use arpo_suite::EnvironmentSource;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

fn hello() -> Hello {
    Hello {
        protocol: VERSION,
        program: env!("CARGO_PKG_VERSION").into(),
        token: "secret".into(),
        worker: "w".into(),
        host: "h".into(),
        process: 1,
        desktops: 1,
    }
}

/// What a hub answers to these bytes, until it closes the connection.
fn answer(hub: &Hub, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(hub.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    // the hub may have closed it before everything is written
    let _ = stream.write_all(bytes);
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn refusal(hub: &Hub, bytes: &[u8]) -> String {
    let answer = answer(hub, bytes);
    match Message::of(Frame::read(&mut &answer[..], &[Kind::Refused]).unwrap()).unwrap() {
        Message::Refused(refused) => refused.reason,
        other => panic!("{other:?}"),
    }
}

fn bytes(hello: Hello) -> Vec<u8> {
    let mut bytes = vec![];
    Message::Hello(hello).frame().unwrap().write(&mut bytes).unwrap();
    bytes
}

#[test]
fn wrong_hellos_are_refused_with_one_line() {
    let TestHub { hub, lines } = hub(HubOptions { token: "secret".into(), ..options(1) });
    let cases: [(Vec<u8>, &str); 7] = [
        (bytes(Hello { token: "secreT".into(), ..hello() }), "another token: expected"),
        (bytes(Hello { token: String::new(), ..hello() }), "another token: expected"),
        (bytes(Hello { protocol: VERSION + 1, ..hello() }), "expected 0.1.0 with protocol 3"),
        (bytes(Hello { program: "9.9.9".into(), ..hello() }), "version 9.9.9 with protocol 3: expected"),
        (bytes(Hello { desktops: usize::MAX, ..hello() }), "expected 1 to 10000"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "not a message of this protocol"),
        (vec![Kind::Answer as u8, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0], "a Answer is not expected here"),
    ];
    for (number, (bytes, expected)) in cases.iter().enumerate() {
        let reason = refusal(&hub, bytes);
        assert!(reason.contains(expected) && !reason.contains('\n'), "{reason}");
        eventually("it is reported", || lines.lock().unwrap().len() == number + 1);
        assert!(lines.lock().unwrap()[number].ends_with(&reason));
    }
    assert_eq!(hub.capacity(), (0, 0));
}

/// A hello that announces four gigabytes, or never ends.
#[test]
fn an_endless_frame_is_cut_off_at_once() {
    let TestHub { hub, .. } = hub(options(1));
    let mut endless = vec![Kind::Hello as u8, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    endless.resize(1 << 20, b'{');
    let reason = refusal_or_reset(&hub, &endless);
    assert!(reason.is_none_or(|reason| reason.contains("4294967295 bytes: expected at most 4096")));
}

/// A reset may overtake the refusal, because the hub did not read everything.
fn refusal_or_reset(hub: &Hub, bytes: &[u8]) -> Option<String> {
    let answer = answer(hub, bytes);
    let frame = Frame::read(&mut &answer[..], &[Kind::Refused]).ok()?;
    match Message::of(frame).ok()? {
        Message::Refused(refused) => Some(refused.reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_known_worker_that_talks_nonsense_is_cut_off() {
    let TestHub { hub, lines } = hub(HubOptions { token: "secret".into(), ..options(1) });
    let mut stream = TcpStream::connect(hub.address()).unwrap();
    stream.write_all(&bytes(hello())).unwrap();
    Frame::read(&mut stream, &[Kind::Welcome]).unwrap();
    stream.write_all(&[Kind::Answer as u8, 0, 0, 0, 2, 0, 0, 0, 0, b'{', b'}']).unwrap();
    eventually("it is reported", || {
        lines.lock().unwrap().iter().any(|line| line.contains("cut off: a Answer"))
    });
    assert_eq!(hub.capacity().0, 0);
}

#[test]
fn a_worker_with_the_wrong_token_ends_with_the_reason() {
    let TestHub { hub, .. } = hub(HubOptions { token: "secret".into(), ..options(1) });
    let connect = hub.address().to_string();
    let options = WorkerOptions { connect, token: "guess".into(), desktops: 1, grace: None };
    let problem = Worker::new(options, Stop::default(), |_| {}).unwrap().run().unwrap_err().to_string();
    assert!(problem.contains("another token: expected the trainer's ARPO_CLUSTER_TOKEN"), "{problem}");
    let right = TestWorker::with_token(hub.address(), 1, "secret", counting(&Arc::<Counts>::default()));
    hub.open().unwrap();
    drop(right);
}

/// Of the same version, but with an option that the worker does not know.
#[test]
fn a_worker_of_another_build_ends_with_the_reason() {
    let trainer = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let connect = trainer.local_addr().unwrap().to_string();
    let answering = thread::spawn(move || {
        let (mut stream, _) = trainer.accept().unwrap();
        Frame::read(&mut stream, &[Kind::Hello]).unwrap();
        let welcome =
            json!({"run": "r", "grace_ms": 1, "desktops": [], "config": {"new_option": 1}, "tasks": []});
        Frame::new(Kind::Welcome, &welcome).unwrap().write(&mut stream).unwrap();
        // until the worker closes it
        let _ = stream.read(&mut [0; 64]);
    });
    let options = WorkerOptions { connect, token: "secret".into(), desktops: 1, grace: None };
    let problem = Worker::new(options, Stop::default(), |_| {}).unwrap().run().unwrap_err().to_string();
    assert!(problem.contains("new_option") && problem.contains("is of another build"), "{problem}");
    assert!(!problem.contains('\n'), "{problem}");
    answering.join().unwrap();
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let listen = "0.0.0.0:0".parse().unwrap();
    let log = Box::new(|_: &str| {});
    let started = Hub::start(&Config::default(), HubOptions { listen, ..options(1) }, Box::new(Listen), log);
    let problem = started.map(drop).unwrap_err().to_string();
    assert!(problem.contains("expected ARPO_CLUSTER_TOKEN"), "{problem}");
}

#[test]
fn a_trainer_without_workers_says_what_to_start() {
    let TestHub { hub, .. } = hub(HubOptions { start: Duration::from_millis(100), ..options(1) });
    let problem = hub.open().unwrap_err().to_string();
    assert!(
        problem.contains("no worker has connected") && problem.contains("arpo-worker --connect"),
        "{problem}"
    );
}
