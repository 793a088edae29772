//! How many desktops are started at once.
//!
//! A container desktop takes two seconds of processor time to start. When all desktops of a run start together, each shares the
//! processors with all others, and the first is ready nearly as late as the last; in turn, most are ready much sooner, and the last
//! at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a caller looks whether its start is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Places for starts.
pub(super) struct StartSlots {
    most: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

impl StartSlots {
    /// At most so many at once.
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Mutex::new(0), freed: Condvar::new() }
    }

    /// As many as processors can be kept busy with: one more than there are, because a start also waits.
    pub(super) fn for_processors() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, std::num::NonZero::get) + 1)
    }

    /// Waits for a place; none if the deadline passes first, or the start is not wanted any more.
    pub(super) fn take(&self, deadline: Instant, given_up: &AtomicBool) -> Option<StartSlot<'_>> {
        let mut taken = self.lock();
        while *taken >= self.most {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || given_up.load(Ordering::Acquire) {
                return None;
            }
            let waited = self.freed.wait_timeout(taken, left.min(LOOK_INTERVAL));
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += 1;
        Some(StartSlot(self))
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is taken until it is dropped.
pub(super) struct StartSlot<'a>(&'a StartSlots);

impl Drop for StartSlot<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn never_more_than_allowed_and_all_in_the_end() {
        let (slots, wanted) = (StartSlots::new(3), AtomicBool::new(false));
        let (running, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    let slot = slots.take(soon(), &wanted);
                    assert!(slot.is_some());
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(20));
                    running.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(done.into_inner(), 12);
        assert!((2..=3).contains(&most.into_inner()));
    }

    #[test]
    fn a_wait_ends_with_its_deadline_and_with_the_wish() {
        let (slots, given_up) = (StartSlots::new(1), AtomicBool::new(false));
        let held = slots.take(soon(), &given_up).expect("the first is free");
        let began = Instant::now();
        assert!(slots.take(began + Duration::from_millis(150), &given_up).is_none());
        assert!(began.elapsed() >= Duration::from_millis(150));
        given_up.store(true, Ordering::Release);
        assert!(slots.take(soon(), &given_up).is_none() && began.elapsed() < Duration::from_secs(10));
        drop(held);
        assert!(slots.take(soon(), &given_up).is_some(), "a free place needs no wait");
    }
}
