//! What ranks say to each other, and how long it may be.

use crate::frame::{self, FrameKind};

/// A message between rank 0 and another rank, or the first one between neighbours in the ring.
pub(crate) type Frame = frame::Frame<Kind>;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A process wants to be a rank.
    Hello = 0x81,
    /// Rank 0 takes it.
    Welcome = 0x82,
    /// Rank 0 does not take it.
    Refused = 0x83,
    /// Where the rank before it in the ring may connect.
    Ready = 0x84,
    /// Where it has to connect in the ring.
    Neighbour = 0x85,
    /// The first frame between neighbours.
    Ring = 0x86,
    /// The sender is alive, and this far.
    Heartbeat = 0x87,
    /// A message of the program.
    Message = 0x88,
    /// The sender has a problem.
    Failed = 0x89,
    /// The group has ended, for this reason.
    Abort = 0x8a,
    /// The run is over.
    Goodbye = 0x8b,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

impl FrameKind for Kind {
    const ALL: &'static [Self] = &[
        Self::Hello,
        Self::Welcome,
        Self::Refused,
        Self::Ready,
        Self::Neighbour,
        Self::Ring,
        Self::Heartbeat,
        Self::Message,
        Self::Failed,
        Self::Abort,
        Self::Goodbye,
    ];

    fn byte(self) -> u8 {
        self as u8
    }

    fn header_limit(self) -> usize {
        match self {
            // an episode of a hundred turns
            Self::Message => 64 * MIB,
            _ => 4 * KIB,
        }
    }

    /// A tokenizer, or a screen of 5120 x 2880 pixels.
    fn payload_limit(self) -> usize {
        match self {
            Self::Message => 256 * MIB,
            _ => 0,
        }
    }
}
