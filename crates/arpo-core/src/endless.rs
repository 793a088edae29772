//! The order in which an endless run visits generated tasks: every task number once, in an order given by the run's seed.
//!
//! The numbers are shuffled in chunks, each with its own random stream, so that the task of a visit follows from the seed
//! and the index of the visit alone: a run saves only how many visits it has made.

use crate::random::{Purpose, stream};
use rand::seq::SliceRandom;
use std::ops::Range;

/// Task numbers per chunk.
const CHUNK: u64 = 1024;

/// Stream index; the task sampler's passes and batches use 0 and 1.
const STREAM: u64 = 2;

/// The task numbers of these visits, in order.
pub fn visited(seed: u64, visits: Range<u64>) -> Vec<u64> {
    if visits.is_empty() {
        return vec![];
    }
    let chunks = visits.start / CHUNK..=(visits.end - 1) / CHUNK;
    let begin = chunks.start() * CHUNK;
    let order = |chunk: u64| {
        let mut numbers: Vec<u64> = (chunk * CHUNK..(chunk + 1) * CHUNK).collect();
        numbers.shuffle(&mut stream(seed, Purpose::Tasks, chunk, STREAM));
        numbers
    };
    let (before, count) = ((visits.start - begin) as usize, (visits.end - visits.start) as usize);
    chunks.flat_map(order).skip(before).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once_in_an_order_given_by_the_seed() {
        let mut all = visited(7, 0..3 * CHUNK);
        assert_ne!(all, visited(8, 0..3 * CHUNK));
        assert_ne!(all[..8], visited(8, 0..8));
        all.sort_unstable();
        assert!(all.into_iter().eq(0..3 * CHUNK));
    }

    #[test]
    fn a_visit_does_not_depend_on_the_requested_range() {
        let all = visited(7, 0..3 * CHUNK);
        for visits in [0..1, 5..5, 0..CHUNK, 1000..1048, CHUNK - 1..CHUNK, CHUNK..CHUNK + 1, 700..2900] {
            let (start, end) = (visits.start as usize, visits.end as usize);
            assert_eq!(visited(7, visits), all[start..end]);
        }
    }
}
