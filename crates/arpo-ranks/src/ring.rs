//! Sums and copies over a ring: each rank sends to the next one and receives from the one before.
//!
//! A sum over n ranks travels in n parts at once. Part p starts at the rank after its owner and passes every rank, which adds
//! its own values; it arrives at its owner last. So every link carries the same amount, and the order of the additions
//! depends on nothing but the number of ranks.
//!
//! ```text
//! frame: operation: 8 bytes | kind: 1 byte | length: 4 bytes | values
//! ```
//!
//! Ranks that do not carry out the same operation notice it by the head of the first frame.

use crate::Collectives;
use crate::deadline::UntilDeadline;
use crate::error::RankError;
use crate::group::{Group, lost};
use crate::values::{HostValues, Parts};
use crate::watch::Watch;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Most bytes of values in a frame.
const FRAME_BYTES: usize = 1 << 20;

/// Frames that wait to be sent.
const QUEUE: usize = 4;

/// Bytes before the values.
const HEAD: usize = 13;

/// What a rank does with values that arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    Add,
    Replace,
}

/// This rank's place in the ring.
#[derive(Debug)]
pub struct Ring {
    rank: usize,
    size: usize,
    before: Option<TcpStream>,
    /// Frames for the next rank; a thread writes them, so that sending and receiving never wait for each other.
    queue: Option<SyncSender<Vec<u8>>>,
    watch: Arc<Watch>,
    deadline: Duration,
    received: Vec<u8>,
}

impl Ring {
    pub(crate) fn alone(watch: Arc<Watch>) -> Self {
        let deadline = Duration::ZERO;
        Self { rank: 0, size: 1, before: None, queue: None, watch, deadline, received: vec![] }
    }

    pub(crate) fn start(
        rank: usize,
        size: usize,
        (before, next): (TcpStream, TcpStream),
        watch: Arc<Watch>,
        deadline: Duration,
    ) -> io::Result<Self> {
        next.set_nodelay(true)?;
        next.set_write_timeout(Some(deadline))?;
        watch.guard(vec![before.try_clone()?, next.try_clone()?]);
        let (queue, frames) = sync_channel(QUEUE);
        let (watching, name) = (Arc::clone(&watch), watch.name((rank + 1) % size));
        let write = move || write_frames(next, &frames, &watching, &name, deadline);
        Builder::new().name("ring".into()).spawn(write)?;
        Ok(Self { rank, size, before: Some(before), queue: Some(queue), watch, deadline, received: vec![] })
    }

