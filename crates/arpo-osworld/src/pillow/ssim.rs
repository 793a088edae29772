//! Structural similarity as scikit-image computes it: a uniform window of 7, sample covariance, range 255.

use super::{Mode, PillowImage};
use crate::error::MetricError;

const WINDOW: usize = 7;
const C1: f64 = (0.01 * 255.0) * (0.01 * 255.0);
const C2: f64 = (0.03 * 255.0) * (0.03 * 255.0);

/// The mean over channels of the similarity of each. Different shapes, or a side below the window, raise.
pub fn similarity(a: &PillowImage, b: &PillowImage) -> Result<f64, MetricError> {
    if (a.width, a.height, a.mode) != (b.width, b.height, b.mode) {
        return Err(MetricError::raises("images of different shapes"));
    }
    if a.width.min(a.height) < WINDOW {
        return Err(MetricError::raises("an image smaller than the window"));
    }
    let channels = a.mode.channels();
    let plane = |image: &PillowImage, channel: usize| {
        image.pixels.iter().skip(channel).step_by(channels).copied().collect::<Vec<u8>>()
    };
    let total: f64 = (0..channels)
        .map(|channel| plane_similarity(&plane(a, channel), &plane(b, channel), a.width, a.height))
        .sum();
    Ok(total / channels as f64)
}

/// What the ARPO era computes for a grey image: it treats the columns as channels, so that each column is compared
/// on its own.
pub fn similarity_of_columns(a: &PillowImage, b: &PillowImage) -> Result<f64, MetricError> {
    if a.mode != Mode::L {
        return similarity(a, b);
    }
    if (a.width, a.height, a.mode) != (b.width, b.height, b.mode) {
        return Err(MetricError::raises("images of different shapes"));
    }
    if a.height < WINDOW {
        return Err(MetricError::raises("an image smaller than the window"));
    }
    let column = |image: &PillowImage, at: usize| {
        image.pixels.iter().skip(at).step_by(image.width).map(|byte| u64::from(*byte)).collect::<Vec<u64>>()
    };
    let total: f64 = (0..a.width)
        .map(|at| {
            let (x, y) = (column(a, at), column(b, at));
            let windows = x.windows(WINDOW).zip(y.windows(WINDOW));
            let values: Vec<f64> = windows
                .map(|(x, y)| Sums::of(x.iter().copied().zip(y.iter().copied())).index(WINDOW))
                .collect();
            values.iter().sum::<f64>() / values.len() as f64
        })
        .sum();
    Ok(total / a.width as f64)
}

/// The sums of a window that the index is computed from. Integers, so that they are exact.
#[derive(Clone, Copy, Default)]
struct Sums {
    x: u64,
    y: u64,
    xx: u64,
    yy: u64,
    xy: u64,
}

impl Sums {
    fn of(pairs: impl Iterator<Item = (u64, u64)>) -> Self {
        pairs.fold(Self::default(), |mut sums, (x, y)| {
            sums.x += x;
            sums.y += y;
            sums.xx += x * x;
            sums.yy += y * y;
            sums.xy += x * y;
            sums
        })
    }

    fn index(self, count: usize) -> f64 {
        let count = count as f64;
        let norm = count / (count - 1.0);
        let (ux, uy) = (self.x as f64 / count, self.y as f64 / count);
        let vx = norm * (self.xx as f64 / count - ux * ux);
        let vy = norm * (self.yy as f64 / count - uy * uy);
        let vxy = norm * (self.xy as f64 / count - ux * uy);
        (2.0 * ux * uy + C1) * (2.0 * vxy + C2) / ((ux * ux + uy * uy + C1) * (vx + vy + C2))
    }
}

/// The mean index over all windows that lie inside, from running sums by column.
fn plane_similarity(a: &[u8], b: &[u8], width: usize, height: usize) -> f64 {
    let mut columns = vec![Sums::default(); width];
    let add = |sums: &mut Sums, at: usize, sign: bool| {
        let (x, y) = (u64::from(a[at]), u64::from(b[at]));
        let change = |total: &mut u64, value: u64| if sign { *total += value } else { *total -= value };
        change(&mut sums.x, x);
        change(&mut sums.y, y);
        change(&mut sums.xx, x * x);
        change(&mut sums.yy, y * y);
        change(&mut sums.xy, x * y);
    };
    let mut total = 0.0;
    for row in 0..height {
        for (column, sums) in columns.iter_mut().enumerate() {
            add(sums, row * width + column, true);
            if row >= WINDOW {
                add(sums, (row - WINDOW) * width + column, false);
            }
        }
        if row + 1 < WINDOW {
            continue;
        }
        for window in columns.windows(WINDOW) {
            let sums = window.iter().fold(Sums::default(), |all, one| Sums {
                x: all.x + one.x,
                y: all.y + one.y,
                xx: all.xx + one.xx,
                yy: all.yy + one.yy,
                xy: all.xy + one.xy,
            });
            total += sums.index(WINDOW * WINDOW);
        }
    }
    total / ((width - WINDOW + 1) * (height - WINDOW + 1)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grey(width: usize, height: usize, value: impl Fn(usize) -> u8) -> PillowImage {
        let pixels = (0..width * height).map(value).collect();
        PillowImage { mode: Mode::L, is_palette: false, width, height, pixels }
    }

    #[test]
    fn indices_are_scikit_image_s() {
        // scikit-image: structural_similarity of these two, as planes and with channel_axis=-1.
        let a = grey(12, 10, |at| (at * 7 % 251) as u8);
        let b = grey(12, 10, |at| (at * 7 % 251 / 2 + at % 5) as u8);
        assert!((similarity(&a, &a).unwrap() - 1.0).abs() < 1e-12);
        assert!((similarity(&a, &b).unwrap() - SSIM_PLANE).abs() < 1e-9, "{}", similarity(&a, &b).unwrap());
        assert!((similarity_of_columns(&a, &b).unwrap() - SSIM_COLUMNS).abs() < 1e-9);
    }

    const SSIM_PLANE: f64 = 0.652_291_297_847_475_6;
    const SSIM_COLUMNS: f64 = 0.652_061_849_875_522_4;

    #[test]
    fn shapes_must_agree() {
        let a = grey(12, 10, |_| 1);
        assert!(similarity(&a, &grey(10, 12, |_| 1)).is_err());
        assert!(similarity(&grey(6, 6, |_| 1), &grey(6, 6, |_| 1)).is_err());
    }
}
