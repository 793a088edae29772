//! A group of ranks that have found each other: messages between rank 0 and the others, signs of life, and the ring.

use crate::async_reduce::LentRing;
use crate::deadline::is_timeout;
use crate::error::RankError;
use crate::frame::FrameError;
use crate::kind::{Frame, Kind};
use crate::ring::Ring;
use crate::watch::{Ending, Heartbeat, Peer, Watch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufReader};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The deadlines of a group; rank 0's are everybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupOptions {
    /// Longest wait for another rank in an operation, or for its answer or a sign of its progress: longer than ranks may differ
    /// in what they compute.
    pub deadline: Duration,
    /// A rank from which nothing at all is heard for this long is lost, whatever it computes.
    pub silence: Duration,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self { deadline: Duration::from_mins(10), silence: Duration::from_secs(20) }
    }
}

/// A message between rank 0 and another rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    header: Vec<u8>,
    /// Bytes that JSON would blow up.
    pub payload: Vec<u8>,
}

impl Message {
    /// Its fields.
    pub fn fields<T: DeserializeOwned>(&self) -> Result<T, RankError> {
        serde_json::from_slice(&self.header)
            .map_err(|error| RankError::Internal(format!("a message between ranks: {error}")))
    }
}

/// The ranks of a learner, seen by one of them.
#[derive(Debug)]
pub struct Group {
    size: usize,
    options: GroupOptions,
    watch: Arc<Watch>,
    /// One for each peer of the watch.
    inboxes: Vec<Receiver<Message>>,
    pub(crate) ring: LentRing,
}

/// The place of a rank in its group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Its number.
    pub(crate) rank: usize,
    /// How many ranks there are.
    pub(crate) size: usize,
    /// What is added to the number of a rank other than 0 for its number in the run.
    pub(crate) offset: usize,
}

/// A connection between rank 0 and another rank, before it belongs to a group.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) stream: TcpStream,
}

/// The two connections of a rank in the ring; `None` in a group of one.
pub(crate) type Neighbours = Option<(TcpStream, TcpStream)>;

impl Group {
    /// A group of one, which needs nobody.
    pub fn alone() -> Self {
        let watch = Arc::new(Watch::new(0, 0, vec![]));
        let ring = LentRing::new(Ring::alone(Arc::clone(&watch)));
        Self { size: 1, options: GroupOptions::default(), watch, inboxes: vec![], ring }
    }

