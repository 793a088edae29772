//! Which numbers stand at an axis: round ones, a handful, written with as few digits as tell them apart.

/// The numbers of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Ticks {
    /// In order.
    pub values: Vec<f64>,
    /// Digits behind the point that they need.
    decimals: usize,
}

/// Round numbers from `low` to `high`, about `wanted` of them; whole ones only if `whole` says so.
pub fn ticks(low: f64, high: f64, wanted: usize, whole: bool) -> Ticks {
    let rough = (high - low).max(f64::MIN_POSITIVE) / wanted.max(1) as f64;
    let size = 10f64.powf(magnitude(rough));
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|factor| factor * size).into_iter().find(|&step| step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * size);
    let step = if whole { step.max(1.0) } else { step };
    let decimals = (-magnitude(step)).max(0.0) as usize;
    // a hair of room, so that rounding loses no end
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    // more than can be drawn only comes of numbers that are none
    let values = (first..=last).take(1000).map(|number| number as f64 * step).collect();
    Ticks { values, decimals }
}

/// The power of ten at or below a number, give or take rounding.
fn magnitude(number: f64) -> f64 {
    (number.log10() + 1e-9).floor()
}

impl Ticks {
    /// How a number of this axis is written.
    pub fn label(&self, value: f64) -> String {
        // no minus in front of a 0
        format!("{:.*}", self.decimals, value + 0.0)
    }

    /// All labels, in order.
    pub fn labels(&self) -> Vec<String> {
        self.values.iter().map(|&value| self.label(value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_round_and_few() {
        let labels = |low, high, wanted, whole| ticks(low, high, wanted, whole).labels().join(" ");
        assert_eq!(labels(0.0, 1.0, 5, false), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(labels(0.0, 100.0, 8, true), "0 20 40 60 80 100");
        assert_eq!(labels(0.0, 3.0, 8, true), "0 1 2 3");
        assert_eq!(labels(0.42, 0.57, 5, false), "0.45 0.50 0.55");
        assert_eq!(labels(-2.0, 2.0, 4, false), "-2 -1 0 1 2");
        assert_eq!(labels(0.0, 30_000.0, 5, true), "0 10000 20000 30000");
        assert_eq!(labels(0.0, 0.003, 3, false), "0.000 0.001 0.002 0.003");
    }
}
