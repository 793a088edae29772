//! Learned positions: a square table, interpolated bilinearly to the size of an image, corner on corner.

use super::patch_coordinates;
use crate::layers::linear::Parameter;
use crate::positions::Grid;
use tch::{Device, Kind, Tensor};

#[derive(Debug)]
pub(super) struct PositionTable {
    pub(super) table: Parameter, // [side * side, hidden]
    pub(super) side: i64,
}

/// For every patch its four neighbours in the table, and their weights.
pub(super) struct Neighbours {
    rows: [Tensor; 4],    // [patches], i64
    weights: [Tensor; 4], // [patches, 1], in the table's type
}

impl PositionTable {
    pub(super) fn neighbours(&self, grids: &[Grid], merge: usize, device: Device) -> Neighbours {
        let neighbours = neighbours(grids, merge, self.side as usize);
        let kind = self.table.value.kind();
        let weights = |of: usize| {
            let weights: Vec<f32> = neighbours.iter().map(|patch| patch[of].1).collect();
            Tensor::from_slice(&weights).to_kind(kind).to_device(device).unsqueeze(1)
        };
        let rows = |of: usize| {
            let rows: Vec<i64> = neighbours.iter().map(|patch| patch[of].0).collect();
            Tensor::from_slice(&rows).to_device(device)
        };
        Neighbours { rows: std::array::from_fn(rows), weights: std::array::from_fn(weights) }
    }

    /// The positions of patches: `[patches, hidden]`.
    pub(super) fn forward(&self, neighbours: &Neighbours) -> Tensor {
        let one =
            |of: usize| self.table.value.index_select(0, &neighbours.rows[of]) * &neighbours.weights[of];
        one(0) + one(1) + one(2) + one(3)
    }

    /// Accumulates the table's gradient, from that of the patches.
    pub(super) fn backward(&self, neighbours: &Neighbours, gradient: &Tensor) {
        let Some(buffer) = &self.table.gradient else { return };
        for (rows, weights) in neighbours.rows.iter().zip(&neighbours.weights) {
            let weighted = gradient * weights.to_kind(Kind::Float);
            let _ = buffer.shallow_clone().index_add_(0, rows, &weighted.to_kind(buffer.kind()));
        }
    }
}

/// Upper left, upper right, lower left and lower right neighbour of every patch, in the order of the image processor.
fn neighbours(grids: &[Grid], merge: usize, side: usize) -> Vec<[(i64, f32); 4]> {
    let mut all = Vec::new();
    for grid in grids {
        let (rows, columns) = patch_coordinates(&[*grid], merge);
        for (row, column) in rows.into_iter().zip(columns) {
            let (row, column) = (at(row as usize, grid.height, side), at(column as usize, grid.width, side));
            let neighbour = |(y, vertical): (usize, f32), (x, horizontal): (usize, f32)| {
                ((y * side + x) as i64, vertical * horizontal)
            };
            all.push([
                neighbour(row[0], column[0]),
                neighbour(row[0], column[1]),
                neighbour(row[1], column[0]),
                neighbour(row[1], column[1]),
            ]);
        }
    }
    all
}

/// The two entries of a side of the table that a patch lies between, with their weights. In f32 and from the nearer end,
/// as `linspace` has it.
fn at(patch: usize, patches: usize, side: usize) -> [(usize, f32); 2] {
    let end = (side - 1) as f32;
    let step = if patches > 1 { end / (patches - 1) as f32 } else { 0.0 };
    let position = if patch < patches / 2 || patches == 1 {
        step * patch as f32
    } else {
        end - step * (patches - 1 - patch) as f32
    };
    let before = position as usize;
    let fraction = position - before as f32;
    [(before, 1.0 - fraction), ((before + 1).min(side - 1), fraction)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_lie_on_corners_and_weights_add_up() {
        let grid = Grid { height: 6, width: 10 };
        let all = neighbours(&[grid], 2, 8);
        assert_eq!(all.len(), 60);
        for patch in &all {
            assert!((patch.iter().map(|(_, weight)| weight).sum::<f32>() - 1.0).abs() < 1e-6);
        }
        assert_eq!(all[0][0], (0, 1.0), "the first patch is the table's first corner");
        let last = all[59].iter().find(|(_, weight)| *weight > 0.999).expect("one neighbour alone");
        assert_eq!(last.0, 63, "the last patch is the table's last corner");
        assert_eq!(neighbours(&[Grid { height: 8, width: 8 }], 1, 8)[9][0], (9, 1.0));
    }
}
