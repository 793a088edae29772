//! The order in which an endless run visits generated tasks: every task number once, in an order given by the run's seed.
//!
//! The numbers are shuffled in chunks, each with its own random stream, so that the task of a visit follows from the seed
//! and the index of the visit alone: a run saves only how many visits it has made. Where templates have weights, a visit is
//! skipped with a probability that its own stream decides.

use crate::random::{Purpose, stream};
use rand::RngExt;
use rand::seq::SliceRandom;
use std::ops::Range;

/// Task numbers per chunk.
const CHUNK: u64 = 1024;

/// Stream index; the task sampler's passes and batches use 0 and 1.
const STREAM: u64 = 2;

/// Stream index of the decisions to skip a visit.
const SKIPS: u64 = 3;

/// Visits that are skipped at most for each one that is made: weights near 0 must not search for ever.
const MOST_SKIPPED: u64 = 64;

/// The task numbers of the next `count` visits that are made, and the first visit after them. A visit from `start` on is
/// made with the probability `weight` of its task number, at most 1.
pub fn visited_by(seed: u64, start: u64, count: usize, weight: impl Fn(u64) -> f64) -> (Vec<u64>, u64) {
    let mut made = Vec::with_capacity(count);
    let (mut visit, last) = (start, start + MOST_SKIPPED * count as u64);
    while made.len() < count {
        let batch = visit..visit + count as u64;
        for (at, number) in batch.clone().zip(visited(seed, batch)) {
            if made.len() == count {
                break;
            }
            visit = at + 1;
            let chance = stream(seed, Purpose::Tasks, at, SKIPS).random::<f64>();
            if at >= last || chance < weight(number) {
                made.push(number);
            }
        }
    }
    (made, visit)
}

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
    fn tasks_without_weight_are_skipped() {
        let all = visited(7, 0..3 * CHUNK);
        let (everything, end) = visited_by(7, 5, 40, |_| 1.0);
        assert_eq!((everything.as_slice(), end), (&all[5..45], 45));
        // an eighth of the tasks has a weight, one of them a small one
        let weight = |number: u64| if number % 8 == 3 { if number == 3 { 0.01 } else { 1.0 } } else { 0.0 };
        let (some, end) = visited_by(7, 0, 40, weight);
        assert!(some.len() == 40 && some.iter().all(|number| number % 8 == 3) && (100..1000).contains(&end));
        // in two parts, as a resumed run has it
        let (first, middle) = visited_by(7, 0, 16, weight);
        let (second, last) = visited_by(7, middle, 24, weight);
        assert_eq!(([first, second].concat(), last), (some, end));
        // without any weight the search ends
        let (rest, end) = visited_by(7, 0, 2, |_| 0.0);
        assert_eq!((rest.as_slice(), end), (&all[128..130], 130));
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
