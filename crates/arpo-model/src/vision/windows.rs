//! Which features attend to each other in the windowed blocks of the vision tower, and an order that makes them
//! contiguous. Pure.

use crate::positions::Grid;

/// Windows made contiguous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowPlan {
    /// The feature at every position of the new order.
    pub order: Vec<i64>,
    /// Features of each window, in the new order. Windows of the same size are consecutive, across images, so that they
    /// can be computed as one batch; the order of windows does not affect attention.
    pub windows: Vec<usize>,
    /// Positions in the new order, image by image: for the blocks with full attention.
    pub by_image: Vec<i64>,
}

impl WindowPlan {
    /// The plan for concatenated images, with windows of `side` x `side` features, cut off at the right and
    /// lower edges of their image.
    pub fn new(grids: &[Grid], merge: usize, side: usize) -> Self {
        let mut windows: Vec<(usize, Vec<i64>)> = Vec::new();
        let mut first = 0;
        for (image, grid) in grids.iter().enumerate() {
            let (rows, columns) = (grid.height / merge, grid.width / merge);
            for top in (0..rows).step_by(side) {
                for left in (0..columns).step_by(side) {
                    let (bottom, right) = ((top + side).min(rows), (left + side).min(columns));
                    let feature = |row: usize, column: usize| (first + row * columns + column) as i64;
                    let window =
                        (top..bottom).flat_map(|row| (left..right).map(move |column| feature(row, column)));
                    windows.push((image, window.collect()));
                }
            }
            first += rows * columns;
        }
        windows.sort_by_key(|(_, window)| std::cmp::Reverse(window.len()));
        let images = windows.iter().flat_map(|(image, window)| std::iter::repeat_n(*image, window.len()));
        let mut by_image: Vec<(usize, i64)> = images.zip(0..).collect();
        by_image.sort_by_key(|(image, _)| *image);
        Self {
            windows: windows.iter().map(|(_, window)| window.len()).collect(),
            order: windows.into_iter().flat_map(|(_, window)| window).collect(),
            by_image: by_image.into_iter().map(|(_, position)| position).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_every_feature_once_and_images_are_found_again() {
        let grids =
            [Grid { height: 10, width: 14 }, Grid { height: 8, width: 8 }, Grid { height: 2, width: 2 }];
        let plan = WindowPlan::new(&grids, 2, 4);
        let mut sorted = plan.order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..52).collect::<Vec<i64>>());
        // 5 x 7 features: one full window, then 4 x 3, 1 x 4 and 1 x 3; 4 x 4: one full window; 1 x 1
        assert_eq!(plan.windows, [16, 16, 12, 4, 3, 1]);
        assert_eq!(plan.order[..5], [0, 1, 2, 3, 7]);
        let found: Vec<i64> = plan.by_image.iter().map(|&position| plan.order[position as usize]).collect();
        assert!(found[..35].iter().all(|&feature| feature < 35));
        assert!(found[35..51].iter().all(|&feature| (35..51).contains(&feature)));
    }
}
