//! Dynamic time warping, fast: aligned coarsely first, then within one step of the coarse path, as fastdtw does.

use super::cepstrum::Frame;
use std::collections::{BTreeMap, HashSet};

const RADIUS: i64 = 1;

/// The total cosine distance along the path found, and the path's length.
pub fn fast_alignment(first: &[Frame], second: &[Frame]) -> (f64, usize) {
    let (distance, path) = fast(first, second);
    (distance, path.len())
}

type Path = Vec<(usize, usize)>;

fn fast(first: &[Frame], second: &[Frame]) -> (f64, Path) {
    let least = RADIUS as usize + 2;
    if first.len() < least || second.len() < least {
        let all = (0..first.len()).flat_map(|row| (0..second.len()).map(move |column| (row, column)));
        return within(first, second, all);
    }
    let (_, coarse) = fast(&halved(first), &halved(second));
    within(first, second, around(&coarse, first.len(), second.len()).into_iter())
}

fn halved(frames: &[Frame]) -> Vec<Frame> {
    frames
        .chunks_exact(2)
        .map(|pair| std::array::from_fn(|at| f64::midpoint(pair[0][at], pair[1][at])))
        .collect()
}

/// The cells at twice the coarse path's, and their neighbours; of each row one unbroken piece.
fn around(coarse: &[(usize, usize)], rows: usize, columns: usize) -> Path {
    let mut near: HashSet<(i64, i64)> = HashSet::new();
    for &(row, column) in coarse {
        for down in -RADIUS..=RADIUS {
            for right in -RADIUS..=RADIUS {
                let (row, column) = (2 * (row as i64 + down), 2 * (column as i64 + right));
                near.extend([(row, column), (row, column + 1), (row + 1, column), (row + 1, column + 1)]);
            }
        }
    }
    let mut window = Vec::new();
    let mut start = 0;
    for row in 0..rows {
        let mut first = None;
        for column in start..columns {
            if near.contains(&(row as i64, column as i64)) {
                window.push((row, column));
                first = first.or(Some(column));
            } else if first.is_some() {
                break;
            }
        }
        start = first.unwrap_or(start);
    }
    window
}

/// The best path through a window of cells, given row by row.
fn within(first: &[Frame], second: &[Frame], window: impl Iterator<Item = (usize, usize)>) -> (f64, Path) {
    let mut best: BTreeMap<(usize, usize), (f64, (usize, usize))> = BTreeMap::new();
    best.insert((0, 0), (0.0, (0, 0)));
    let cost_at = |best: &BTreeMap<_, (f64, (usize, usize))>, cell: (usize, usize)| {
        best.get(&cell).map_or(f64::INFINITY, |(cost, _)| *cost)
    };
    for (row, column) in window {
        let step = cosine_distance(&first[row], &second[column]);
        let mut choice = (f64::INFINITY, (row, column + 1));
        for from in [(row, column + 1), (row + 1, column), (row, column)] {
            let cost = cost_at(&best, from) + step;
            if cost < choice.0 {
                choice = (cost, from);
            }
        }
        best.insert((row + 1, column + 1), choice);
    }
    let mut path = Vec::new();
    let mut cell = (first.len(), second.len());
    while cell != (0, 0) {
        let Some((_, from)) = best.get(&cell) else { break };
        path.push((cell.0 - 1, cell.1 - 1));
        cell = *from;
        if cell.0 == 0 || cell.1 == 0 {
            break;
        }
    }
    path.reverse();
    (cost_at(&best, (first.len(), second.len())), path)
}

fn cosine_distance(a: &Frame, b: &Frame) -> f64 {
    let dot = |a: &Frame, b: &Frame| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let size = (dot(a, a) * dot(b, b)).sqrt();
    if size > 0.0 { (1.0 - dot(a, b) / size).max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(count: usize, shift: f64) -> Vec<Frame> {
        (0..count)
            .map(|row| std::array::from_fn(|at| (row as f64 * 0.7 + at as f64 * 0.31 + shift).sin()))
            .collect()
    }

    #[test]
    fn the_same_is_at_no_distance() {
        let a = frames(37, 0.0);
        let (distance, length) = fast_alignment(&a, &a);
        assert!(distance.abs() < 1e-9);
        assert_eq!(length, 37);
    }

    #[test]
    fn distances_are_fastdtw_s() {
        // fastdtw(frames(37, 0), frames(29, 1.3), dist=scipy cosine).
        let (distance, length) = fast_alignment(&frames(37, 0.0), &frames(29, 1.3));
        assert!((distance - FASTDTW.0).abs() < 1e-9, "{distance}");
        assert_eq!(length, FASTDTW.1);
    }

    const FASTDTW: (f64, usize) = (12.295_870_878_415_128, 40);
}
