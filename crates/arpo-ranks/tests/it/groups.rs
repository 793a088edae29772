//! The ranks of a run in two groups: rank 0 is in both, each group sums by itself, and a rank that is lost ends its own group
//! under its name in the run.

use crate::{PATIENT, here, options, reason};
use arpo_ranks::rendezvous::{Rendezvous, join};
use arpo_ranks::{Collectives, Group, HostValues};
use std::thread;
use std::time::Duration;

/// What a rank other than 0 does: the sum of a number from each rank of its group, until the run is over or it is told to leave.
fn work(address: &str) -> Result<(), String> {
    let mut group = join(address, "secret", PATIENT, &mut || Ok(())).unwrap();
    let sum = group.all_reduce_f64(&[group.rank() as f64]).unwrap()[0];
    group.send(0, &(group.rank(), group.size(), sum), vec![]).unwrap();
    match group.receive(0, None) {
        Ok(_) => Ok(()),
        Err(_) if group.is_over() => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn answers(group: &Group) -> Vec<(usize, usize, f64)> {
    (1..group.size()).map(|rank| group.receive(rank, Some(PATIENT)).unwrap().fields().unwrap()).collect()
}

#[test]
fn two_groups_work_beside_each_other_and_end_apart() {
    let rendezvous = Rendezvous::listen("test", here(), "secret").unwrap();
    let address = rendezvous.address().to_string();
    thread::scope(|scope| {
        let others: Vec<_> = (0..5).map(|_| scope.spawn(|| work(&address))).collect();
        let gathered =
            rendezvous.gather_groups([2, 3], options(PATIENT, PATIENT), PATIENT, &mut |_| {}, &mut || Ok(()));
        let [mut first, mut second] = gathered.unwrap();
        assert_eq!((first.size(), second.size()), (3, 4));
        assert_eq!([first.name(1), first.name(2)], ["rank 1", "rank 2"]);
        assert_eq!([second.name(0), second.name(1), second.name(3)], ["rank 0", "rank 3", "rank 5"]);
        // the second one first: they do not wait for each other
        assert_eq!(second.all_reduce_f64(&[0.0]).unwrap(), vec![6.0]);
        assert_eq!(first.all_reduce_f64(&[0.0]).unwrap(), vec![3.0]);
        assert_eq!(answers(&first), [(1, 3, 3.0), (2, 3, 3.0)]);
        assert_eq!(answers(&second), [(1, 4, 6.0), (2, 4, 6.0), (3, 4, 6.0)]);
        // rank 4 leaves: its group ends, the other one goes on
        let sentinel = second.sentinel();
        sentinel.check().unwrap();
        second.send(2, &(), vec![]).unwrap();
        let lost = reason(second.barrier());
        assert!(lost.contains("rank 4 (") && lost.contains("rank 4 has left"), "{lost}");
        assert_eq!(reason(sentinel.check()), lost);
        assert!(first.check().is_ok());
        drop((first, second));
        let ends: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
        let (ended, fine): (Vec<_>, Vec<_>) = ends.into_iter().partition(Result::is_err);
        assert_eq!(fine.len(), 3, "{ended:?}");
        assert!(ended.iter().all(|end| *end == Err(lost.clone())), "{ended:?} {lost}");
    });
}

/// A group without other ranks needs nobody, also beside one that has some.
#[test]
fn a_group_of_one_beside_another() {
    let rendezvous = Rendezvous::listen("test", here(), "secret").unwrap();
    let address = rendezvous.address().to_string();
    thread::scope(|scope| {
        let other = scope.spawn(|| work(&address));
        let options = options(PATIENT, Duration::from_secs(20));
        let gathered = rendezvous.gather_groups([0, 1], options, PATIENT, &mut |_| {}, &mut || Ok(()));
        let [mut alone, mut second] = gathered.unwrap();
        alone.all_reduce(&mut HostValues::F32(vec![1.0; 3])).unwrap();
        assert_eq!((alone.size(), second.name(1)), (1, "rank 1".to_owned()));
        assert_eq!(second.all_reduce_f64(&[0.0]).unwrap(), vec![1.0]);
        drop((alone, second));
        other.join().unwrap().unwrap();
    });
}
