//! Sums of the gradients over all ranks, in buckets, while the backward pass goes on.
//!
//! The backward pass completes gradients in a fixed order: those of the head, of each block from the last to the first, and
//! then the rest. As soon as a bucket is complete, its sum over all ranks is begun, and the pass computes the next one beside
//! it; when that is complete, the sum has to be there. So never more than two buckets are on their way. All ranks do this in
//! the same order, also one that has nothing to add.
//!
//! Whole gradients (ZeRO-1) are accumulated over the micro-batches of an update and summed in its last round. Of gradients in
//! shards (ZeRO-2) each rank keeps the sums of a part: every round is summed, each rank adds its part to its sums, and the
//! buffers are free for the block after the next, which has gradients of the same shapes ([`GradientBuffer::Shared`]).
//!
//! [`GradientBuffer::Shared`]: crate::checkpoint::GradientBuffer::Shared

use super::shard::{Shard, flat};
use crate::ModelError;
use crate::checkpoint::Weights;
use crate::checkpoint::layout::ParameterLayout;
use arpo_ranks::Collectives;
use std::collections::VecDeque;
use tch::{Kind, Tensor, no_grad};

/// Gradients that the backward pass completes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bucket {
    /// Those of a head of its own.
    Head,
    /// Those of a block of the language model.
    Block(usize),
    /// Those of the embedding, the last norm and the vision tower.
    Rest,
}

impl Bucket {
    fn of(layout: &ParameterLayout) -> Self {
        match layout.block() {
            Some(block) => Self::Block(block),
            None if layout.is_head() => Self::Head,
            None => Self::Rest,
        }
    }
}

/// Sums gradients over all ranks.
#[derive(Debug)]
pub(super) struct GradientSums {
    shard: Shard,
    /// This rank's part of the sums of all rounds so far, in the order of [`Weights::trained`]; `None` if gradients are whole.
    shards: Option<Vec<Tensor>>,
    /// In the order in which the backward pass completes them, with the indices of their parameters.
    buckets: Vec<(Bucket, Vec<usize>)>,
    /// Parameters whose gradients are on their way.
    in_flight: VecDeque<usize>,
}

impl GradientSums {
    /// In shards if the layers of the model share the memory of their gradients, otherwise whole.
    pub(super) fn new(weights: &Weights, shard: Shard) -> Self {
        let shards = weights.shares_gradient_buffers().then(|| {
            let zeros = weights.trained().map(|(_, _, gradient)| shard.of(gradient).zeros_like());
            zeros.collect::<Vec<Tensor>>()
        });
        let of_parameters: Vec<Bucket> = weights.trained().map(|(layout, _, _)| Bucket::of(layout)).collect();
        let blocks =
            weights.trained().filter_map(|(layout, _, _)| layout.block()).max().map_or(0, |last| last + 1);
        let order =
            [Bucket::Head].into_iter().chain((0..blocks).rev().map(Bucket::Block)).chain([Bucket::Rest]);
        let members = |bucket: Bucket| {
            let indices = of_parameters.iter().enumerate().filter(move |(_, of)| **of == bucket);
            (bucket, indices.map(|(index, _)| index).collect())
        };
        Self { shard, shards, buckets: order.map(members).collect(), in_flight: VecDeque::new() }
    }

    /// This rank's part of the sums of all rounds so far; `None` if gradients are whole.
    pub(super) fn shards(&self) -> Option<&[Tensor]> {
        self.shards.as_deref()
    }

    /// Begins the sum of a complete bucket, and waits for those before it: the next bucket may use their buffers. Returns the
    /// squared norm of what this rank had, on its device.
    pub(super) fn begin(
        &mut self,
        bucket: Bucket,
        weights: &Weights,
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<Vec<Tensor>, ModelError> {
        let gradients: Vec<&Tensor> = weights.trained().map(|(_, _, gradient)| gradient).collect();
        let members = self.buckets.iter().filter(|(of, _)| *of == bucket);
        let indices: Vec<usize> = members.flat_map(|(_, indices)| indices.iter().copied()).collect();
        no_grad(|| {
            let (mut squares, mut buffers) = (vec![], vec![]);
            for &index in &indices {
                let gradient = gradients[index];
                squares.push(gradient.norm_scalaropt_dtype(2, Kind::Float).square());
                buffers.push((flat(gradient), self.shard.parts(gradient)));
            }
            ranks.reduce_scatter_async(buffers)?;
            self.in_flight.extend(&indices);
            self.receive(1, ranks)?;
            Ok(squares)
        })
    }

    /// Waits for the sums of all buckets: the backward pass is complete.
    pub(super) fn end(&mut self, ranks: &mut dyn Collectives<Tensor>) -> Result<(), ModelError> {
        no_grad(|| self.receive(0, ranks))?;
        // so that the time of the GPUs' operations is that of one round
        Ok(ranks.barrier()?)
    }

    /// The sums of all buckets at once, for a rank without a backward pass.
    pub(super) fn sum_all(
        &mut self,
        weights: &Weights,
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<(), ModelError> {
        let buckets: Vec<Bucket> = self.buckets.iter().map(|(bucket, _)| *bucket).collect();
        buckets.into_iter().try_for_each(|bucket| self.begin(bucket, weights, ranks).map(drop))?;
        self.end(ranks)
    }

    /// Waits until at most so many buckets are on their way. What arrives in shards is added up, and its buffer zeroed.
    fn receive(&mut self, left: usize, ranks: &mut dyn Collectives<Tensor>) -> Result<(), ModelError> {
        for mut gradient in ranks.wait_reduce_scatter(left)? {
            let (Some(index), Some(shards)) = (self.in_flight.pop_front(), &self.shards) else { continue };
            let _ = flat(&shards[index]).g_add_(&self.shard.of(&gradient));
            let _ = gradient.zero_();
        }
        Ok(())
    }

    /// Forgets all sums.
    pub(super) fn zero(&mut self) {
        self.in_flight.clear();
        for sum in self.shards.iter_mut().flatten() {
            let _ = sum.zero_();
        }
    }
}
