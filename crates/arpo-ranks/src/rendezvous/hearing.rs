//! Talking to peers that are not in a group yet: everything has a time limit, and a peer that says nothing holds nobody up.

use crate::deadline::UntilDeadline;
use crate::error::RankError;
use crate::kind::{Frame, Kind};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Longest time for a hello, and for a connection between neighbours.
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How often those who wait look up.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Most connections without a hello: whoever connects cannot use up the threads.
const MOST_UNKNOWN: usize = 64;

/// Hears those who connect, each in a thread of its own, so that one that says nothing holds nobody up.
pub(super) struct Door<T> {
    sender: Sender<Introduced<T>>,
    introductions: Receiver<Introduced<T>>,
    /// Connections that have not introduced themselves.
    unknown: usize,
}

/// What somebody said, and the connection; or why it is not taken.
type Introduced<T> = Result<(T, TcpStream), String>;

impl<T: Send + 'static> Door<T> {
    pub(super) fn new() -> Self {
        let (sender, introductions) = channel();
        Self { sender, introductions, unknown: 0 }
    }

    /// Accepts who has connected, and waits a moment for the next that has introduced itself.
    pub(super) fn next(
        &mut self,
        listener: &TcpListener,
        introduce: impl Fn(&TcpStream, SocketAddr) -> Result<T, String> + Clone + Send + 'static,
    ) -> Result<Option<Introduced<T>>, RankError> {
        while self.unknown < MOST_UNKNOWN
            && let Ok((stream, peer)) = listener.accept()
        {
            let (sender, introduce) = (self.sender.clone(), introduce.clone());
            let hear = move || {
                let heard = stream.set_nonblocking(false).map_err(|error| error.to_string());
                let _ = sender.send(heard.and_then(|()| introduce(&stream, peer)).map(|who| (who, stream)));
            };
            Builder::new().name("hello".into()).spawn(hear).map_err(RankError::system("a thread"))?;
            self.unknown += 1;
        }
        let introduced = self.introductions.recv_timeout(POLL_INTERVAL).ok();
        self.unknown -= usize::from(introduced.is_some());
        Ok(introduced)
    }
}

/// Sends a message.
pub(super) fn tell(stream: &TcpStream, kind: Kind, fields: &impl serde::Serialize) -> io::Result<()> {
    stream.set_write_timeout(Some(HELLO_TIMEOUT))?;
    Ok(Frame::new(kind, fields)?.write(&mut &*stream)?)
}

/// Reads a message of one of these kinds.
pub(super) fn read(stream: &TcpStream, kinds: &[Kind], limit: Duration) -> io::Result<Frame> {
    Ok(Frame::read(&mut UntilDeadline { stream, deadline: Instant::now() + limit }, kinds)?)
}

/// Reads the fields of a message of this kind.
pub(super) fn hear<T: serde::de::DeserializeOwned>(stream: &TcpStream, kind: Kind) -> io::Result<T> {
    Ok(read(stream, &[kind], HELLO_TIMEOUT)?.fields()?)
}
