//! Every operation on one to four ranks, with parts that are unequal, empty or longer than a frame.

use crate::{PATIENT, options, ranks, together};
use arpo_ranks::values::{bf16_of, of_bf16};
use arpo_ranks::{Collectives, Group, HostValues, Parts};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Numbers that no sum of few is exact for.
fn value(rank: usize, index: usize) -> f32 {
    ((rank * 7919 + index * 104_729) % 1009) as f32 / 97.0 - 5.0
}

fn values(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|index| value(rank, index)).collect()
}

/// The sum in the documented order: from the rank after the owner to the owner.
fn sum(size: usize, owner: usize, index: usize) -> f32 {
    (1..=size).map(|step| value((owner + step) % size, index)).reduce(|sum, one| one + sum).unwrap()
}

fn quick() -> arpo_ranks::GroupOptions {
    options(PATIENT, PATIENT)
}

#[test]
fn sums_have_one_order_and_the_same_bits_everywhere() {
    for size in 1..=4 {
        // the last needs several frames for each part
        for count in [0, 1, 3, 1000, 1_500_001] {
            let results = together(size, |group: &mut Group| {
                let mut all = HostValues::F32(values(group.rank(), count));
                group.all_reduce(&mut all).unwrap();
                all
            });
            let parts = Parts::even(count, size, 1);
            let expected: Vec<f32> = (0..size)
                .flat_map(|rank| parts.of(rank).map(move |index| (rank, index)))
                .map(|(owner, index)| sum(size, owner, index))
                .collect();
            assert!(results.iter().all(|all| *all == HostValues::F32(expected.clone())), "{size} {count}");
        }
    }
}

#[test]
fn unequal_and_empty_parts_are_scattered_and_gathered() {
    for sizes in [vec![5, 0, 2], vec![0, 0, 7], vec![3, 4, 0], vec![600_000, 1, 2]] {
        let parts = Parts::of_sizes(&sizes);
        let results = together(3, |group: &mut Group| {
            let mut scattered = HostValues::F32(values(group.rank(), parts.total()));
            group.reduce_scatter(&mut scattered, &parts).unwrap();
            let HostValues::F32(scattered) = scattered else { panic!() };
            let own = parts.of(group.rank());
            for index in own.clone() {
                assert_eq!(scattered[index].to_bits(), sum(3, group.rank(), index).to_bits());
            }
            // only the own part has a meaning
            let mut gathered = vec![f32::NAN; parts.total()];
            gathered[own.clone()].copy_from_slice(&scattered[own]);
            let mut gathered = HostValues::F32(gathered);
            group.all_gather(&mut gathered, &parts).unwrap();
            gathered
        });
        let owner = |index: usize| (0..3).find(|&rank| parts.of(rank).contains(&index)).unwrap();
        let expected = (0..parts.total()).map(|index| sum(3, owner(index), index)).collect();
        assert_eq!(results[0], HostValues::F32(expected));
        assert!(results[1..].iter().all(|all| *all == results[0]), "{sizes:?}");
    }
}

/// Each rank takes part in its buckets only when the rank before it has begun all of its own: if beginning one waited for
/// its sum, no rank would get any further.
#[test]
fn sums_go_on_while_a_rank_does_something_else() {
    const BUCKETS: usize = 3;
    let begun: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
    // the last needs several frames
    let parts = [Parts::of_sizes(&[5, 0, 2]), Parts::even(1000, 3, 16), Parts::even(1_500_001, 3, 16)];
    together(3, |group: &mut Group| {
        let rank = group.rank();
        let until = Instant::now() + PATIENT;
        while rank > 0 && begun[rank - 1].load(Ordering::SeqCst) < BUCKETS {
            assert!(Instant::now() < until, "rank {} waits for the sums that it has begun", rank - 1);
            sleep(Duration::from_millis(1));
        }
        for parts in &parts {
            // two buffers in each bucket, of which one is in bf16
            let own = values(rank, parts.total());
            let halves = own.iter().map(|value| bf16_of(*value)).collect();
            let bucket =
                vec![(HostValues::F32(own), parts.clone()), (HostValues::Bf16(halves), parts.clone())];
            group.reduce_scatter_async(bucket).unwrap();
            begun[rank].fetch_add(1, Ordering::SeqCst);
        }
        let first = group.wait_reduce_scatter(2).unwrap();
        // an operation of another kind comes after all of them, on every rank
        assert_eq!(group.all_reduce_f64(&[1.0]).unwrap()[0].to_bits(), 3f64.to_bits());
        let rest = group.wait_reduce_scatter(0).unwrap();
        assert!(group.wait_reduce_scatter(0).unwrap().is_empty());
        assert_eq!((first.len(), rest.len()), (2, 4));
        let mut expected = vec![];
        for parts in &parts {
            let own = values(rank, parts.total());
            let halves = own.iter().map(|value| bf16_of(*value)).collect();
            for mut values in [HostValues::F32(own), HostValues::Bf16(halves)] {
                group.reduce_scatter(&mut values, parts).unwrap();
                expected.push(values);
            }
        }
        // the same bits as without a thread, also in what has no meaning
        assert!(first.into_iter().chain(rest).eq(expected));
    });
}

