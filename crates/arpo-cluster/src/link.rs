//! One connection after its first messages: a queue and a thread that writes, so that nobody waits for a slow peer.
//!
//! The queue is bounded. A peer that does not read what it is sent, although it can have no more outstanding than it has
//! desktops, is cut off. If there is nothing to send, heartbeats are.

use crate::protocol::frame::{Frame, Kind};
use crate::protocol::{HEARTBEAT_INTERVAL, Message, ProtocolError, SILENCE_TIMEOUT};
use arpo_ranks::deadline::UntilDeadline;
use std::io::{self, BufReader};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Frames that may wait besides those of the desktops' calls.
const SPARE_FRAMES: usize = 64;

/// The sending side of a connection. It ends when this is dropped, after what was queued has been written.
#[derive(Debug)]
pub(crate) struct Link {
    queue: SyncSender<Frame>,
    stream: TcpStream,
}

impl Link {
    /// Takes over a connection between peers that have at most so many desktops between them.
    pub(crate) fn start(stream: &TcpStream, desktops: usize) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
        stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
        // a request or answer for each desktop, and the message that closes it
        let (queue, frames) = sync_channel(2 * desktops + SPARE_FRAMES);
        let out = stream.try_clone()?;
        Builder::new().name("link".into()).spawn(move || write_frames(out, &frames))?;
        Ok(Self { queue, stream: stream.try_clone()? })
    }

    /// Queues a frame. If there is no room, the peer does not read: the connection is cut.
    pub(crate) fn send(&self, frame: Frame) {
        if self.queue.try_send(frame).is_err() {
            self.cut();
        }
    }

    /// Ends the connection at once; reading it fails from now on.
    pub(crate) fn cut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn write_frames(mut out: TcpStream, frames: &Receiver<Frame>) {
    let heartbeat = Frame { kind: Kind::Heartbeat, header: vec![], payload: [].into() };
    loop {
        let written = match frames.recv_timeout(HEARTBEAT_INTERVAL) {
            Ok(frame) => frame.write(&mut out),
            Err(RecvTimeoutError::Timeout) => heartbeat.write(&mut out),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if written.is_err() {
            break;
        }
    }
    let _ = out.shutdown(Shutdown::Both);
}

/// Reads messages until the connection ends; an error says why.
pub(crate) fn read_messages(
    stream: &TcpStream,
    allowed: &[Kind],
    mut on_message: impl FnMut(Message) -> bool,
) -> Result<(), ProtocolError> {
    let mut from = BufReader::with_capacity(64 << 10, stream);
    loop {
        let message = Message::of(Frame::read(&mut from, allowed)?)?;
        if !on_message(message) {
            return Ok(());
        }
    }
}

/// Reads one message that must be there by a deadline, however slowly its bytes drip.
pub(crate) fn read_by(
    stream: &TcpStream,
    allowed: &[Kind],
    deadline: Instant,
) -> Result<Message, ProtocolError> {
    Message::of(Frame::read(&mut UntilDeadline { stream, deadline }, allowed)?)
}

/// Writes one message before there is a link.
pub(crate) fn write_by(stream: &TcpStream, message: &Message, limit: Duration) -> Result<(), ProtocolError> {
    stream.set_write_timeout(Some(limit))?;
    message.frame()?.write(&mut &*stream)
}
