//! Which screenshots of a long episode stay in the context, and so in which slices the episode is trained.
//!
//! One rule for both sides. At every turn the sampler keeps the screenshots from the first live one on; training splits an
//! episode where that changes. On overflow the boundary advances by several screenshots at once: between two advances the
//! conversation only grows, so the KV cache of its prefix stays valid.

use std::ops::Range;

/// A limit on live screenshots; on overflow the oldest are dropped, several at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenshotWindow {
    max: usize,
    advance: usize,
}

/// Turns of an episode that share the same context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowSlice {
    /// The turns.
    pub turns: Range<usize>,
    /// The first turn whose screenshot is live in all of them.
    pub first_live: usize,
}

impl ScreenshotWindow {
    /// A window of `max` screenshots, at least 1, that drops `advance` at once; 0 for half of them.
    pub fn new(max: usize, advance: usize) -> Self {
        let max = max.max(1);
        let advance = if advance == 0 { max / 2 } else { advance };
        Self { max, advance: advance.clamp(1, max) }
    }

    /// The first live screenshot when `seen` have been taken, the current one included.
    pub fn first_live(&self, seen: usize) -> usize {
        let overflow = seen.saturating_sub(self.max);
        overflow.div_ceil(self.advance) * self.advance
    }

    /// The slices of an episode of `turns` turns: each turn is in exactly one of them.
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

    fn slices(max: usize, advance: usize, turns: usize) -> Vec<(Range<usize>, usize)> {
        let slices = ScreenshotWindow::new(max, advance).slices(turns);
        slices.into_iter().map(|slice| (slice.turns, slice.first_live)).collect()
    }

    #[test]
    fn an_episode_that_fits_is_one_slice() {
        assert_eq!(slices(15, 0, 15), [(0..15, 0)]);
        assert_eq!(slices(15, 0, 0), []);
    }

    #[test]
    fn the_boundary_advances_by_several_screenshots() {
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
        fn every_turn_is_in_one_slice_and_sees_its_own_screenshot(max in 1usize..30, advance in 0usize..40, turns in 0usize..200) {
            let window = ScreenshotWindow::new(max, advance);
            let mut next = 0;
            for slice in window.slices(turns) {
                prop_assert_eq!(slice.turns.start, next);
                next = slice.turns.end;
                for turn in slice.turns.clone() {
                    prop_assert_eq!(window.first_live(turn + 1), slice.first_live);
                    prop_assert!(slice.first_live <= turn && turn + 1 - slice.first_live <= max);
                }
            }
            prop_assert_eq!(next, turns);
        }
    }
}