#[test]
fn bf16_is_rounded_at_every_step() {
    let results = together(3, |group: &mut Group| {
        let own = values(group.rank(), 50).into_iter().map(bf16_of).collect();
        let mut all = HostValues::Bf16(own);
        group.all_reduce(&mut all).unwrap();
        all
    });
    let parts = Parts::even(50, 3, 1);
    let expected =
        (0..3).flat_map(|owner| parts.of(owner).map(move |index| (owner, index))).map(|(owner, index)| {
            let one = |step: usize| bf16_of(value((owner + step) % 3, index));
            let two = bf16_of(of_bf16(one(2)) + of_bf16(one(1)));
            bf16_of(of_bf16(one(3)) + of_bf16(two))
        });
    assert_eq!(results[0], HostValues::Bf16(expected.collect()));
    assert!(results[1..].iter().all(|all| *all == results[0]));
}

#[test]
fn everybody_gets_what_the_root_has() {
    for size in 1..=4 {
        for root in 0..size {
            let results = together(size, |group: &mut Group| {
                let mut all = HostValues::F32(values(group.rank(), 700_000));
                group.broadcast(root, &mut all).unwrap();
                group.barrier().unwrap();
                all
            });
            assert!(results.iter().all(|all| *all == HostValues::F32(values(root, 700_000))));
        }
    }
}

#[test]
fn sums_of_numbers_keep_their_precision() {
    let number = |rank: usize| 1.0 + 1e-9 * rank as f64;
    let results = together(4, |group: &mut Group| {
        let rank = group.rank();
        assert_eq!(group.all_reduce_f64(&[]).unwrap(), Vec::<f64>::new());
        let odd = if rank == 2 { f64::INFINITY } else { 0.5 };
        group.all_reduce_f64(&[number(rank), rank as f64, odd]).unwrap()
    });
    let exact: f64 = (0..4).map(number).sum();
    assert!((results[0][0] - exact).abs() < 1e-12, "{}", results[0][0] - exact);
    assert_eq!(results[0][1].to_bits(), 6f64.to_bits());
    assert!(results[0][2].is_infinite());
    assert!(results.iter().all(|sums| *sums == results[0]));
}

#[test]
fn messages_travel_between_rank_0_and_the_others() {
    ranks(3, quick(), |group: Group| {
        if group.rank() == 0 {
            for rank in 1..3 {
                group.send(rank, &("work", rank), vec![rank as u8; 3 << 20]).unwrap();
            }
            for rank in 1..3 {
                let answer = group.receive(rank, Some(PATIENT)).unwrap();
                assert_eq!(answer.fields::<usize>().unwrap(), 10 * rank);
            }
            let problem = group.send(3, &1, vec![]).unwrap_err().to_string();
            assert!(problem.contains("no connection with rank 3"), "{problem}");
        } else {
            let message = group.receive(0, None).unwrap();
            let (_, rank): (String, usize) = message.fields().unwrap();
            assert_eq!(
                (rank, message.payload.len(), message.payload[7]),
                (group.rank(), 3 << 20, rank as u8)
            );
            group.send(0, &(10 * rank), vec![]).unwrap();
            // until rank 0 leaves
            assert!(group.receive(0, None).is_err() && group.is_over());
        }
    });
}

#[test]
fn parts_that_do_not_fit_are_an_error() {
    let mut alone = Group::alone();
    let problem = alone.all_gather(&mut HostValues::F32(vec![1.0]), &Parts::of_sizes(&[2])).unwrap_err();
    assert!(problem.to_string().contains("expected 1 parts of 1"), "{problem}");
}
