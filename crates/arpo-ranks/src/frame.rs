//! Frames: how messages are delimited on a connection with rank 0.
//!
//! ```text
//! kind: 1 byte | length of the header: 4 bytes | length of the payload: 4 bytes | header (JSON) | payload
//! ```
//!
//! Lengths are big-endian. Limits are checked before anything is allocated, and memory grows only with the bytes that really
//! arrive.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// What a frame is, and so how long it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
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
    /// The sender is alive.
    Beat = 0x87,
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

const KINDS: [Kind; 11] = [
    Kind::Hello,
    Kind::Welcome,
    Kind::Refused,
    Kind::Ready,
    Kind::Neighbour,
    Kind::Ring,
    Kind::Beat,
    Kind::Message,
    Kind::Failed,
    Kind::Abort,
    Kind::Goodbye,
];

impl Kind {
    /// Most bytes of its header.
    pub const fn header_limit(self) -> usize {
        match self {
            // an episode of a hundred turns
            Self::Message => 64 * MIB,
            _ => 4 * KIB,
        }
    }

    /// Most bytes of its payload: a tokenizer, or a screen of 5120 x 2880 pixels.
    pub const fn payload_limit(self) -> usize {
        match self {
            Self::Message => 256 * MIB,
            _ => 0,
        }
    }
}

/// A delimited message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// Its fields, as JSON.
    pub header: Vec<u8>,
    /// Bytes that JSON would blow up.
    pub payload: Vec<u8>,
}

/// Bytes before the header.
const PREFIX: usize = 9;

impl Frame {
    /// A frame with these fields.
    pub fn new(kind: Kind, fields: &impl Serialize) -> io::Result<Self> {
        Ok(Self { kind, header: serde_json::to_vec(fields)?, payload: vec![] })
    }

    /// Its fields.
    pub fn fields<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.header)?)
    }

    /// Writes it; an error if it is longer than its kind may be.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        check_lengths(self.kind, self.header.len(), self.payload.len())?;
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
    pub fn read(from: &mut impl Read, allowed: &[Kind]) -> io::Result<Self> {
        let mut prefix = [0; PREFIX];
        from.read_exact(&mut prefix)?;
        let [byte, h0, h1, h2, h3, p0, p1, p2, p3] = prefix;
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == byte);
        let kind = kind.ok_or_else(|| invalid(format!("not a message between ranks: a kind of {byte}")))?;
        if !allowed.contains(&kind) {
            return Err(invalid(format!("a {kind:?} is not expected here")));
        }
        let header = u32::from_be_bytes([h0, h1, h2, h3]) as usize;
        let payload = u32::from_be_bytes([p0, p1, p2, p3]) as usize;
        check_lengths(kind, header, payload)?;
        Ok(Self { kind, header: read_bytes(from, header)?, payload: read_bytes(from, payload)? })
    }
}

fn check_lengths(kind: Kind, header: usize, payload: usize) -> io::Result<()> {
    for (length, limit) in [(header, kind.header_limit()), (payload, kind.payload_limit())] {
        if length > limit {
            return Err(invalid(format!("a {kind:?} of {length} bytes: expected at most {limit}")));
        }
    }
    Ok(())
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Exactly so many bytes, allocated as they arrive.
fn read_bytes(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length.min(64 * KIB));
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_back_and_garbage_is_refused() {
        let frame = Frame { kind: Kind::Message, header: b"{}".to_vec(), payload: vec![1, 2, 3] };
        let mut bytes = vec![];
        frame.write(&mut bytes).unwrap();
        assert_eq!(Frame::read(&mut bytes.as_slice(), &[Kind::Message]).unwrap(), frame);
        let read = |bytes: &[u8], kind: Kind| Frame::read(&mut &*bytes, &[kind]).unwrap_err().to_string();
        assert_eq!(read(&bytes, Kind::Hello), "a Message is not expected here");
        assert_eq!(read(b"GET / HTTP/1.1\r\n", Kind::Hello), "not a message between ranks: a kind of 71");
        let long = [&[Kind::Hello as u8], &[0xff; 8][..]].concat();
        assert_eq!(read(&long, Kind::Hello), "a Hello of 4294967295 bytes: expected at most 4096");
        for end in 0..bytes.len() {
            assert!(Frame::read(&mut &bytes[..end], &[Kind::Message]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_not_sent() {
        let frame = Frame { kind: Kind::Hello, header: vec![b' '; 5000], payload: vec![] };
        let problem = frame.write(&mut vec![]).unwrap_err().to_string();
        assert_eq!(problem, "a Hello of 5000 bytes: expected at most 4096");
    }
}
