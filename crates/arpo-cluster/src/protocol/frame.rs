//! What trainer and workers send each other, and how long it may be; how it is delimited is [`arpo_ranks::frame`]'s.

use arpo_ranks::frame::{self, FrameError, FrameKind};
use std::sync::Arc;

/// A delimited message; its payload is a screen.
pub type Frame = frame::Frame<Kind, Arc<[u8]>>;

/// A peer that does not follow the protocol, or is gone.
pub type ProtocolError = FrameError<Kind>;

/// What a frame is, and so how long it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A worker introduces itself.
    Hello = 1,
    /// The trainer takes it.
    Welcome = 2,
    /// The trainer does not take it.
    Refused = 3,
    /// The sender is alive.
    Heartbeat = 4,
    /// A call of a desktop.
    Request = 5,
    /// Its result.
    Answer = 6,
    /// The run is over.
    Goodbye = 7,
    /// Somebody asks how the cluster is.
    Inquiry = 8,
    /// How it is.
    Status = 9,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Every kind.
pub const KINDS: [Kind; 9] = [
    Kind::Hello,
    Kind::Welcome,
    Kind::Refused,
    Kind::Heartbeat,
    Kind::Request,
    Kind::Answer,
    Kind::Goodbye,
    Kind::Inquiry,
    Kind::Status,
];

impl FrameKind for Kind {
    const ALL: &'static [Self] = &KINDS;

    fn byte(self) -> u8 {
        self as u8
    }

    fn header_limit(self) -> usize {
        match self {
            Self::Heartbeat => 0,
            Self::Hello | Self::Refused | Self::Goodbye | Self::Inquiry => 4 * KIB,
            // the code of a request's action, which is longer than the action
            Self::Answer | Self::Status => 16 * MIB,
            // the task with its set-up; the text that an agent types, and its response
            Self::Request => 4 * MIB,
            // the configuration and the task files
            Self::Welcome => 64 * MIB,
        }
    }

    /// A screen that cannot be compressed at all, of 5120 x 2880 pixels.
    fn payload_limit(self) -> usize {
        match self {
            Self::Answer => 48 * MIB,
            _ => 0,
        }
    }
}
