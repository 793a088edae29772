//! Which screenshots of a long episode the model still sees, and so in which slices the episode is trained.
//!
//! One rule for both sides. The sampler asks at every turn from which screenshot on they are live; training cuts an
//! episode where that changes. On overflow the boundary advances by several screenshots at once: between two advances the
//! conversation only grows, so its beginning, and the keys and values that were computed for it, stay good.

use std::ops::Range;

/// At most so many screenshots are live; on overflow the oldest give way, several at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenshotWindow {
    most: usize,
    advance: usize,
}

/// Turns of an episode that were said in the same context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowSlice {
    /// The turns.
    pub turns: Range<usize>,
    /// The first turn whose screenshot is live in all of them.
    pub first_live: usize,
}

impl ScreenshotWindow {
    /// A window of `most` screenshots, at least 1, that gives up `advance` at once; 0 for half of them.
    pub fn new(most: usize, advance: usize) -> Self {
        let most = most.max(1);
        let advance = if advance == 0 { most / 2 } else { advance };
        Self { most, advance: advance.clamp(1, most) }
    }

    /// The first live screenshot when `seen` have been taken, the current one included.
    pub fn first_live(&self, seen: usize) -> usize {
        let overflow = seen.saturating_sub(self.most);
        overflow.div_ceil(self.advance) * self.advance
    }

    /// The slices of an episode of so many turns: each turn is in one of them.
    pub fn slices(&self, turns: usize) -> Vec<WindowSlice> {
        let mut slices: Vec<WindowSlice> = vec![];
        for turn in 0..turns {
            let first_live = self.first_live(turn + 1);
            match slices.last_mut() {
                Some(slice) if slice.first_live == first_live => slice.turns.end = turn + 1,
                _ => slices.push(WindowSlice { turns: turn..turn + 1, first_live }),
            }
        }
        slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slices(most: usize, advance: usize, turns: usize) -> Vec<(Range<usize>, usize)> {
        let slices = ScreenshotWindow::new(most, advance).slices(turns);
        slices.into_iter().map(|slice| (slice.turns, slice.first_live)).collect()
    }

    #[test]
    fn an_episode_that_fits_is_one_slice() {
        assert_eq!(slices(15, 0, 15), [(0..15, 0)]);
        assert_eq!(slices(15, 0, 0), []);
    }

    #[test]
    fn the_boundary_advances_by_a_block() {
        // half of five is two
        assert_eq!(slices(5, 0, 10), [(0..5, 0), (5..7, 2), (7..9, 4), (9..10, 6)]);
        assert_eq!(slices(20, 10, 41), [(0..20, 0), (20..30, 10), (30..40, 20), (40..41, 30)]);
        assert_eq!(slices(2, 1, 4), [(0..2, 0), (2..3, 1), (3..4, 2)]);
        assert_eq!(slices(1, 0, 3), [(0..1, 0), (1..2, 1), (2..3, 2)]);
        // all at once: only the current one is live after an advance
        assert_eq!(slices(3, 3, 7), [(0..3, 0), (3..6, 3), (6..7, 6)]);
    }

    proptest! {
        #[test]
        fn every_turn_is_said_once_and_sees_its_own_screenshot(most in 1usize..30, advance in 0usize..40, turns in 0usize..200) {
            let window = ScreenshotWindow::new(most, advance);
            let mut next = 0;
            for slice in window.slices(turns) {
                prop_assert_eq!(slice.turns.start, next);
                next = slice.turns.end;
                for turn in slice.turns.clone() {
                    prop_assert_eq!(window.first_live(turn + 1), slice.first_live);
                    prop_assert!(slice.first_live <= turn && turn + 1 - slice.first_live <= most);
                }
            }
            prop_assert_eq!(next, turns);
        }
    }
}
