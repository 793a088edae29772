//! Operations between ranks on tensors of GPUs, by NCCL. Messages, signs of life and sums of a few numbers go over TCP.
//!
//! NCCL's operations wait on the device for all ranks, and know nothing of deadlines. So a thread watches: when the group
//! ends, because a rank is lost, or when the operations take longer than the group's deadline, it aborts them. Ranks agree
//! over TCP before they begin (see `finish_with` in `step`), so that the time of the operations is only their own; where
//! gradients are summed in the backward pass (`gradients`), it is that of the pass of the slowest rank.
//!
//! Sums that go on beside the backward pass are on a stream of their own, which waits for what they sum, and which the
//! computation waits for.

use arpo_ranks::{Collectives, Group, Parts, RankError, Sentinel};
use arpo_torch::nccl::{Communicator, ID_BYTES, Nccl, Section};
use arpo_torch::stream::{Event, Hold, SideStream};
use std::collections::VecDeque;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use tch::{Cuda, Device, Tensor};

/// How often the thread that watches looks up.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Longest time for all ranks to connect their GPUs.
const CONNECT_TIMEOUT: Duration = Duration::from_mins(3);

/// Tensors of ranks that have a GPU each.
#[derive(Debug)]
pub struct NcclTensors {
    group: Group,
    communicator: Arc<Communicator>,
    device: Device,
    /// When the operations that are not known to be done were begun.
    busy: Arc<Mutex<Option<Instant>>>,
    /// For sums beside the computation.
    stream: SideStream,
    /// Those that the computation has not been made to wait for: their tensors, which have to live so long, and their ends.
    in_flight: VecDeque<(Vec<Tensor>, Event)>,
    /// Waits of the computation that may not have ended yet.
    holds: Vec<Hold>,
    /// Those that have.
    waited: Duration,
}

/// A group whose GPUs are connected, or not.
#[derive(Debug)]
pub enum Connected {
    /// By NCCL.
    With(NcclTensors),
    /// Not, for this reason.
    Without(Group, String),
}

impl NcclTensors {
    /// Connects the GPUs of a group. If one of them cannot be used with NCCL, no rank uses it.
    pub fn connect(mut group: Group, device: Device) -> Result<Connected, RankError> {
        let (communicator, stream) = match connected(&mut group, device)? {
            Err(reason) => return Ok(Connected::Without(group, reason)),
            Ok((communicator, stream)) => (Arc::new(communicator), stream),
        };
        let busy = Arc::default();
        watch(&group, &communicator, &busy);
        let (in_flight, holds, waited) = (VecDeque::new(), vec![], Duration::ZERO);
        Ok(Connected::With(Self { group, communicator, device, busy, stream, in_flight, holds, waited }))
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Queues an operation, whose time begins now.
    fn operate<T>(&self, operation: impl FnOnce(&Communicator) -> Result<T, String>) -> Result<T, RankError> {
        self.group.check()?;
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        self.or_end(operation(&self.communicator))
    }

    /// Ends the group after a problem: what goes wrong here is not a wrong call but a broken connection.
    fn or_end<T>(&self, result: Result<T, String>) -> Result<T, RankError> {
        result.map_err(|problem| {
            // another rank may be the cause, and named already
            let problem = format!("{}: {problem}", self.group.name(self.group.rank()));
            self.group.end(&problem);
            self.group.check().err().unwrap_or(RankError::Lost(problem))
        })
    }

    /// Waits until all operations are done.
    fn settle(&mut self) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if busy.is_none() {
            return;
        }
        drop(busy);
        if let Device::Cuda(number) = self.device {
            Cuda::synchronize(number as i64);
        }
        busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        *busy = None;
        drop(busy);
        let seconds: f64 = self.holds.drain(..).filter_map(|hold| hold.seconds()).sum();
        self.waited += Duration::from_secs_f64(seconds.max(0.0));
    }
}

/// Sums each rank's part of a tensor over all ranks.
fn sum_parts(
    communicator: &Communicator,
    values: &Tensor,
    (rank, parts): (usize, &Parts),
    stream: Option<&SideStream>,
) -> Result<(), String> {
    let sections = sections(parts);
    match equal_length(&sections) {
        Some(length) => communicator.reduce_scatter(values, rank, length, stream),
        None => communicator.reduce(values, &sections, stream),
    }
}

/// The parts of all ranks, as NCCL takes them.
fn sections(parts: &Parts) -> Vec<Section> {
    let section = |root: usize| {
        let part = parts.of(root);
        Section { start: part.start, length: part.len(), root }
    };
    (0..parts.count()).map(section).collect()
}

/// The length of all sections, if they are equally long: NCCL then has operations for all of them at once.
fn equal_length(sections: &[Section]) -> Option<usize> {
    let first = sections.first()?.length;
    sections.iter().all(|section| section.length == first).then_some(first)
}

/// What a group uses NCCL with: its communicator, and a stream for sums beside the computation.
type Connection = (Communicator, SideStream);

/// The connection of this rank; within it the reason why NCCL cannot be used, if it cannot.
fn connected(group: &mut Group, device: Device) -> Result<Result<Connection, String>, RankError> {
    let opened = Nccl::open();
    let missing = group.all_reduce_f64(&[f64::from(u8::from(opened.is_err()))])?[0];
    let nccl = match opened {
        Err(reason) => return Ok(Err(reason)),
        Ok(_) if missing > 0.0 => return Ok(Err(format!("{missing} ranks have no NCCL"))),
        Ok(nccl) => nccl,
    };
    let id = exchanged_id(group, &nccl)?;
    let joined = match id {
        Err(reason) => Err(reason),
        Ok(id) => join_in_time(&nccl, id, (group.rank(), group.size()), device)
            .and_then(|communicator| Ok((communicator, SideStream::new(device)?))),
    };
    let failed = group.all_reduce_f64(&[f64::from(u8::from(joined.is_err()))])?[0];
    Ok(match joined {
        Ok(_) if failed > 0.0 => Err(format!("{failed} ranks cannot connect their GPUs")),
        joined => joined,
    })
}

