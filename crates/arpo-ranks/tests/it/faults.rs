//! A rank that leaves, hangs or fails ends the others, with a line that names it.

use crate::{PATIENT, options, ranks, reason};
use arpo_ranks::{Collectives, Group, HostValues, Parts};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Sums until something happens.
fn sum_until_the_end(group: &mut Group) -> String {
    loop {
        let summed = group.all_reduce(&mut HostValues::F32(vec![1.0; 100]));
        if summed.is_err() {
            return reason(summed);
        }
    }
}

#[test]
fn a_rank_that_leaves_is_named_by_all() {
    let began = Instant::now();
    let reasons = ranks(4, options(PATIENT, PATIENT), |mut group: Group| {
        if group.rank() == 2 {
            for _ in 0..5 {
                group.all_reduce(&mut HostValues::F32(vec![1.0; 100])).unwrap();
            }
            return String::new();
        }
        sum_until_the_end(&mut group)
    });
    for rank in [0, 1, 3] {
        assert!(
            reasons[rank].contains("rank 2 (") && reasons[rank].contains("rank 2 has left"),
            "{reasons:?}"
        );
    }
    assert!(began.elapsed() < PATIENT / 2, "{:?}", began.elapsed());
}

/// The same line, whether a rank waits for its sums or is about to begin more of them.
#[test]
fn a_rank_that_leaves_is_named_to_those_that_compute() {
    let began = Instant::now();
    let reasons = ranks(3, options(PATIENT, PATIENT), |mut group: Group| {
        let go_on = |group: &mut Group| {
            let bucket = vec![(HostValues::F32(vec![1.0; 100]), Parts::even(100, 3, 1))];
            group.reduce_scatter_async(bucket).and_then(|()| group.wait_reduce_scatter(1))
        };
        if group.rank() == 2 {
            for _ in 0..5 {
                go_on(&mut group).unwrap();
            }
            return String::new();
        }
        loop {
            let summed = go_on(&mut group);
            if summed.is_err() {
                return reason(summed);
            }
        }
    });
    for rank in [0, 1] {
        assert!(
            reasons[rank].contains("rank 2 (") && reasons[rank].contains("rank 2 has left"),
            "{reasons:?}"
        );
    }
    assert!(began.elapsed() < PATIENT / 2, "{:?}", began.elapsed());
}

/// The sums that it began travel without it; the next ones do not.
#[test]
fn a_rank_that_hangs_is_named_to_those_that_compute() {
    let deadline = Duration::from_secs(2);
    let began = Instant::now();
    let reasons = ranks(3, options(deadline, Duration::from_secs(5)), |mut group: Group| {
        let bucket = || vec![(HostValues::F32(vec![1.0; 100]), Parts::even(100, 3, 1))];
        group.reduce_scatter_async(bucket()).unwrap();
        if group.rank() == 2 {
            let until = Instant::now() + PATIENT;
            while group.check().is_ok() && Instant::now() < until {
                sleep(Duration::from_millis(20));
            }
            return reason(group.check());
        }
        assert_eq!(group.wait_reduce_scatter(0).unwrap().len(), 1);
        reason(group.reduce_scatter_async(bucket()).and_then(|()| group.wait_reduce_scatter(0)))
    });
    for reason in &reasons {
        assert!(reason.starts_with("rank 2 (") && reason.contains(" hangs: "), "{reasons:?}");
        assert!(reason.contains("within 2 s"), "{reasons:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// It has said that the run is over, but those in the middle of an operation do not look at messages.
#[test]
fn rank_0_that_leaves_in_an_operation_holds_nobody_up() {
    ranks(3, options(PATIENT, PATIENT), |mut group: Group| {
        group.barrier().unwrap();
        if group.rank() == 0 {
            sleep(Duration::from_millis(200));
            return;
        }
        let began = Instant::now();
        group.barrier().unwrap_err();
        assert!(group.is_over());
        assert!(began.elapsed() < PATIENT / 3, "{:?}", began.elapsed());
    });
}

#[test]
fn a_failure_of_one_is_told_to_all() {
    let reasons = ranks(3, options(PATIENT, PATIENT), |mut group: Group| {
        if group.rank() == 1 {
            group.abort("out of memory while learning");
            return reason(group.barrier());
        }
        sum_until_the_end(&mut group)
    });
    assert_eq!(reasons[1], "out of memory while learning");
    for rank in [0, 2] {
        assert!(
            reasons[rank].starts_with("rank 1 (")
                && reasons[rank].ends_with("): out of memory while learning"),
            "{reasons:?}"
        );
    }
}

/// Its threads show that it lives, but it does not come to the operation.
#[test]
fn a_rank_that_hangs_in_its_computation_is_named() {
    let deadline = Duration::from_secs(2);
    let began = Instant::now();
    let reasons = ranks(3, options(deadline, Duration::from_secs(1) * 5), |mut group: Group| {
        group.barrier().unwrap();
        if group.rank() == 2 {
            let until = Instant::now() + PATIENT;
            while group.check().is_ok() && Instant::now() < until {
                sleep(Duration::from_millis(20));
            }
            return reason(group.check());
        }
        reason(group.barrier())
    });
    for reason in &reasons {
        assert!(reason.starts_with("rank 2 (") && reason.contains(" hangs: "), "{reasons:?}");
        assert!(reason.contains("within 2 s"), "{reasons:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn an_answer_that_does_not_come_is_a_rank_that_hangs() {
    let reasons = ranks(2, options(PATIENT, PATIENT), |group: Group| {
        if group.rank() == 0 {
            return reason(group.receive(1, Some(Duration::from_millis(300))));
        }
        reason(group.receive(0, None))
    });
    for reason in &reasons {
        assert!(
            reason.starts_with("rank 1 (")
                && reason.ends_with("hangs: neither an answer nor progress within 0.3 s"),
            "{reasons:?}"
        );
    }
}

/// Only completed steps count: a rank that lives and completes none is lost.
#[test]
fn a_rank_that_makes_progress_is_waited_for() {
    let deadline = Duration::from_secs(3);
    let began = Instant::now();
    let reasons = ranks(2, options(deadline, PATIENT), |group: Group| {
        if group.rank() == 0 {
            let answer: String = group.receive(1, Some(deadline)).unwrap().fields().unwrap();
            assert_eq!(answer, "done");
            assert!(began.elapsed() > 2 * deadline, "{:?}", began.elapsed());
            assert!(group.progressed(1).unwrap().is_some());
            return reason(group.receive(1, Some(deadline)));
        }
        // six steps, together much longer than the deadline
        for _ in 0..6 {
            sleep(2 * deadline / 5);
            group.progress();
        }
        group.send(0, &"done", vec![]).unwrap();
        // and now none, while its heartbeats go on
        reason(group.receive(0, None))
    });
    for reason in &reasons {
        assert!(reason.starts_with("rank 1 ("), "{reasons:?}");
        assert!(reason.ends_with("hangs: neither an answer nor progress within 3 s"), "{reasons:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn ranks_that_do_different_things_notice() {
    let reasons = ranks(2, options(PATIENT, PATIENT), |mut group: Group| {
        let count = if group.rank() == 0 { 10 } else { 12 };
        reason(group.all_reduce(&mut HostValues::F32(vec![0.0; count])))
    });
    assert!(reasons.iter().all(|reason| reason.contains("expected")), "{reasons:?}");
}