    /// Begins an operation and returns its number.
    fn begin(&self) -> Result<u64, RankError> {
        self.watch.check()?;
        Ok(self.watch.operations.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn send(
        &self,
        operation: u64,
        arrival: Arrival,
        values: &HostValues,
        range: Range<usize>,
    ) -> Result<(), RankError> {
        let length = range.len() * values.width();
        let mut frame = Vec::with_capacity(HEAD + length);
        frame.extend(operation.to_le_bytes());
        frame.push(arrival as u8);
        frame.extend((length as u32).to_le_bytes());
        values.write(range, &mut frame);
        self.queue(frame)
    }

    fn queue(&self, frame: Vec<u8>) -> Result<(), RankError> {
        let queued = self.queue.as_ref().map(|queue| queue.send(frame));
        match queued {
            Some(Ok(())) => Ok(()),
            // the thread that writes has ended, and said why
            _ => {
                Err(self.watch.suspect(&format!("{} is lost", self.watch.name((self.rank + 1) % self.size))))
            }
        }
    }

    /// Receives one frame into a range.
    fn receive(
        &mut self,
        operation: u64,
        arrival: Arrival,
        values: &mut HostValues,
        range: Range<usize>,
    ) -> Result<(), RankError> {
        let length = range.len() * values.width();
        let Some(before) = &self.before else { return Ok(()) };
        let mut from = UntilDeadline { stream: before, deadline: Instant::now() + self.deadline };
        let mut head = [0; HEAD];
        self.received.resize(length, 0);
        let name = self.watch.name((self.rank + self.size - 1) % self.size);
        let read = from.read_exact(&mut head).and_then(|()| {
            let [o0, o1, o2, o3, o4, o5, o6, o7, kind, l0, l1, l2, l3] = head;
            let theirs = u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
            let bytes = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            if (theirs, kind, bytes) != (operation, arrival as u8, length) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "it sent {bytes} bytes in operation {theirs}: expected {length} in operation {operation}"
                    ),
                ));
            }
            from.read_exact(&mut self.received)
        });
        if let Err(error) = read {
            let reason = lost(&name, &error, self.deadline);
            let own = self.watch.name(self.rank);
            return Err(self.watch.suspect(&format!("{reason} ({own}, operation {operation})")));
        }
        match arrival {
            Arrival::Add => values.add(range, &self.received),
            Arrival::Replace => values.replace(range, &self.received),
        }
        Ok(())
    }

    /// One step of all ranks at once: sends a range to the next rank and receives another one.
    fn exchange(
        &mut self,
        operation: u64,
        arrival: Arrival,
        values: &mut HostValues,
        sent: Range<usize>,
        received: Range<usize>,
    ) -> Result<(), RankError> {
        let frames = |range: Range<usize>, width: usize| {
            let step = FRAME_BYTES / width;
            let end = range.end;
            range.step_by(step).map(move |start| start..(start + step).min(end))
        };
        let width = values.width();
        let (mut sent, mut received) = (frames(sent, width), frames(received, width));
        // in turns: a rank that sent everything first would wait for one that does the same
        loop {
            let (out, into) = (sent.next(), received.next());
            if out.is_none() && into.is_none() {
                return Ok(());
            }
            if let Some(range) = out {
                self.send(operation, arrival, values, range)?;
            }
            if let Some(range) = into {
                self.receive(operation, arrival, values, range)?;
            }
        }
    }

    /// The rank so many places before this one.
    fn behind(&self, places: usize) -> usize {
        (self.rank + 2 * self.size - places) % self.size
    }

    fn check(&self, values: &HostValues, parts: &Parts) -> Result<(), RankError> {
        if parts.count() == self.size && parts.total() == values.len() {
            return Ok(());
        }
        Err(RankError::Internal(format!(
            "{} parts of {} values: expected {} parts of {}",
            parts.count(),
            parts.total(),
            self.size,
            values.len()
        )))
    }

    /// Replaces this rank's part of the values by its sums over all ranks.
    pub(crate) fn reduce_scatter(&mut self, values: &mut HostValues, parts: &Parts) -> Result<(), RankError> {
        self.check(values, parts)?;
        self.scatter(values, parts)
    }

    fn scatter(&mut self, values: &mut HostValues, parts: &Parts) -> Result<(), RankError> {
        let operation = self.begin()?;
        for step in 1..self.size {
            // the part of the rank before this one leaves first, and this rank's own arrives last
            let (sent, received) = (parts.of(self.behind(step)), parts.of(self.behind(step + 1)));
            self.exchange(operation, Arrival::Add, values, sent, received)?;
        }
        Ok(())
    }

    fn gather(&mut self, values: &mut HostValues, parts: &Parts) -> Result<(), RankError> {
        let operation = self.begin()?;
        for step in 0..self.size.saturating_sub(1) {
            let (sent, received) = (parts.of(self.behind(step)), parts.of(self.behind(step + 1)));
            self.exchange(operation, Arrival::Replace, values, sent, received)?;
        }
        Ok(())
    }

    fn broadcast(&mut self, root: usize, values: &mut HostValues) -> Result<(), RankError> {
        if root >= self.size {
            return Err(RankError::Internal(format!("rank {root}: expected one below {}", self.size)));
        }
        let operation = self.begin()?;
        let is_last = (self.rank + 1) % self.size == root;
        let step = FRAME_BYTES / values.width();
        for start in (0..values.len()).step_by(step) {
            let range = start..(start + step).min(values.len());
            if self.rank != root {
                self.receive(operation, Arrival::Replace, values, range.clone())?;
            }
            if !is_last {
                self.send(operation, Arrival::Replace, values, range)?;
            }
        }
        Ok(())
    }
}

