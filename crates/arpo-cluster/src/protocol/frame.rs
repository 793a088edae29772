//! Frames: how a message is delimited on a connection.
//!
//! ```text
//! kind: 1 byte | length of the header: 4 bytes | length of the payload: 4 bytes | header (JSON) | payload
//! ```
//!
//! Lengths are big-endian. Each kind has its own limits, which are checked before anything is allocated; memory grows only
//! with the bytes that really arrive. So a peer that sends garbage, or announces four gigabytes, costs nothing.

use super::ProtocolError;
use std::io::{self, Read, Write};

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
    Beat = 4,
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
    Kind::Beat,
    Kind::Request,
    Kind::Answer,
    Kind::Goodbye,
    Kind::Inquiry,
    Kind::Status,
];

impl Kind {
    /// Most bytes of its header.
    pub const fn header_limit(self) -> usize {
        match self {
            Self::Beat => 0,
            Self::Hello | Self::Refused | Self::Goodbye | Self::Inquiry => 4 * KIB,
            // the code of a request's action, which is longer than the action
            Self::Answer | Self::Status => 16 * MIB,
            // the task with its set-up; the text that an agent types, and its response
            Self::Request => 4 * MIB,
            // the configuration and the task files
            Self::Welcome => 64 * MIB,
        }
    }

    /// Most bytes of its payload: a screen that cannot be compressed at all, of 5120 x 2880 pixels.
    pub const fn payload_limit(self) -> usize {
        match self {
            Self::Answer => 48 * MIB,
            _ => 0,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        KINDS.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A delimited message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// Its fields, as JSON.
    pub header: Vec<u8>,
    /// Bytes that JSON would blow up: a screen.
    pub payload: std::sync::Arc<[u8]>,
}

/// Bytes before the header.
const PREFIX: usize = 9;

impl Frame {
    /// Checks the limits, which a message of our own may exceed, too: a task of ten megabytes.
    pub fn check(&self) -> Result<(), ProtocolError> {
        check_lengths(self.kind, self.header.len(), self.payload.len())
    }

    /// Writes it.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut head = Vec::with_capacity(PREFIX + self.header.len());
        head.push(self.kind as u8);
        head.extend((self.header.len() as u32).to_be_bytes());
        head.extend((self.payload.len() as u32).to_be_bytes());
        head.extend(&self.header);
        out.write_all(&head)?;
        out.write_all(&self.payload)?;
        out.flush()
    }

    /// Reads the next one; any other kind than those allowed is an error, before its length matters.
    pub fn read(from: &mut impl Read, allowed: &[Kind]) -> Result<Self, ProtocolError> {
        let mut prefix = [0; PREFIX];
        from.read_exact(&mut prefix)?;
        let [byte, h0, h1, h2, h3, p0, p1, p2, p3] = prefix;
        let kind = Kind::of(byte).ok_or(ProtocolError::Garbage { byte })?;
        if !allowed.contains(&kind) {
            return Err(ProtocolError::Unexpected { kind });
        }
        let header = u32::from_be_bytes([h0, h1, h2, h3]) as usize;
        let payload = u32::from_be_bytes([p0, p1, p2, p3]) as usize;
        check_lengths(kind, header, payload)?;
        Ok(Self { kind, header: read_bytes(from, header)?, payload: read_bytes(from, payload)?.into() })
    }
}

fn check_lengths(kind: Kind, header: usize, payload: usize) -> Result<(), ProtocolError> {
    for (length, limit) in [(header, kind.header_limit()), (payload, kind.payload_limit())] {
        if length > limit {
            return Err(ProtocolError::TooLong { kind, length, limit });
        }
    }
    Ok(())
}

/// Exactly so many bytes, allocated as they arrive.
fn read_bytes(from: &mut impl Read, length: usize) -> Result<Vec<u8>, ProtocolError> {
    let mut bytes = Vec::with_capacity(length.min(64 * KIB));
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(bytes)
}
