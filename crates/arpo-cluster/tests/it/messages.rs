//! Messages arrive as they were sent, and no bytes make the decoder panic, allocate or accept nonsense.

use arpo_cluster::protocol::frame::{Frame, KINDS, Kind};
use arpo_cluster::protocol::outcome::{Failure, Inspection, Outcome};
use arpo_cluster::protocol::status::{ClusterStatus, DesktopStatus, WorkerStatus};
use arpo_cluster::protocol::{
    Answer, Call, Goodbye, Hello, Inquiry, Message, ProtocolError, Refused, Request, Welcome,
};
use arpo_core::action::{Action, ModelBox};
use arpo_core::config::Config;
use arpo_core::task::{Task, TaskId};
use arpo_env::environment::RecordEntry;
use arpo_ranks::frame::FrameKind;
use arpo_suite::osworld::TaskText;
use proptest::prelude::*;
use std::sync::Arc;

fn call() -> impl Strategy<Value = Call> {
    let task = (".*", ".*", any::<i64>()).prop_map(|(id, instruction, number)| Task {
        id: TaskId::new(id),
        instruction,
        application: String::new(),
        setup: serde_json::json!([{"type": "launch", "parameters": {"n": number}}]),
        evaluator: serde_json::Value::Null,
    });
    let coordinate = || proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::SUBNORMAL;
    let action = prop_oneof![
        Just(Action::Wait {}),
        ".*".prop_map(|content| Action::Finished { content: Some(content) }),
        (coordinate(), coordinate())
            .prop_map(|(x, y)| Action::Click { start_box: ModelBox { x1: x, y1: y, x2: y, y2: x } }),
    ];
    prop_oneof![
        any::<usize>().prop_map(|slot| Call::Make { slot }),
        (task, any::<u64>()).prop_map(|(task, seed)| Call::Reset { task: Arc::new(task), seed }),
        (proptest::option::of(".*"), action).prop_map(|(response, action)| Call::Step { response, action }),
        Just(Call::Evaluate {}),
        Just(Call::Inspect {}),
        Just(Call::Close {}),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        (any::<bool>(), any::<Option<(u32, u32)>>())
            .prop_map(|(deterministic, size)| Outcome::Made { deterministic, size }),
        any::<Option<(u32, u32)>>().prop_map(|size| Outcome::Started { size }),
        any::<(bool, bool, bool)>().prop_map(|(terminated, truncated, unchanged)| Outcome::Stepped {
            terminated,
            truncated,
            unchanged
        }),
        any::<u64>().prop_map(|bits| Outcome::Scored { bits }),
        (any::<usize>(), proptest::option::of(".*")).prop_map(|(processors, problem)| {
            Outcome::Inspected(Inspection { processors, memory_gib: Some(1.5), problem })
        }),
        ".*".prop_map(|reason| Outcome::Failed(Failure::Broken { reason })),
        (".*", ".*").prop_map(|(task, reason)| Outcome::Failed(Failure::BadTask { task, reason })),
        Just(Outcome::Failed(Failure::NoEpisode {})),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let hello =
        (any::<u32>(), ".{0,40}", ".{0,40}", any::<usize>()).prop_map(|(protocol, token, host, desktops)| {
            Message::Hello(Hello {
                protocol,
                program: "0.1.0".into(),
                token,
                worker: "w".into(),
                host,
                process: 7,
                desktops,
            })
        });
    let welcome = (any::<u64>(), any::<Vec<u64>>(), ".*").prop_map(|(grace_ms, desktops, text)| {
        let tasks = vec![TaskText { domain: "os".into(), text }];
        let config = Config::default();
        Message::Welcome(Box::new(Welcome { run: "r".into(), grace_ms, desktops, config, tasks }))
    });
    let request = (any::<[u64; 3]>(), call()).prop_map(|([desktop, number, left_ms], call)| {
        Message::Request(Box::new(Request { desktop, number, left_ms, call }))
    });
    let entry = prop_oneof![
        ".*".prop_map(RecordEntry::Action),
        ".*".prop_map(RecordEntry::Note),
        any::<Vec<u8>>().prop_map(RecordEntry::Video),
    ];
    let entries = proptest::collection::vec(entry, 0..3);
    let answer = (any::<[u64; 2]>(), outcome(), entries, any::<Vec<u8>>()).prop_map(
        |([desktop, number], outcome, record, png)| {
            Message::Answer(Answer { desktop, number, outcome, record, png: png.into() })
        },
    );
    let inquiry = (any::<u32>(), ".{0,40}")
        .prop_map(|(protocol, token)| Message::Inquiry(Inquiry { protocol, program: "0.1.0".into(), token }));
    let status = (".{0,40}", any::<u32>(), any::<usize>()).prop_map(|(host, process, capacity)| {
        let call = Some(("step".into(), 0.5));
        let desktops = vec![DesktopStatus { slot: capacity, task: Some(host.clone()), call }];
        Message::Status(Box::new(ClusterStatus {
            seconds: 1.5,
            wanted: capacity,
            lost_workers: 1,
            hosts: vec![],
            workers: vec![WorkerStatus { host, process, capacity, lost_seconds: None, desktops }],
        }))
    });
    prop_oneof![
        hello,
        welcome,
        request,
        answer,
        inquiry,
        status,
        Just(Message::Heartbeat),
        ".{0,99}".prop_map(|reason| Message::Refused(Refused { reason })),
        ".{0,99}".prop_map(|reason| Message::Goodbye(Goodbye { reason })),
    ]
}

fn written(messages: &[Message]) -> Vec<u8> {
    let mut bytes = vec![];
    for message in messages {
        message.frame().unwrap().write(&mut bytes).unwrap();
    }
    bytes
}

proptest! {
    #[test]
    fn messages_arrive_as_they_were_sent(messages in proptest::collection::vec(message(), 1..5)) {
        let bytes = written(&messages);
        let mut left = &bytes[..];
        for message in &messages {
            prop_assert_eq!(&Message::of(Frame::read(&mut left, &KINDS).unwrap()).unwrap(), message);
        }
        prop_assert!(left.is_empty());
    }

    /// One byte changed, or some bytes missing: an error or another message, never a panic.
    #[test]
    fn a_damaged_message_is_no_panic(message in message(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut bytes = written(&[message]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Frame::read(&mut &bytes[..], &KINDS).and_then(Message::of);
        let cut = cut.index(bytes.len());
        let _ = Frame::read(&mut &bytes[..cut], &KINDS).and_then(Message::of);
    }
}

/// A generator that is cheap enough for millions of frames.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A million frames of noise, half of them with a kind and lengths that are allowed, so that their fields are read, too.
#[test]
fn a_million_frames_of_noise_are_errors_or_messages() {
    const PIECES: [&str; 12] =
        ["{", "}", "[", "]", "\"desktop\":", "\"call\":", "1", "null", ",", "\"", "\"step\":{", "\u{0}"];
    let mut noise = Noise(0x9E37_79B9_7F4A_7C15);
    let mut read = 0;
    let mut bytes = vec![];
    for number in 0..1_000_000 {
        bytes.clear();
        if number % 2 == 0 {
            bytes.extend((0..noise.next() % 48).map(|_| noise.next() as u8));
        } else {
            let kind = KINDS[noise.next() as usize % KINDS.len()];
            let fields: String =
                (0..noise.next() % 12).map(|_| PIECES[(noise.next() % 12) as usize]).collect();
            let length = fields.len().min(kind.header_limit());
            bytes.push(kind as u8);
            bytes.extend((length as u32).to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(&fields.as_bytes()[..length]);
        }
        if let Ok(message) = Frame::read(&mut &bytes[..], &KINDS).and_then(Message::of) {
            // what happens to be a message is one: it can be sent on
            assert_eq!(Message::of(message.frame().unwrap()).unwrap(), message);
            read += 1;
        }
    }
    assert!(read > 0);
}

#[test]
fn a_frame_beyond_its_limit_is_refused_before_it_is_read() {
    for kind in KINDS {
        for (header, payload) in [(kind.header_limit() + 1, 0), (0, kind.payload_limit() + 1)] {
            let mut bytes = vec![kind as u8];
            bytes.extend((header as u32).to_be_bytes());
            bytes.extend((payload as u32).to_be_bytes());
            let refused = Frame::read(&mut &bytes[..], &KINDS).unwrap_err();
            assert!(matches!(refused, ProtocolError::TooLong { .. }), "{refused}");
            // the same from here: it is not sent
            let frame = Frame { kind, header: vec![b' '; header], payload: vec![0; payload].into() };
            assert!(frame.check().is_err());
        }
        let others: Vec<Kind> = KINDS.into_iter().filter(|other| *other != kind).collect();
        let refused = Frame::read(&mut &[kind as u8, 0, 0, 0, 0, 0, 0, 0, 0][..], &others).unwrap_err();
        assert!(matches!(refused, ProtocolError::Unexpected { .. }), "{refused}");
    }
}
