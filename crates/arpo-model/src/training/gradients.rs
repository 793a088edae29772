//! Gradients in shards (ZeRO-2): each rank keeps the sums of a part of every gradient, and whole gradients exist only for as
//! long as the backward pass of their layer.
//!
//! The backward pass completes gradients in a fixed order: those of the head, of each block from the last to the first, and
//! then the rest. As soon as a bucket is complete, it is summed over all ranks, each rank adds its part to its sums, and the
//! buffers are free for the next block, which has gradients of the same shapes ([`GradientBuffer::Shared`]). All ranks do
//! this in the same order, also one that has nothing to add.
//!
//! [`GradientBuffer::Shared`]: crate::checkpoint::GradientBuffer::Shared

use super::shard::{Shard, flat};
use crate::ModelError;
use crate::checkpoint::Weights;
use crate::checkpoint::layout::ParameterLayout;
use arpo_ranks::Collectives;
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

/// This rank's part of the sums of all gradients.
#[derive(Debug)]
pub(super) struct GradientShards {
    shard: Shard,
    /// In the order of [`Weights::trained`].
    sums: Vec<Tensor>,
    /// In the order in which the backward pass completes them, with the indices of their parameters.
    buckets: Vec<(Bucket, Vec<usize>)>,
}

impl GradientShards {
    pub(super) fn new(weights: &Weights, shard: Shard) -> Self {
        let sums = weights.trained().map(|(_, _, gradient)| shard.of(gradient).zeros_like()).collect();
        let of_parameters: Vec<Bucket> = weights.trained().map(|(layout, _, _)| Bucket::of(layout)).collect();
        let blocks =
            weights.trained().filter_map(|(layout, _, _)| layout.block()).max().map_or(0, |last| last + 1);
        let order =
            [Bucket::Head].into_iter().chain((0..blocks).rev().map(Bucket::Block)).chain([Bucket::Rest]);
        let members = |bucket: Bucket| {
            let indices = of_parameters.iter().enumerate().filter(move |(_, of)| **of == bucket);
            (bucket, indices.map(|(index, _)| index).collect())
        };
        Self { shard, sums, buckets: order.map(members).collect() }
    }

    /// This rank's sums, in the order of [`Weights::trained`].
    pub(super) fn sums(&self) -> &[Tensor] {
        &self.sums
    }

    /// Sums a complete bucket over all ranks, keeps this rank's part, and zeroes the buffers. Returns the squared norm of what
    /// this rank had, on its device.
    pub(super) fn reduce(
        &mut self,
        bucket: Bucket,
        weights: &Weights,
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<Vec<Tensor>, ModelError> {
        let gradients: Vec<&Tensor> = weights.trained().map(|(_, _, gradient)| gradient).collect();
        let indices = self.buckets.iter().filter(|(of, _)| *of == bucket).flat_map(|(_, indices)| indices);
        no_grad(|| {
            let mut squares = vec![];
            for &index in indices {
                let gradient = gradients[index];
                squares.push(gradient.norm_scalaropt_dtype(2, Kind::Float).square());
                ranks.reduce_scatter(&mut flat(gradient), &self.shard.parts(gradient))?;
                let _ = self.sums[index].g_add_(&self.shard.of(gradient));
                let _ = gradient.shallow_clone().zero_();
            }
            if bucket == Bucket::Rest {
                // so that the time of the GPUs' operations is that of one round
                ranks.barrier()?;
            }
            Ok(squares)
        })
    }

    /// Takes part in the sums of all buckets with nothing.
    pub(super) fn reduce_nothing(
        &mut self,
        weights: &Weights,
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<(), ModelError> {
        let buckets: Vec<Bucket> = self.buckets.iter().map(|(bucket, _)| *bucket).collect();
        buckets.into_iter().try_for_each(|bucket| self.reduce(bucket, weights, ranks).map(|_| ()))
    }

    /// Forgets all sums.
    pub(super) fn zero(&mut self) {
        for sum in &mut self.sums {
            let _ = sum.zero_();
        }
    }
}