/// Writes frames until there are no more, or until the connection ends.
fn write_frames(
    mut out: TcpStream,
    frames: &Receiver<Vec<u8>>,
    watch: &Watch,
    name: &str,
    deadline: Duration,
) {
    for frame in frames {
        if let Err(error) = out.write_all(&frame) {
            watch.suspect(&lost(name, &error, deadline));
            return;
        }
    }
    // the next rank may be waiting for more than this one has sent before it left
    let _ = out.shutdown(Shutdown::Write);
}

impl Collectives<HostValues> for Group {
    fn rank(&self) -> usize {
        Self::rank(self)
    }

    fn size(&self) -> usize {
        Self::size(self)
    }

    fn broadcast(&mut self, root: usize, values: &mut HostValues) -> Result<(), RankError> {
        self.ring.take_back()?.broadcast(root, values)
    }

    fn all_reduce(&mut self, values: &mut HostValues) -> Result<(), RankError> {
        let parts = Parts::even(values.len(), self.size(), 1);
        let ring = self.ring.take_back()?;
        ring.scatter(values, &parts)?;
        ring.gather(values, &parts)
    }

    fn reduce_scatter(&mut self, values: &mut HostValues, parts: &Parts) -> Result<(), RankError> {
        self.ring.take_back()?.reduce_scatter(values, parts)
    }

    fn all_gather(&mut self, values: &mut HostValues, parts: &Parts) -> Result<(), RankError> {
        let ring = self.ring.take_back()?;
        ring.check(values, parts)?;
        ring.gather(values, parts)
    }

    fn reduce_scatter_async(&mut self, bucket: Vec<(HostValues, Parts)>) -> Result<(), RankError> {
        self.check()?;
        self.ring.reduce_scatter_async(bucket)
    }

    fn wait_reduce_scatter(&mut self, left: usize) -> Result<Vec<HostValues>, RankError> {
        self.ring.wait_reduce_scatter(left)
    }

    fn take_wait_time(&mut self) -> Duration {
        self.ring.take_wait_time()
    }

    fn barrier(&mut self) -> Result<(), RankError> {
        self.all_reduce(&mut HostValues::F32(vec![0.0; self.size()]))
    }

    fn abort(&self, reason: &str) {
        self.end(reason);
    }

    fn all_reduce_f64(&mut self, numbers: &[f64]) -> Result<Vec<f64>, RankError> {
        if numbers.is_empty() {
            return Ok(vec![]);
        }
        // a sum of two f32 keeps 48 bits of an f64, far more than the f32 values that such numbers come from; NaN and
        // infinity stay what they are
        let own = self.rank() * numbers.len() * 2;
        let mut all = vec![0.0; self.size() * numbers.len() * 2];
        for (place, number) in all[own..].chunks_exact_mut(2).zip(numbers) {
            let high = *number as f32;
            let rest = (number - f64::from(high)) as f32;
            place.copy_from_slice(&[high, if rest.is_finite() { rest } else { 0.0 }]);
        }
        let mut all = HostValues::F32(all);
        let parts = Parts::even(all.len(), self.size(), numbers.len() * 2);
        self.all_gather(&mut all, &parts)?;
        let HostValues::F32(all) = all else { return Ok(vec![]) };
        let mut sums = vec![0.0; numbers.len()];
        for rank in all.chunks_exact(numbers.len() * 2) {
            for (sum, place) in sums.iter_mut().zip(rank.chunks_exact(2)) {
                *sum += f64::from(place[0]) + f64::from(place[1]);
            }
        }
        Ok(sums)
    }
}