/// Rank 0 makes an id and sends it to the others.
fn exchanged_id(group: &Group, nccl: &Nccl) -> Result<Result<[u8; ID_BYTES], String>, RankError> {
    if group.rank() != 0 {
        let message = group.receive(0, Some(group.deadline()))?;
        return Ok(message.payload.try_into().map_err(|_| "rank 0 has no id for NCCL".to_owned()));
    }
    let id = nccl.unique_id();
    for rank in 1..group.size() {
        group.send(rank, &(), id.as_ref().map(|id| id.to_vec()).unwrap_or_default())?;
    }
    Ok(id)
}

/// Joins in a thread of its own, because NCCL waits for the other ranks without a deadline.
fn join_in_time(
    nccl: &Nccl,
    id: [u8; ID_BYTES],
    (rank, ranks): (usize, usize),
    device: Device,
) -> Result<Communicator, String> {
    let (nccl, (sender, joined)) = (nccl.clone(), channel());
    let join = move || {
        // nobody waits any more if it took too long; then the communicator is dropped
        let _ = sender.send(nccl.join(id, rank, ranks, device));
    };
    Builder::new().name("nccl".into()).spawn(join).map_err(|error| error.to_string())?;
    joined.recv_timeout(CONNECT_TIMEOUT).unwrap_or_else(|_| {
        Err(format!("the GPUs were not connected within {} s", CONNECT_TIMEOUT.as_secs()))
    })
}

/// Aborts operations that cannot end.
fn watch(group: &Group, communicator: &Arc<Communicator>, busy: &Arc<Mutex<Option<Instant>>>) {
    let (sentinel, deadline): (Sentinel, Duration) = (group.sentinel(), group.deadline());
    let (communicator, busy) = (Arc::downgrade(communicator), Arc::clone(busy));
    let name = group.name(group.rank());
    let watch = move || {
        while sentinel.wait(POLL_INTERVAL) {
            let since = *busy.lock().unwrap_or_else(PoisonError::into_inner);
            if since.is_some_and(|since| since.elapsed() > deadline) {
                let limit = deadline.as_secs_f64();
                sentinel.end(&format!("{name}: the GPUs' operations did not end within {limit} s"));
            }
        }
        if let Some(communicator) = communicator.upgrade() {
            communicator.abort();
        }
    };
    // without the thread a lost rank is noticed by the next message, if there is one
    let _ = Builder::new().name("nccl-watch".into()).spawn(watch);
}

impl Collectives<Tensor> for NcclTensors {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn size(&self) -> usize {
        self.group.size()
    }

    fn broadcast(&mut self, root: usize, values: &mut Tensor) -> Result<(), RankError> {
        let all = [Section { start: 0, length: values.numel(), root }];
        self.operate(|communicator| communicator.broadcast(values, &all))
    }

    fn all_reduce(&mut self, values: &mut Tensor) -> Result<(), RankError> {
        self.operate(|communicator| communicator.all_reduce(values))
    }

    fn reduce_scatter(&mut self, values: &mut Tensor, parts: &Parts) -> Result<(), RankError> {
        let own = (self.group.rank(), parts);
        self.operate(|communicator| sum_parts(communicator, values, own, None))
    }

    fn reduce_scatter_async(&mut self, bucket: Vec<(Tensor, Parts)>) -> Result<(), RankError> {
        let rank = self.group.rank();
        let end = self.operate(|communicator| {
            self.stream.follow_computation()?;
            for (values, parts) in &bucket {
                sum_parts(communicator, values, (rank, parts), Some(&self.stream))?;
            }
            self.stream.mark()
        })?;
        self.in_flight.push_back((bucket.into_iter().map(|(values, _)| values).collect(), end));
        Ok(())
    }

    fn wait_reduce_scatter(&mut self, left: usize) -> Result<Vec<Tensor>, RankError> {
        let arrived = self.in_flight.len().saturating_sub(left);
        let mut reduced = vec![];
        for (values, end) in self.in_flight.drain(..arrived).collect::<Vec<_>>() {
            // no operation begins: those that are waited for may be known to be done
            self.group.check()?;
            let hold = self.or_end(self.stream.hold_computation(&end))?;
            self.holds.push(hold);
            reduced.extend(values);
        }
        Ok(reduced)
    }

    fn take_wait_time(&mut self) -> Duration {
        self.settle();
        std::mem::take(&mut self.waited)
    }

    fn all_gather(&mut self, values: &mut Tensor, parts: &Parts) -> Result<(), RankError> {
        let (rank, sections) = (self.group.rank(), sections(parts));
        self.operate(|communicator| match equal_length(&sections) {
            Some(length) => communicator.all_gather(values, rank, length),
            None => communicator.broadcast(values, &sections),
        })
    }

    fn barrier(&mut self) -> Result<(), RankError> {
        self.settle();
        self.group.barrier()
    }

    fn abort(&self, reason: &str) {
        self.group.end(reason);
    }

    fn all_reduce_f64(&mut self, numbers: &[f64]) -> Result<Vec<f64>, RankError> {
        self.settle();
        self.group.all_reduce_f64(numbers)
    }
}
