//! The ticks of an axis: a few round numbers, with as few decimals as needed.

/// The ticks of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Ticks {
    /// In order.
    pub values: Vec<f64>,
    /// Decimals of the labels.
    decimals: usize,
}

/// About `wanted` round numbers from `low` to `high`; only integers if `whole`.
pub fn ticks(low: f64, high: f64, wanted: usize, whole: bool) -> Ticks {
    let rough = (high - low).max(f64::MIN_POSITIVE) / wanted.max(1) as f64;
    let size = 10f64.powf(magnitude(rough));
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|factor| factor * size).into_iter().find(|&step| step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * size);
    let step = if whole { step.max(1.0) } else { step };
    let decimals = (-magnitude(step)).max(0.0) as usize;
    // a small margin, so that rounding drops neither end
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    // more than can be drawn only happens with non-finite input
    let values = (first..=last).take(1000).map(|number| number as f64 * step).collect();
    Ticks { values, decimals }
}

/// The exponent of the power of ten at or below a number, up to rounding.
fn magnitude(number: f64) -> f64 {
    (number.log10() + 1e-9).floor()
}

impl Ticks {
    /// The label of a value on this axis.
    pub fn label(&self, value: f64) -> String {
        // avoids "-0"
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