    pub(crate) fn start(
        Place { rank, size, offset }: Place,
        options: GroupOptions,
        lines: Vec<Line>,
        neighbours: Neighbours,
    ) -> Result<Self, RankError> {
        let system = |error: io::Error| RankError::System(format!("the connection between ranks: {error}"));
        let mut peers = vec![];
        let mut streams = vec![];
        for Line { name, stream } in lines {
            stream.set_nodelay(true).map_err(system)?;
            stream.set_read_timeout(Some(options.silence)).map_err(system)?;
            stream.set_write_timeout(Some(options.deadline)).map_err(system)?;
            streams.push(stream.try_clone().map_err(system)?);
            peers.push(Arc::new(Peer::new(name, stream).map_err(system)?));
        }
        let watch = Arc::new(Watch::new(rank, offset, peers));
        let ring = match neighbours {
            None => Ring::alone(Arc::clone(&watch)),
            Some(pair) => {
                Ring::start(rank, size, pair, Arc::clone(&watch), options.deadline).map_err(system)?
            }
        };
        let mut inboxes = vec![];
        for (number, stream) in streams.into_iter().enumerate() {
            let (watch, (sender, inbox)) = (Arc::clone(&watch), channel());
            inboxes.push(inbox);
            let read = move || read(&watch, number, &stream, &sender, options.silence);
            Builder::new().name("rank".into()).spawn(read).map_err(system)?;
        }
        let shown = Arc::clone(&watch);
        // so often that a step is known long before anybody has waited for it too long
        let every = options.silence.min(options.deadline) / 5;
        let send = move || send_heartbeats(&shown, every);
        Builder::new().name("heartbeats".into()).spawn(send).map_err(system)?;
        Ok(Self { size, options, watch, inboxes, ring: LentRing::new(ring) })
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.watch.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The name of a rank of this group in the run.
    pub fn name(&self, rank: usize) -> String {
        self.watch.name(rank)
    }

    /// Longest wait for another rank that makes no progress.
    pub fn deadline(&self) -> Duration {
        self.options.deadline
    }

    /// This rank has completed a step of its work, such as a micro-batch: whoever waits for its answer waits on. The next heartbeat
    /// says so.
    pub fn progress(&self) {
        self.watch.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// When a rank was last known to have completed a step of its work; `None` if it has not said so yet.
    pub fn progressed(&self, rank: usize) -> Result<Option<Instant>, RankError> {
        Ok(self.watch.peers[self.line(rank)?].progressed())
    }

    /// An error if the group has ended.
    pub fn check(&self) -> Result<(), RankError> {
        self.watch.check()
    }

    /// Sends a message: rank 0 to any other, any other to rank 0.
    pub fn send(&self, rank: usize, fields: &impl Serialize, payload: Vec<u8>) -> Result<(), RankError> {
        self.check()?;
        let peer = &self.watch.peers[self.line(rank)?];
        let frame = Frame::new(Kind::Message, fields).map(|frame| Frame { payload, ..frame });
        let frame = frame.map_err(|error| RankError::Internal(error.to_string()))?;
        let mut out = peer.out.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = frame.write(&mut *out);
        drop(out);
        sent.map_err(|error| match error {
            FrameError::Connection(error) => {
                self.watch.suspect(&lost(&peer.name, &error, self.options.deadline))
            }
            too_long => RankError::Internal(too_long.to_string()),
        })
    }

    /// The next message of a rank, which has this long for it since its last progress. `None` waits as long as the rank lives,
    /// which is how the others wait for rank 0.
    pub fn receive(&self, rank: usize, limit: Option<Duration>) -> Result<Message, RankError> {
        /// How soon the end of another rank is noticed.
        const POLL_INTERVAL: Duration = Duration::from_millis(100);
        let line = self.line(rank)?;
        let (peer, began) = (&self.watch.peers[line], Instant::now());
        loop {
            match self.inboxes[line].recv_timeout(POLL_INTERVAL) {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Timeout) => self.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    self.check()?;
                    return Err(RankError::Lost(format!("{}: the run is over", peer.name)));
                }
            }
            let since = peer.progressed().map_or(began, |at| at.max(began));
            if let Some(limit) = limit
                && since.elapsed() > limit
            {
                let (name, seconds) = (&peer.name, limit.as_secs_f64());
                let reason = format!("{name} hangs: neither an answer nor progress within {seconds} s");
                self.watch.end(&reason);
                return Err(RankError::Lost(reason));
            }
        }
    }

    /// The next message of a rank, if there is one already.
    pub fn try_receive(&self, rank: usize) -> Result<Option<Message>, RankError> {
        self.check()?;
        match self.inboxes[self.line(rank)?].try_recv() {
            Ok(message) => Ok(Some(message)),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => Ok(None),
        }
    }

    /// Whether rank 0 has said that the run is over, and nothing went wrong before.
    pub fn is_over(&self) -> bool {
        self.watch.is_over() && self.watch.check().is_ok()
    }

    /// What a thread of this rank needs to see the end of the group.
    pub fn sentinel(&self) -> Sentinel {
        Sentinel { watch: Arc::clone(&self.watch) }
    }

    /// Ends the group: every other rank gets an error with this reason.
    pub fn end(&self, reason: &str) {
        self.watch.end(reason);
    }

    fn line(&self, rank: usize) -> Result<usize, RankError> {
        let line = if self.rank() == 0 { rank.checked_sub(1) } else { (rank == 0).then_some(0) };
        line.filter(|&line| line < self.watch.peers.len()).ok_or_else(|| {
            RankError::Internal(format!("rank {} has no connection with rank {rank}", self.rank()))
        })
    }
}

