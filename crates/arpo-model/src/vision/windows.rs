//! Which features attend to each other in the windowed blocks of the vision tower, and an order in which they lie
//! together. Pure.

use crate::positions::Grid;

/// Windows made contiguous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowPlan {
    /// For every place in the new order, the feature that stands there.
    pub order: Vec<i64>,
    /// Features of each window, in the new order. Within an image windows of the same size follow each other, so
    /// that they can be computed as one batch; attention does not mind in which order windows come.
    pub windows: Vec<usize>,
}

impl WindowPlan {
    /// The plan for images one behind the other, with windows of `side` x `side` features, cut off at the right and
    /// lower edges of their image.
    pub fn new(grids: &[Grid], merge: usize, side: usize) -> Self {
        let mut plan = Self { order: Vec::new(), windows: Vec::new() };
        let mut first = 0;
        for grid in grids {
            let (rows, columns) = (grid.height / merge, grid.width / merge);
            let mut windows: Vec<Vec<i64>> = Vec::new();
            for top in (0..rows).step_by(side) {
                for left in (0..columns).step_by(side) {
                    let (bottom, right) = ((top + side).min(rows), (left + side).min(columns));
                    let feature = |row: usize, column: usize| (first + row * columns + column) as i64;
                    let window =
                        (top..bottom).flat_map(|row| (left..right).map(move |column| feature(row, column)));
                    windows.push(window.collect());
                }
            }
            windows.sort_by_key(|window| std::cmp::Reverse(window.len()));
            for window in windows {
                plan.windows.push(window.len());
                plan.order.extend(window);
            }
            first += rows * columns;
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_every_feature_once_and_stay_in_their_image() {
        let grids =
            [Grid { height: 10, width: 14 }, Grid { height: 8, width: 8 }, Grid { height: 2, width: 2 }];
        let plan = WindowPlan::new(&grids, 2, 4);
        let mut sorted = plan.order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..52).collect::<Vec<i64>>());
        // 5 x 7 features: one full window, then 4 x 3, 1 x 4 and 1 x 3
        assert_eq!(plan.windows, [16, 12, 4, 3, 16, 1]);
        assert_eq!(plan.order[..5], [0, 1, 2, 3, 7]);
        assert!(plan.order[..35].iter().all(|&feature| feature < 35));
    }
}
