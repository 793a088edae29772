//! Sums that travel while this rank computes. The ring is lent to a thread, which carries out what it is given in that order;
//! the next operation of another kind waits for all of it, and takes the ring back. So the order of operations is the same on
//! all ranks, whatever the threads do.

use crate::error::RankError;
use crate::ring::Ring;
use crate::values::{HostValues, Parts};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Values to be summed, and whoever waits for them.
struct Job {
    values: HostValues,
    parts: Parts,
    done: Sender<Result<HostValues, RankError>>,
}

/// The thread that has the ring.
#[derive(Debug)]
struct Carrier {
    jobs: Sender<Job>,
    thread: JoinHandle<Ring>,
}

/// The ring, here or with the thread.
#[derive(Debug)]
pub(crate) struct LentRing {
    /// `None` while the thread has it.
    ring: Option<Ring>,
    carrier: Option<Carrier>,
    /// The sums of each bucket that nobody has taken yet.
    buckets: VecDeque<Vec<Receiver<Result<HostValues, RankError>>>>,
    waited: Duration,
}

impl LentRing {
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring: Some(ring), carrier: None, buckets: VecDeque::new(), waited: Duration::ZERO }
    }

    /// Takes the ring back from the thread, when everything that was begun is done.
    pub(crate) fn take_back(&mut self) -> Result<&mut Ring, RankError> {
        if let Some(Carrier { jobs, thread }) = self.carrier.take() {
            drop(jobs);
            self.ring = thread.join().ok();
        }
        self.ring.as_mut().ok_or_else(lost)
    }

    /// Begins the sums of a bucket.
    pub(crate) fn reduce_scatter_async(&mut self, bucket: Vec<(HostValues, Parts)>) -> Result<(), RankError> {
        let mut sums = vec![];
        for (values, parts) in bucket {
            let (done, sum) = channel();
            // a thread that has ended has dropped the sender, which is noticed when the sum is taken
            let _ = self.carrier()?.jobs.send(Job { values, parts, done });
            sums.push(sum);
        }
        self.buckets.push_back(sums);
        Ok(())
    }

    /// The sums of all buckets but the last `left`, in the order in which they were begun.
    pub(crate) fn wait_reduce_scatter(&mut self, left: usize) -> Result<Vec<HostValues>, RankError> {
        let began = Instant::now();
        let mut values = vec![];
        while self.buckets.len() > left {
            for sum in self.buckets.pop_front().into_iter().flatten() {
                // every operation of the ring has a deadline
                values.push(sum.recv().map_err(|_| lost())??);
            }
        }
        self.waited += began.elapsed();
        Ok(values)
    }

    /// How long it was waited for sums to arrive since this was last asked.
    pub(crate) fn take_wait_time(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    fn carrier(&mut self) -> Result<&Carrier, RankError> {
        if self.carrier.is_none() {
            let mut ring = self.ring.take().ok_or_else(lost)?;
            let (jobs, queue) = channel::<Job>();
            let carry = move || {
                for Job { mut values, parts, done } in queue {
                    let summed = ring.reduce_scatter(&mut values, &parts);
                    // whoever began it may have failed at something else
                    let _ = done.send(summed.map(|()| values));
                }
                ring
            };
            let thread = Builder::new().name("sums".into()).spawn(carry);
            let thread = thread.map_err(RankError::system("a thread for sums between ranks"))?;
            self.carrier = Some(Carrier { jobs, thread });
        }
        self.carrier.as_ref().ok_or_else(lost)
    }
}

fn lost() -> RankError {
    RankError::Internal("the thread that sums between ranks has ended".into())
}
