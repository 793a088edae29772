//! The order in which an endless run visits generated tasks: every number once, the run's seed deciding which comes
//! when.
//!
//! Numbers come in blocks, each shuffled by a stream of its own, so that a visit's number follows from the seed and the
//! visit alone: all that a run has to remember is how many visits there were.

use crate::random::{Purpose, stream};
use rand::seq::SliceRandom;
use std::ops::Range;

/// Numbers of a block.
const BLOCK: u64 = 1024;

/// The sampler's passes and batches have the streams 0 and 1.
const STREAM: u64 = 2;

/// The numbers of the tasks of some visits, in their order.
pub fn visited(seed: u64, visits: Range<u64>) -> Vec<u64> {
    if visits.is_empty() {
        return vec![];
    }
    let blocks = visits.start / BLOCK..=(visits.end - 1) / BLOCK;
    let begin = blocks.start() * BLOCK;
    let order = |block: u64| {
        let mut numbers: Vec<u64> = (block * BLOCK..(block + 1) * BLOCK).collect();
        numbers.shuffle(&mut stream(seed, Purpose::Tasks, block, STREAM));
        numbers
    };
    let (before, count) = ((visits.start - begin) as usize, (visits.end - visits.start) as usize);
    blocks.flat_map(order).skip(before).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once_and_the_seed_decides_when() {
        let mut all = visited(7, 0..3 * BLOCK);
        assert_ne!(all, visited(8, 0..3 * BLOCK));
        assert_ne!(all[..8], visited(8, 0..8));
        all.sort_unstable();
        assert!(all.into_iter().eq(0..3 * BLOCK));
    }

    #[test]
    fn a_visit_is_the_same_whatever_is_asked_for_with_it() {
        let all = visited(7, 0..3 * BLOCK);
        for visits in [0..1, 5..5, 0..BLOCK, 1000..1048, BLOCK - 1..BLOCK, BLOCK..BLOCK + 1, 700..2900] {
            let (start, end) = (visits.start as usize, visits.end as usize);
            assert_eq!(visited(7, visits), all[start..end]);
        }
    }
}
