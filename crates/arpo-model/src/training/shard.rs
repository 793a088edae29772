//! A learner's optimiser divided between ranks (ZeRO-1): each rank has the moments of a part of every parameter, updates
//! that part, and the parts are gathered in place. Gradients may be divided, too (ZeRO-2, `gradients`).
//!
//! Every parameter is divided, not the list of parameters, so that all ranks have the same amount of memory and work however
//! different the parameters are. Boundaries are multiples of sixteen values, as the fused kernels want rows to be.
//! Rounding noise belongs to a value's place in its parameter, so that the number of ranks does not change it.

use super::adamw::{AdamW, Update, sum_of_squares};
use crate::ModelError;
use crate::checkpoint::Weights;
use arpo_core::config::OptimiserConfig;
use arpo_ranks::{Collectives, Parts};
use std::ops::Range;
use tch::{Device, Tensor, no_grad};

/// Values that stay together.
const UNIT: usize = 16;

/// One rank's part of every parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    rank: usize,
    ranks: usize,
}

impl Shard {
    /// Everything, for a learner that is one process.
    pub const WHOLE: Self = Self { rank: 0, ranks: 1 };

    /// The shard of a rank.
    pub fn of_rank(ranks: &dyn Collectives<Tensor>) -> Self {
        Self { rank: ranks.rank(), ranks: ranks.size() }
    }

    /// The parts of all ranks.
    pub fn parts(&self, tensor: &Tensor) -> Parts {
        Parts::even(tensor.numel(), self.ranks, UNIT)
    }

    /// Which values of a tensor it has.
    pub fn part(&self, tensor: &Tensor) -> Range<usize> {
        self.parts(tensor).of(self.rank)
    }

    /// Those values, in the same memory: flat, or the whole tensor as it is.
    pub fn of(&self, tensor: &Tensor) -> Tensor {
        if self.ranks == 1 {
            return tensor.shallow_clone();
        }
        let part = self.part(tensor);
        flat(tensor).narrow(0, part.start as i64, part.len() as i64)
    }
}

pub(super) fn flat(tensor: &Tensor) -> Tensor {
    tensor.view([-1])
}

impl AdamW {
    /// One update from the gradients of all ranks: they are summed, each rank updates its shard, and all have the same weights
    /// after it. The gradients are zeroed.
    pub fn update_with(
        &mut self,
        weights: &Weights,
        learning_rate: f64,
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<Update, ModelError> {
        for (_, _, gradient) in weights.trained() {
            no_grad(|| ranks.reduce_scatter(&mut flat(gradient), &self.shard.parts(gradient)))?;
        }
        self.update_summed(weights, learning_rate, ranks)
    }

    /// The same from gradients of which each rank has the sums of its shard already.
    pub fn update_summed(
        &mut self,
        weights: &Weights,
        learning_rate: f64,
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<Update, ModelError> {
        let own: Vec<Tensor> = weights.trained().map(|(_, _, gradient)| self.shard.of(gradient)).collect();
        let update = self.update_shard(weights, &own, learning_rate, ranks);
        // those of the other shards, too
        weights.zero_gradients();
        update
    }

    /// Updates this rank's shard, unless the norm of the gradients of all shards is not finite, and gathers the weights of all
    /// shards.
    pub(super) fn update_shard(
        &mut self,
        weights: &Weights,
        gradients: &[Tensor],
        learning_rate: f64,
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<Update, ModelError> {
        no_grad(|| {
            let gradient_norm = ranks.all_reduce_f64(&[sum_of_squares(gradients.iter())])?[0].sqrt();
            if !gradient_norm.is_finite() {
                return Ok(Update::Skipped { gradient_norm });
            }
            self.apply(weights, gradients, learning_rate, gradient_norm);
            for (_, value, _) in weights.trained() {
                ranks.all_gather(&mut flat(value), &self.shard.parts(value))?;
            }
            ranks.barrier()?;
            Ok(Update::Applied { gradient_norm })
        })
    }

    /// The whole optimiser on the host, gathered from all shards: on rank 0, which saves it; `None` on the others.
    pub fn gathered(
        &self,
        weights: &Weights,
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<Option<Self>, ModelError> {
        no_grad(|| {
            let mut whole = vec![];
            for ((_, value, _), moments) in weights.trained().zip(&self.moments) {
                let mut pair = vec![];
                for moment in moments {
                    let mut all = flat(value).zeros_like();
                    self.shard.of(&all).copy_(moment);
                    ranks.all_gather(&mut all, &self.shard.parts(value))?;
                    if ranks.rank() == 0 {
                        pair.push(all.to_device(Device::Cpu).view(value.size().as_slice()));
                    }
                }
                if let Ok(pair) = <[Tensor; 2]>::try_from(pair) {
                    whole.push(pair);
                }
            }
            ranks.barrier()?;
            Ok((ranks.rank() == 0).then(|| self.with_whole_moments(whole)))
        })
    }

    /// The shard of this rank, of the optimiser that rank 0 has read; the others have none.
    pub fn scattered(
        whole: Option<&Self>,
        weights: &Weights,
        config: OptimiserConfig,
        ranks: &mut dyn Collectives<Tensor>,
    ) -> Result<Self, ModelError> {
        no_grad(|| {
            let mut own = Self::of_shard(weights, config, Shard::of_rank(ranks));
            own.updates = ranks.all_reduce_f64(&[whole.map_or(0, Self::updates) as f64])?[0] as u64;
            if own.updates == 0 {
                // all moments are still 0
                return Ok(own);
            }
            for (index, (_, value, _)) in weights.trained().enumerate() {
                for which in 0..2 {
                    let mut all = match whole {
                        Some(whole) => flat(&whole.moments[index][which]).to_device(value.device()),
                        None => flat(value).zeros_like(),
                    };
                    ranks.broadcast(0, &mut all)?;
                    own.moments[index][which].copy_(&own.shard.of(&all));
                }
            }
            ranks.barrier()?;
            Ok(own)
        })
    }
}

/// Replaces the weights of all ranks by those of rank 0.
pub fn broadcast(weights: &Weights, ranks: &mut dyn Collectives<Tensor>) -> Result<(), ModelError> {
    for (_, value) in weights.iter() {
        no_grad(|| ranks.broadcast(0, &mut flat(value)))?;
    }
    Ok(ranks.barrier()?)
}
