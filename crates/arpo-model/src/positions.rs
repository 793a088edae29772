//! Token positions: M-RoPE gives every token a position in time, height and width.
//!
//! Text advances all three; the features of an image share a time and spread over height and width; the next token
//! continues after the largest of them.

use crate::ModelError;
use crate::config::ModelConfig;

pub use arpo_image::Grid;

/// Positions of a sequence's tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positions {
    /// Time, height and width of every token.
    pub axes: [Vec<i64>; 3],
    /// The position of the next token after the sequence, on all axes.
    pub next: i64,
}

/// The positions of a sequence that starts at `start`. The number of image tokens must match the images' features, in
/// one run for each image.
pub fn positions(
    tokens: &[u32],
    grids: &[Grid],
    start: i64,
    config: &ModelConfig,
) -> Result<Positions, ModelError> {
    let merge = config.vision.merge as usize;
    let placeholders = tokens.iter().filter(|&&token| token == config.image_token).count();
    let features = grids.iter().map(|grid| grid.features(merge)).sum();
    let mismatch = || ModelError::ImageTokens { placeholders, features };
    if placeholders != features {
        return Err(mismatch());
    }
    let mut axes: [Vec<i64>; 3] = std::array::from_fn(|_| Vec::with_capacity(tokens.len()));
    let mut next = start;
    let mut images = grids.iter();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] != config.image_token {
            for axis in &mut axes {
                axis.push(next);
            }
            next += 1;
            at += 1;
            continue;
        }
        let grid = images.next().ok_or_else(mismatch)?;
        let count = grid.features(merge);
        let run = tokens[at..].iter().take(count).take_while(|&&token| token == config.image_token).count();
        if run != count {
            return Err(mismatch());
        }
        let (rows, columns) = (grid.height / merge, grid.width / merge);
        for row in 0..rows {
            for column in 0..columns {
                axes[0].push(next);
                axes[1].push(next + row as i64);
                axes[2].push(next + column as i64);
            }
        }
        next += rows.max(columns) as i64;
        at += count;
    }
    Ok(Positions { axes, next })
}
