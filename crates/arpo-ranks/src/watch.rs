//! What a rank knows about the state of its group: whether it has ended, and why.
//!
//! The first reason wins, and ends everything: connections are shut down, so that whoever waits on one wakes up. What ends
//! first is not always the cause: a rank that lost its neighbour in the ring only suspects it, while rank 0, which has a
//! connection with every rank, knows. So a suspicion waits a little for something better.

use crate::error::RankError;
use crate::kind::{Frame, Kind};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long rank 0 waits for the cause of something that another rank suspects.
const CAUSE_TIMEOUT: Duration = Duration::from_millis(700);

/// How long another rank waits for what rank 0 says about it.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a group has ended, on its way to other ranks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ending {
    pub(crate) reason: String,
    /// The sender knows this; otherwise it only suspects it.
    pub(crate) certain: bool,
}

/// How far a rank is, on its way to other ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Heartbeat {
    /// Operations that it has begun.
    pub(crate) operations: u64,
    /// Steps of its own work that it has completed, such as micro-batches.
    pub(crate) steps: u64,
}

/// The progress of a peer, as far as it is known.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    steps: u64,
    /// When the last step became known.
    at: Option<Instant>,
}

/// One end of a connection between rank 0 and another rank.
#[derive(Debug)]
pub(crate) struct Peer {
    /// `rank 3 (host, process 17)`.
    pub(crate) name: String,
    /// Whoever writes holds it for a whole frame.
    pub(crate) out: Mutex<TcpStream>,
    /// The same connection, to shut it down while somebody writes to a peer that does not read.
    pub(crate) cut: TcpStream,
    /// Operations that it had begun when it last said so.
    pub(crate) operations: AtomicU64,
    progress: Mutex<Progress>,
}

impl Peer {
    pub(crate) fn new(name: String, stream: TcpStream) -> io::Result<Self> {
        let cut = stream.try_clone()?;
        let (operations, progress) = (AtomicU64::new(0), Mutex::default());
        Ok(Self { name, out: Mutex::new(stream), cut, operations, progress })
    }

    /// Notes how far it says that it is. A heartbeat alone is no progress: only further steps are.
    pub(crate) fn note(&self, heartbeat: Heartbeat) {
        self.operations.store(heartbeat.operations, Ordering::Relaxed);
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if heartbeat.steps > progress.steps {
            *progress = Progress { steps: heartbeat.steps, at: Some(Instant::now()) };
        }
    }

    /// When it was last known to have completed a step of its work.
    pub(crate) fn progressed(&self) -> Option<Instant> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).at
    }

    /// Writes a frame if that is possible soon: somebody else may be writing to a peer that does not read.
    pub(crate) fn write_soon(&self, frame: &Frame, limit: Duration) {
        let deadline = Instant::now() + limit;
        loop {
            if let Ok(mut out) = self.out.try_lock() {
                let _ = out.set_write_timeout(Some(limit));
                let _ = frame.write(&mut *out);
                return;
            }
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends what is written to it, at once. The other direction may still bring what the peer has to say.
    pub(crate) fn cut(&self) {
        let _ = self.cut.shutdown(Shutdown::Write);
    }
}

/// The state of a group, shared by the threads of a rank.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) rank: usize,
    /// What is added to the number of a rank other than 0 for its number in the run, which may have another group, too.
    offset: usize,
    /// Rank 0 has one for every other rank, in order; another rank has one for rank 0.
    pub(crate) peers: Vec<Arc<Peer>>,
    /// Operations that this rank has begun.
    pub(crate) operations: AtomicU64,
    /// Steps of its work that this rank has completed.
    pub(crate) steps: AtomicU64,
    problem: Mutex<Option<String>>,
    changed: Condvar,
    ring: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
    /// Everybody has been notified why the group ended, as far as possible.
    notified: AtomicBool,
}

impl Watch {
    pub(crate) fn new(rank: usize, offset: usize, peers: Vec<Arc<Peer>>) -> Self {
        Self {
            rank,
            offset,
            peers,
            operations: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            problem: Mutex::default(),
            changed: Condvar::new(),
            ring: Mutex::default(),
            over: AtomicBool::new(false),
            notified: AtomicBool::new(false),
        }
    }

