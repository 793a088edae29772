//! Gradients are summed over the ranks while the backward pass goes on, with whole gradients and with shards of them.

use crate::ranks::{TOLERANCE, alone, as_rank, largest_difference, models, together};
use arpo_model::checkpoint::GradientBuffer;
use arpo_model::training::ranks::HostTensors;
use arpo_ranks::{Collectives, Parts, RankError};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use tch::Tensor;

/// How many buckets rank 0 has begun to sum.
#[derive(Default)]
struct Begun {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Begun {
    fn one_more(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn wait_for(&self, wanted: usize) {
        let count = self.count.lock().unwrap();
        let waiting = self.changed.wait_timeout_while(count, Duration::from_mins(1), |count| *count < wanted);
        assert!(
            !waiting.unwrap().1.timed_out(),
            "rank 0 waits for a sum instead of computing the next bucket"
        );
    }
}

/// A rank that takes part in the sum of a bucket only when rank 0 has computed the next one.
struct Late<'a> {
    ranks: HostTensors,
    begun: &'a Begun,
    /// Buckets of a backward pass, and those that this rank has begun.
    buckets: usize,
    own: usize,
}

impl Collectives<Tensor> for Late<'_> {
    fn rank(&self) -> usize {
        self.ranks.rank()
    }

    fn size(&self) -> usize {
        self.ranks.size()
    }

    fn broadcast(&mut self, root: usize, values: &mut Tensor) -> Result<(), RankError> {
        self.ranks.broadcast(root, values)
    }

    fn all_reduce(&mut self, values: &mut Tensor) -> Result<(), RankError> {
        self.ranks.all_reduce(values)
    }

    fn reduce_scatter(&mut self, values: &mut Tensor, parts: &Parts) -> Result<(), RankError> {
        self.ranks.reduce_scatter(values, parts)
    }

    fn reduce_scatter_async(&mut self, bucket: Vec<(Tensor, Parts)>) -> Result<(), RankError> {
        self.own += 1;
        if self.rank() == 0 {
            self.begun.one_more();
        } else {
            // after the last bucket of a pass there is none
            let is_last = self.own.is_multiple_of(self.buckets);
            self.begun.wait_for(self.own + usize::from(!is_last));
        }
        self.ranks.reduce_scatter_async(bucket)
    }

    fn wait_reduce_scatter(&mut self, left: usize) -> Result<Vec<Tensor>, RankError> {
        self.ranks.wait_reduce_scatter(left)
    }

    fn take_wait_time(&mut self) -> Duration {
        self.ranks.take_wait_time()
    }

    fn all_gather(&mut self, values: &mut Tensor, parts: &Parts) -> Result<(), RankError> {
        self.ranks.all_gather(values, parts)
    }

    fn barrier(&mut self) -> Result<(), RankError> {
        self.ranks.barrier()
    }

    fn abort(&self, reason: &str) {
        self.ranks.abort(reason);
    }

    fn all_reduce_f64(&mut self, numbers: &[f64]) -> Result<Vec<f64>, RankError> {
        self.ranks.all_reduce_f64(numbers)
    }
}

/// Rank 1 would wait for ever, and rank 0 with it, if the backward pass waited for the sums of its own gradients.
#[test]
fn gradients_are_summed_while_the_backward_pass_goes_on() {
    // one round each, of which rank 1 has nothing in the second
    let updates = [2, 1];
    for config in models() {
        let (expected, _) = alone(&config, &updates);
        for buffer in [GradientBuffer::Own, GradientBuffer::Shared] {
            let begun = Begun::default();
            // head, blocks, rest
            let buckets = config.text.layers + 2;
            let results = together(2, |ranks| {
                let late = Late { ranks, begun: &begun, buckets, own: 0 };
                let (found, _, late) = as_rank(&config, buffer, &updates, late);
                assert_eq!(late.own, updates.len() * buckets);
                // it stays until the other one is done, too
                (found, late)
            });
            for (found, _) in &results {
                let difference = largest_difference(found, &expected);
                assert!(difference < TOLERANCE, "{buffer:?}: {difference}");
            }
        }
    }
}
