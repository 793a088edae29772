//! Reading from a connection until a deadline, however slowly its bytes drip.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::Instant;

/// A connection that can be read until a deadline.
#[derive(Debug)]
pub struct UntilDeadline<'a> {
    /// The connection.
    pub stream: &'a TcpStream,
    /// When reading fails with [`io::ErrorKind::TimedOut`].
    pub deadline: Instant,
}

impl Read for UntilDeadline<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

/// Whether an error is a deadline that has passed: sockets say so in two ways.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}