    /// The name of a rank of this group in the run.
    pub(crate) fn name(&self, rank: usize) -> String {
        format!("rank {}", if rank == 0 { 0 } else { rank + self.offset })
    }

    /// How far this rank is.
    pub(crate) fn own_heartbeat(&self) -> Heartbeat {
        Heartbeat {
            operations: self.operations.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
        }
    }

    /// Connections that are shut down when the group ends.
    pub(crate) fn guard(&self, streams: Vec<TcpStream>) {
        *self.ring.lock().unwrap_or_else(PoisonError::into_inner) = streams;
    }

    fn problem(&self) -> MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error if the group has ended.
    pub(crate) fn check(&self) -> Result<(), RankError> {
        match &*self.problem() {
            None => Ok(()),
            Some(problem) => Err(RankError::Lost(problem.clone())),
        }
    }

    /// The run is over: connections that end are no problem any more.
    pub(crate) fn finish(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Waits for a change, at most so long; true if there is something to wait for.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let problem = self.problem();
        if problem.is_some() || self.is_over() {
            return false;
        }
        let (problem, _) = self.changed.wait_timeout(problem, time).unwrap_or_else(PoisonError::into_inner);
        problem.is_none() && !self.is_over()
    }

    /// Ends the group for a reason that is known. Only the first counts.
    pub(crate) fn end(&self, reason: &str) {
        {
            let mut problem = self.problem();
            if problem.is_some() || self.is_over() {
                return;
            }
            *problem = Some(reason.to_owned());
        }
        self.changed.notify_all();
        let kind = if self.rank == 0 { Kind::Abort } else { Kind::Failed };
        self.tell(kind, reason, true);
        for stream in self.ring.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for peer in &self.peers {
            peer.cut();
        }
        self.notified.store(true, Ordering::SeqCst);
    }

    /// Waits until the thread that noticed the end of the group has notified everybody, so that this process may end.
    pub(crate) fn wait_until_notified(&self) {
        let deadline = Instant::now() + VERDICT_TIMEOUT;
        while !self.notified.load(Ordering::SeqCst) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the group for a reason that is only suspected, unless its cause becomes known soon; returns the error.
    pub(crate) fn suspect(&self, reason: &str) -> RankError {
        let patience = if self.rank == 0 {
            CAUSE_TIMEOUT
        } else {
            self.tell(Kind::Failed, reason, false);
            VERDICT_TIMEOUT
        };
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.pause(left) {
                break;
            }
        }
        let reason = if self.rank == 0 { self.with_stragglers(reason) } else { reason.to_owned() };
        self.end(&reason);
        match self.check() {
            Err(error) => error,
            Ok(()) => RankError::Lost(reason),
        }
    }

    /// A reason, with the names of the ranks that are behind the others.
    fn with_stragglers(&self, reason: &str) -> String {
        let of_peer = |peer: &Arc<Peer>| (peer.operations.load(Ordering::Relaxed), peer.name.clone());
        let own = (self.operations.load(Ordering::Relaxed), "rank 0".to_owned());
        let all: Vec<(u64, String)> = [own].into_iter().chain(self.peers.iter().map(of_peer)).collect();
        let most = all.iter().map(|(count, _)| *count).max().unwrap_or(0);
        let behind: Vec<&str> =
            all.iter().filter(|(count, _)| *count < most).map(|(_, name)| name.as_str()).collect();
        if behind.is_empty() { reason.to_owned() } else { format!("{} hangs: {reason}", behind.join(", ")) }
    }

    /// Tells every peer that can be told.
    fn tell(&self, kind: Kind, reason: &str, certain: bool) {
        // what was told once is cut, so that it never grows beyond a frame
        let reason = reason.chars().take(1000).collect();
        let Ok(frame) = Frame::new(kind, &Ending { reason, certain }) else { return };
        for peer in &self.peers {
            // one that cannot be told learns from its connection's end
            peer.write_soon(&frame, Duration::from_millis(200));
        }
    }
}
