//! What trainer and workers say to each other.
//!
//! A worker connects and says [`Hello`]; the trainer answers with a [`Welcome`] that carries everything the worker needs, or
//! refuses it with a reason. From then on the trainer sends [`Request`]s, one at a time for each desktop, and the worker
//! [`Answer`]s; both sides send heartbeats, so that a dead connection is noticed. A request has a number. After a new connection
//! the trainer repeats those without an answer, and the worker, which remembers the last answer of each desktop, never
//! carries one out twice.
//!
//! | to change | look in |
//! |---|---|
//! | how messages are delimited | [`arpo_ranks::frame`] |
//! | what kinds of messages there are, and how long they may be | [`frame`] |
//! | how environments' results and errors travel | [`outcome`] |
//! | what `arpo cluster status` is told | [`status`] |
//! | the shared token | [`token`] |

pub mod frame;
pub mod outcome;
pub mod status;

pub use arpo_ranks::token;
pub use frame::ProtocolError;

use crate::protocol::frame::{Frame, Kind};
use crate::protocol::outcome::Outcome;
use crate::protocol::status::ClusterStatus;
use arpo_core::action::Action;
use arpo_core::config::Config;
use arpo_core::task::Task;
use arpo_env::environment::RecordEntry;
use arpo_suite::osworld::TaskText;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The version of everything in this module; trainer and worker must have the same.
pub const VERSION: u32 = 3;

/// How often each side shows that it is alive, if it has nothing else to say.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);

/// A connection on which nothing arrives for this long is dead.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(12);

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A worker introduces itself.
    Hello(Hello),
    /// The trainer takes it.
    Welcome(Box<Welcome>),
    /// The trainer does not take it.
    Refused(Refused),
    /// The sender is alive.
    Heartbeat,
    /// A call of a desktop.
    Request(Box<Request>),
    /// Its result.
    Answer(Answer),
    /// The run is over, for this reason.
    Goodbye(Goodbye),
    /// Somebody asks how the cluster is.
    Inquiry(Inquiry),
    /// How it is.
    Status(Box<ClusterStatus>),
}

/// A worker introduces itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The version of the protocol.
    pub protocol: u32,
    /// The version of the program, because both must have the same options and tasks.
    pub program: String,
    /// The shared token; empty for none.
    pub token: String,
    /// The worker's own name: another process has another.
    pub worker: String,
    /// Its host's name.
    pub host: String,
    /// Its process number.
    pub process: u32,
    /// How many desktops it hosts at most.
    pub desktops: usize,
}

/// Somebody asks how the cluster is, and is told once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inquiry {
    /// The version of the protocol.
    pub protocol: u32,
    /// The version of the program.
    pub program: String,
    /// The shared token; empty for none.
    pub token: String,
}

/// What a worker needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The run.
    pub run: String,
    /// How long the worker keeps its desktops without a connection, in milliseconds.
    pub grace_ms: u64,
    /// The desktops that the trainer still uses; the worker closes its others.
    pub desktops: Vec<u64>,
    /// The configuration of the run.
    pub config: Config,
    /// OSWorld's task files, so that the worker's host needs none.
    pub tasks: Vec<TaskText>,
}

/// The trainer does not take a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// What is wrong, and what would be right.
    pub reason: String,
}

/// The run is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goodbye {
    /// Why.
    pub reason: String,
}

/// A call of a desktop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Which desktop.
    pub desktop: u64,
    /// Numbers the calls of a desktop, from 1: a repeated one has the same.
    pub number: u64,
    /// The time that is left for it, in milliseconds: clocks of two machines differ.
    pub left_ms: u64,
    /// What to do.
    pub call: Call,
}

/// What to do with a desktop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Call {
    /// Create it.
    Make {
        /// The slot of the trainer that it is for.
        slot: usize,
    },
    /// Start an episode.
    Reset {
        /// Its task.
        task: Arc<Task>,
        /// What the task leaves open.
        seed: u64,
    },
    /// Carry out an action.
    Step {
        /// The response of the agent that begins with this action, if it is recorded.
        response: Option<String>,
        /// The action.
        action: Action,
    },
    /// Score the state.
    Evaluate {},
    /// Say what the host has, instead of creating a desktop.
    Inspect {},
    /// Remove the desktop; there is no answer.
    Close {},
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Which desktop.
    pub desktop: u64,
    /// The number of the request.
    pub number: u64,
    /// What happened.
    pub outcome: Outcome,
    /// What the desktop did for it, for whoever keeps a record.
    pub record: Vec<RecordEntry>,
    /// The screen after it, as a PNG; empty for none, or for the same as before.
    pub png: Arc<[u8]>,
}

/// The header of an answer; the screen is its payload.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerHeader {
    desktop: u64,
    number: u64,
    outcome: Outcome,
    record: Vec<RecordEntry>,
}

impl Message {
    /// The frame of a message; an error if it is too long to be sent.
    pub fn frame(&self) -> Result<Frame, ProtocolError> {
        let frame = match self {
            Self::Hello(fields) => Frame::new(Kind::Hello, fields),
            Self::Welcome(fields) => Frame::new(Kind::Welcome, fields),
            Self::Refused(fields) => Frame::new(Kind::Refused, fields),
            Self::Heartbeat => Ok(Frame { kind: Kind::Heartbeat, header: vec![], payload: Arc::default() }),
            Self::Request(fields) => Frame::new(Kind::Request, fields),
            Self::Answer(Answer { desktop, number, outcome, record, png }) => {
                let (outcome, record) = (outcome.clone(), record.clone());
                let header = AnswerHeader { desktop: *desktop, number: *number, outcome, record };
                Frame::new(Kind::Answer, &header).map(|frame| Frame { payload: Arc::clone(png), ..frame })
            }
            Self::Goodbye(fields) => Frame::new(Kind::Goodbye, fields),
            Self::Inquiry(fields) => Frame::new(Kind::Inquiry, fields),
            Self::Status(fields) => Frame::new(Kind::Status, fields),
        }?;
        frame.check()?;
        Ok(frame)
    }

    /// The message of a frame.
    pub fn of(frame: Frame) -> Result<Self, ProtocolError> {
        Ok(match frame.kind {
            Kind::Hello => Self::Hello(frame.fields()?),
            Kind::Welcome => Self::Welcome(frame.fields()?),
            Kind::Refused => Self::Refused(frame.fields()?),
            Kind::Heartbeat => Self::Heartbeat,
            Kind::Request => Self::Request(frame.fields()?),
            Kind::Answer => {
                let AnswerHeader { desktop, number, outcome, record } = frame.fields()?;
                Self::Answer(Answer { desktop, number, outcome, record, png: frame.payload })
            }
            Kind::Goodbye => Self::Goodbye(frame.fields()?),
            Kind::Inquiry => Self::Inquiry(frame.fields()?),
            Kind::Status => Self::Status(frame.fields()?),
        })
    }
}
