//! Operations between ranks on tensors, through the memory of the host: for CPUs, and for GPUs without NCCL.

use arpo_ranks::{Collectives, Group, HostValues, Parts, RankError};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;
use tch::{Kind, Tensor, no_grad};

/// Tensors of ranks that are connected by TCP. Only flat tensors of f32 and bf16 travel.
#[derive(Debug)]
pub struct HostTensors {
    group: Group,
    /// Tensors whose sums are on their way, by bucket, each with this rank's part.
    in_flight: VecDeque<Vec<(Tensor, Range<usize>)>>,
}

impl HostTensors {
    /// The tensors of a group.
    pub fn new(group: Group) -> Self {
        Self { group, in_flight: VecDeque::new() }
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// An operation that reads some values of a tensor and changes some.
    fn through_the_host(
        &mut self,
        tensor: &Tensor,
        (read, written): (Range<usize>, Range<usize>),
        operation: impl FnOnce(&mut Group, &mut HostValues) -> Result<(), RankError>,
    ) -> Result<(), RankError> {
        if self.group.size() == 1 {
            // what a rank has is already the sum, and everything
            return Ok(());
        }
        let mut values = to_host(tensor, read)?;
        operation(&mut self.group, &mut values)?;
        from_host(&values, written, tensor);
        Ok(())
    }
}

/// All values of a flat tensor; those outside of the range are 0.
fn to_host(tensor: &Tensor, range: Range<usize>) -> Result<HostValues, RankError> {
    let count = tensor.numel();
    let part = tensor.narrow(0, range.start as i64, range.len() as i64).to_device(tch::Device::Cpu);
    match tensor.kind() {
        Kind::Float => {
            let mut values = vec![0f32; count];
            part.copy_data(&mut values[range.clone()], range.len());
            Ok(HostValues::F32(values))
        }
        Kind::BFloat16 => {
            let mut halves = vec![0i16; range.len()];
            part.view_dtype(Kind::Int16).copy_data(&mut halves, range.len());
            let mut values = vec![0u16; count];
            for (value, half) in values[range].iter_mut().zip(halves) {
                *value = half.cast_unsigned();
            }
            Ok(HostValues::Bf16(values))
        }
        other => Err(RankError::Internal(format!("values of {other:?} do not travel between ranks"))),
    }
}

fn from_host(values: &HostValues, range: Range<usize>, tensor: &Tensor) {
    let (start, length) = (range.start as i64, range.len() as i64);
    let part = match values {
        HostValues::F32(values) => Tensor::from_slice(&values[range]),
        HostValues::Bf16(values) => {
            let halves: Vec<i16> = values[range].iter().map(|half| half.cast_signed()).collect();
            Tensor::from_slice(&halves).view_dtype(Kind::BFloat16)
        }
    };
    no_grad(|| tensor.narrow(0, start, length).copy_(&part));
}

impl Collectives<Tensor> for HostTensors {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn size(&self) -> usize {
        self.group.size()
    }

    fn broadcast(&mut self, root: usize, values: &mut Tensor) -> Result<(), RankError> {
        let all = 0..values.numel();
        let (read, written) = if self.group.rank() == root { (all, 0..0) } else { (0..0, all) };
        self.through_the_host(values, (read, written), |group, values| group.broadcast(root, values))
    }

    fn all_reduce(&mut self, values: &mut Tensor) -> Result<(), RankError> {
        let all = 0..values.numel();
        self.through_the_host(values, (all.clone(), all), Collectives::all_reduce)
    }

    fn reduce_scatter(&mut self, values: &mut Tensor, parts: &Parts) -> Result<(), RankError> {
        let (all, own) = (0..values.numel(), parts.of(self.group.rank()));
        self.through_the_host(values, (all, own), |group, values| group.reduce_scatter(values, parts))
    }

    fn reduce_scatter_async(&mut self, bucket: Vec<(Tensor, Parts)>) -> Result<(), RankError> {
        let (mut on_host, mut tensors) = (vec![], vec![]);
        for (tensor, parts) in bucket {
            let own = parts.of(self.group.rank());
            // what a single rank has is already the sum
            if self.group.size() > 1 {
                on_host.push((to_host(&tensor, 0..tensor.numel())?, parts));
            }
            tensors.push((tensor, own));
        }
        self.group.reduce_scatter_async(on_host)?;
        self.in_flight.push_back(tensors);
        Ok(())
    }

    fn wait_reduce_scatter(&mut self, left: usize) -> Result<Vec<Tensor>, RankError> {
        let mut sums = self.group.wait_reduce_scatter(left)?.into_iter();
        let arrived = self.in_flight.len().saturating_sub(left);
        let arrived = self.in_flight.drain(..arrived).flatten();
        let into_tensor = |(tensor, own): (Tensor, Range<usize>)| {
            if let Some(values) = sums.next() {
                from_host(&values, own, &tensor);
            }
            tensor
        };
        Ok(arrived.map(into_tensor).collect())
    }

    fn take_wait_time(&mut self) -> Duration {
        self.group.take_wait_time()
    }

    fn all_gather(&mut self, values: &mut Tensor, parts: &Parts) -> Result<(), RankError> {
        let (all, own) = (0..values.numel(), parts.of(self.group.rank()));
        self.through_the_host(values, (own, all), |group, values| group.all_gather(values, parts))
    }

    fn barrier(&mut self) -> Result<(), RankError> {
        self.group.barrier()
    }

    fn abort(&self, reason: &str) {
        self.group.end(reason);
    }

    fn all_reduce_f64(&mut self, numbers: &[f64]) -> Result<Vec<f64>, RankError> {
        self.group.all_reduce_f64(numbers)
    }
}
