//! Frames: how messages are delimited on a connection, between ranks as between a trainer and its workers.
//!
//! ```text
//! kind: 1 byte | length of the header: 4 bytes | length of the payload: 4 bytes | header (JSON) | payload
//! ```
//!
//! Lengths are big-endian. Each kind has its own limits, which are checked before anything is allocated; memory grows only
//! with the bytes that really arrive. So a peer that sends garbage, or announces four gigabytes, costs nothing.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::io::{self, Read, Write};

/// What the frames of a protocol can be, and so how long they may be.
pub trait FrameKind: Copy + PartialEq + Debug + 'static {
    /// Every kind.
    const ALL: &'static [Self];

    /// The first byte of its frames.
    fn byte(self) -> u8;

    /// Most bytes of its header.
    fn header_limit(self) -> usize;

    /// Most bytes of its payload.
    fn payload_limit(self) -> usize;
}

/// A delimited message. `P` holds the payload: a vector, or something that can be shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<K, P = Vec<u8>> {
    /// What it is.
    pub kind: K,
    /// Its fields, as JSON.
    pub header: Vec<u8>,
    /// Bytes that JSON would blow up.
    pub payload: P,
}

/// A peer that does not follow the protocol, or is gone.
#[derive(Debug, thiserror::Error)]
pub enum FrameError<K> {
    /// Not a message at all.
    #[error("not a message of this protocol: a kind of {byte}")]
    Garbage {
        /// Its first byte.
        byte: u8,
    },
    /// A message that is not allowed here.
    #[error("a {kind:?} is not expected here")]
    Unexpected {
        /// What came.
        kind: K,
    },
    /// A message that is longer than any that is meant.
    #[error("a {kind:?} of {length} bytes: expected at most {limit}")]
    TooLong {
        /// What came.
        kind: K,
        /// How long.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A message whose fields are not those of this version.
    #[error("a {kind:?} that cannot be read: {problem}")]
    Malformed {
        /// What came.
        kind: K,
        /// Where it is wrong.
        problem: String,
    },
    /// The connection.
    #[error("the connection ended: {0}")]
    Connection(#[from] io::Error),
}

impl<K: FrameKind> From<FrameError<K>> for io::Error {
    fn from(error: FrameError<K>) -> Self {
        match error {
            FrameError::Connection(error) => error,
            other => Self::new(io::ErrorKind::InvalidData, other.to_string()),
        }
    }
}

/// Bytes before the header.
const PREFIX: usize = 9;

/// Bytes that are allocated before any have arrived.
const FIRST_ALLOCATION: usize = 64 << 10;

impl<K: FrameKind, P: Default> Frame<K, P> {
    /// A frame with these fields.
    pub fn new(kind: K, fields: &impl Serialize) -> Result<Self, FrameError<K>> {
        let header = serde_json::to_vec(fields);
        let header = header.map_err(|error| FrameError::Malformed { kind, problem: error.to_string() })?;
        Ok(Self { kind, header, payload: P::default() })
    }
}

impl<K: FrameKind, P> Frame<K, P> {
    /// Its fields.
    pub fn fields<T: DeserializeOwned>(&self) -> Result<T, FrameError<K>> {
        let parsed = serde_json::from_slice(&self.header);
        parsed.map_err(|error| FrameError::Malformed { kind: self.kind, problem: error.to_string() })
    }
}

impl<K: FrameKind, P: AsRef<[u8]> + From<Vec<u8>>> Frame<K, P> {
    /// Checks the limits, which a message of our own may exceed, too: a task of ten megabytes.
    pub fn check(&self) -> Result<(), FrameError<K>> {
        check_lengths(self.kind, self.header.len(), self.payload.as_ref().len())
    }

    /// Writes it; an error if it is longer than its kind may be.
    pub fn write(&self, out: &mut impl Write) -> Result<(), FrameError<K>> {
        self.check()?;
        let payload = self.payload.as_ref();
        let mut head = Vec::with_capacity(PREFIX + self.header.len());
        head.push(self.kind.byte());
        head.extend((self.header.len() as u32).to_be_bytes());
        head.extend((payload.len() as u32).to_be_bytes());
        head.extend(&self.header);
        out.write_all(&head)?;
        out.write_all(payload)?;
        Ok(out.flush()?)
    }

    /// Reads the next one; any other kind than those allowed is an error, before its length matters.
    pub fn read(from: &mut impl Read, allowed: &[K]) -> Result<Self, FrameError<K>> {
        let mut prefix = [0; PREFIX];
        from.read_exact(&mut prefix)?;
        let [byte, h0, h1, h2, h3, p0, p1, p2, p3] = prefix;
        let kind = K::ALL.iter().copied().find(|kind| kind.byte() == byte);
        let kind = kind.ok_or(FrameError::Garbage { byte })?;
        if !allowed.contains(&kind) {
            return Err(FrameError::Unexpected { kind });
        }
        let header = u32::from_be_bytes([h0, h1, h2, h3]) as usize;
        let payload = u32::from_be_bytes([p0, p1, p2, p3]) as usize;
        check_lengths(kind, header, payload)?;
        Ok(Self { kind, header: read_bytes(from, header)?, payload: read_bytes(from, payload)?.into() })
    }
}

fn check_lengths<K: FrameKind>(kind: K, header: usize, payload: usize) -> Result<(), FrameError<K>> {
    for (length, limit) in [(header, kind.header_limit()), (payload, kind.payload_limit())] {
        if length > limit {
            return Err(FrameError::TooLong { kind, length, limit });
        }
    }
    Ok(())
}

/// Exactly so many bytes, allocated as they arrive.
fn read_bytes(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length.min(FIRST_ALLOCATION));
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use crate::kind::{Frame, Kind};

    #[test]
    fn frames_are_read_back_and_garbage_is_refused() {
        let frame = Frame { kind: Kind::Message, header: b"{}".to_vec(), payload: vec![1, 2, 3] };
        let mut bytes = vec![];
        frame.write(&mut bytes).unwrap();
        assert_eq!(Frame::read(&mut bytes.as_slice(), &[Kind::Message]).unwrap(), frame);
        let read = |bytes: &[u8], kind: Kind| Frame::read(&mut &*bytes, &[kind]).unwrap_err().to_string();
        assert_eq!(read(&bytes, Kind::Hello), "a Message is not expected here");
        assert_eq!(read(b"GET / HTTP/1.1\r\n", Kind::Hello), "not a message of this protocol: a kind of 71");
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