/// Sees the end of a group.
#[derive(Debug, Clone)]
pub struct Sentinel {
    watch: Arc<Watch>,
}

impl Sentinel {
    /// Waits, at most so long, for the end of the group; true if it goes on.
    pub fn wait(&self, time: Duration) -> bool {
        self.watch.pause(time)
    }

    /// Whether rank 0 has said that the run is over, and nothing went wrong before.
    pub fn is_over(&self) -> bool {
        self.watch.is_over() && self.watch.check().is_ok()
    }

    /// An error if the group has ended because something went wrong.
    pub fn check(&self) -> Result<(), RankError> {
        self.watch.check()
    }

    /// Ends the group.
    pub fn end(&self, reason: &str) {
        self.watch.end(reason);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.check().is_err() {
            self.watch.wait_until_notified();
        } else if !self.watch.is_over() {
            if self.rank() == 0 {
                self.watch.finish();
                let goodbye = Frame { kind: Kind::Goodbye, header: vec![], payload: vec![] };
                for peer in &self.watch.peers {
                    peer.write_soon(&goodbye, Duration::from_secs(1));
                }
            } else {
                // it must not look like a rank that is still there
                self.watch.end(&format!("{} has left", self.name(self.rank())));
            }
        }
        self.watch.finish();
        for peer in &self.watch.peers {
            peer.cut();
        }
    }
}

/// Why a connection with a rank ended, in one line.
pub(crate) fn lost(name: &str, error: &io::Error, limit: Duration) -> String {
    match error.kind() {
        _ if is_timeout(error) => format!("{name} hangs: nothing came within {} s", limit.as_secs_f64()),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            format!("{name} is gone: the connection ended")
        }
        _ => format!("{name} is lost: {error}"),
    }
}

/// Reads what a peer sends, until the connection ends.
fn read(watch: &Watch, number: usize, stream: &TcpStream, inbox: &Sender<Message>, silence: Duration) {
    let peer = &watch.peers[number];
    let allowed: &[Kind] = if watch.rank == 0 {
        &[Kind::Heartbeat, Kind::Message, Kind::Failed]
    } else {
        &[Kind::Heartbeat, Kind::Message, Kind::Abort, Kind::Goodbye]
    };
    let mut from = BufReader::with_capacity(64 << 10, stream);
    loop {
        let frame = match Frame::read(&mut from, allowed) {
            Ok(frame) => frame,
            Err(error) => {
                if !watch.is_over() {
                    watch.end(&lost(&peer.name, &error.into(), silence));
                }
                return;
            }
        };
        match frame.kind {
            Kind::Heartbeat => {
                if let Ok(heartbeat) = frame.fields::<Heartbeat>() {
                    peer.note(heartbeat);
                }
            }
            Kind::Message => {
                // a rank that has ended no longer reads them
                let _ = inbox.send(Message { header: frame.header, payload: frame.payload });
            }
            Kind::Goodbye => return watch.finish(),
            _ => {
                let unreadable = |_| Ending { reason: "a problem that cannot be read".into(), certain: true };
                let Ending { reason, certain } = frame.fields().unwrap_or_else(unreadable);
                if watch.rank == 0 {
                    let reason = format!("{}: {reason}", peer.name);
                    if certain {
                        watch.end(&reason);
                    } else {
                        watch.suspect(&reason);
                    }
                } else {
                    watch.end(&reason);
                }
            }
        }
    }
}

/// Shows the peers that this rank is alive, and how far it is.
fn send_heartbeats(watch: &Watch, every: Duration) {
    while watch.pause(every) {
        let Ok(heartbeat) = Frame::new(Kind::Heartbeat, &watch.own_heartbeat()) else { return };
        for peer in &watch.peers {
            // somebody who is writing shows the same
            if let Ok(mut out) = peer.out.try_lock() {
                // a connection that has ended is noticed by whoever reads it
                let _ = heartbeat.write(&mut *out);
            }
        }
    }
}
