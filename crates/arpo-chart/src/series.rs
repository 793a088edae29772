//! Curves: points with optional intervals, from the lines of a run's metrics, smoothed, or averaged over seeds.

use serde_json::Value;
use std::collections::BTreeMap;

/// Half the width of a 95 % interval of a mean in standard errors (Student's t), by degrees of freedom; beyond the table
/// the normal limit is close enough.
const STUDENT_95: [f64; 15] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
];

/// The limit of Student's t for many values.
const NORMAL_95: f64 = 1.96;

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// An interval around `y`, low and high.
    pub band: Option<(f64, f64)>,
}

/// A curve.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Sorted by x.
    pub points: Vec<Point>,
}

impl Series {
    /// From lines of metrics: `x` and `y` are keys of numbers in them, with dots for nested objects
    /// (`evaluation.training.mean`). Lines without both are skipped.
    pub fn of_metrics(name: &str, lines: &[Value], x: &str, y: &str) -> Self {
        Self::with_band(name, lines, x, y, None)
    }

    /// As [`Series::of_metrics`], with the keys of an interval's bounds.
    pub fn of_metrics_with_band(
        name: &str,
        lines: &[Value],
        x: &str,
        y: &str,
        (low, high): (&str, &str),
    ) -> Self {
        Self::with_band(name, lines, x, y, Some((low, high)))
    }

    fn with_band(name: &str, lines: &[Value], x: &str, y: &str, band: Option<(&str, &str)>) -> Self {
        let point = |line: &Value| {
            let band = band.and_then(|(low, high)| Some((number(line, low)?, number(line, high)?)));
            Some(Point { x: number(line, x)?, y: number(line, y)?, band })
        };
        Self { name: name.to_owned(), points: lines.iter().filter_map(point).collect() }
    }

    /// A moving average over the last `window` points. Intervals are dropped: they do not apply to the mean.
    #[must_use]
    pub fn smoothed(&self, window: usize) -> Self {
        let mean_until = |end: usize| {
            let points = &self.points[(end + 1).saturating_sub(window.max(1))..=end];
            let y = points.iter().map(|point| point.y).sum::<f64>() / points.len() as f64;
            Point { x: self.points[end].x, y, band: None }
        };
        Self { name: self.name.clone(), points: (0..self.points.len()).map(mean_until).collect() }
    }

    /// The mean of several runs where all of them have a point, with its 95 % interval if there are at least two runs.
    pub fn mean_of(name: &str, runs: &[Self]) -> Self {
        let mut values: BTreeMap<u64, (f64, Vec<f64>)> = BTreeMap::new();
        for point in runs.iter().flat_map(|run| &run.points) {
            values.entry(ordered(point.x)).or_insert_with(|| (point.x, vec![])).1.push(point.y);
        }
        let all = values.into_values().filter(|(_, values)| values.len() == runs.len());
        let points = all.map(|(x, values)| {
            let (y, half) = mean_and_half_width(&values);
            Point { x, y, band: half.map(|half| (y - half, y + half)) }
        });
        Self { name: name.to_owned(), points: points.collect() }
    }
}

/// A mean and half the width of its 95 % interval.
fn mean_and_half_width(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let half = (values.len() > 1).then(|| {
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        STUDENT_95.get(values.len() - 2).unwrap_or(&NORMAL_95) * (variance / count).sqrt()
    });
    (mean, half)
}

/// A key that sorts as the number does.
fn ordered(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn number(line: &Value, path: &str) -> Option<f64> {
    path.split('.').try_fold(line, |value, key| value.get(key))?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn series(points: &[(f64, f64)]) -> Series {
        let point = |&(x, y): &(f64, f64)| Point { x, y, band: None };
        Series { name: "s".into(), points: points.iter().map(point).collect() }
    }

    #[test]
    fn lines_become_points() {
        let lines = [
            json!({"iteration": 1, "success": 0.5}),
            json!({"iteration": 2, "success": 0.6, "evaluation": {"mean": 0.7, "low": 0.6, "high": 0.8}}),
            json!({"iteration": 3, "success": null}),
        ];
        assert_eq!(
            Series::of_metrics("s", &lines, "iteration", "success"),
            series(&[(1.0, 0.5), (2.0, 0.6)])
        );
        let ends = ("evaluation.low", "evaluation.high");
        let banded = Series::of_metrics_with_band("s", &lines, "iteration", "evaluation.mean", ends);
        assert_eq!(banded.points, [Point { x: 2.0, y: 0.7, band: Some((0.6, 0.8)) }]);
    }

    #[test]
    fn smoothing_looks_back_only() {
        let smooth = series(&[(1.0, 0.0), (2.0, 1.0), (3.0, 2.0), (4.0, 6.0)]).smoothed(2);
        assert_eq!(smooth, series(&[(1.0, 0.0), (2.0, 0.5), (3.0, 1.5), (4.0, 4.0)]));
    }

    #[test]
    fn means_have_students_interval() {
        let runs = [series(&[(-1.0, 1.0), (2.0, 5.0)]), series(&[(-1.0, 2.0)]), series(&[(-1.0, 3.0)])];
        let mean = Series::mean_of("m", &runs);
        assert_eq!(mean.points.len(), 1, "only where all have a point");
        let (low, high) = mean.points[0].band.unwrap();
        // standard error 1 / sqrt(3)
        let half = 4.303 / 3f64.sqrt();
        assert!((mean.points[0].y - 2.0).abs() < 1e-12);
        assert!((low - (2.0 - half)).abs() < 1e-9 && (high - (2.0 + half)).abs() < 1e-9);
        assert_eq!(Series::mean_of("m", &runs[..1]).points[1].band, None);
    }
}
