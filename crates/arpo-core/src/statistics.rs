//! Statistics of repeated rollouts: success rates with confidence intervals, and pass@k.

use serde::{Deserialize, Serialize};

/// The 97.5 % quantile of the normal distribution: 95 % lie within this many standard deviations.
const Z: f64 = 1.959_964;

/// A mean score with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Success {
    /// Rollouts.
    pub rollouts: usize,
    /// Their mean score.
    pub mean: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// The mean of scores in [0, 1] with Wilson's interval, which is conservative for scores strictly between 0 and 1.
pub fn success(scores: &[f64]) -> Success {
    let count = scores.len() as f64;
    if scores.is_empty() {
        return Success { rollouts: 0, mean: 0.0, low: 0.0, high: 1.0 };
    }
    let mean = scores.iter().sum::<f64>() / count;
    let widened = Z * Z / count;
    let centre = (mean + widened / 2.0) / (1.0 + widened);
    let half = (Z / (1.0 + widened)) * (mean * (1.0 - mean) / count + widened / (4.0 * count)).sqrt();
    Success {
        rollouts: scores.len(),
        mean,
        low: (centre - half).clamp(0.0, mean),
        high: (centre + half).clamp(mean, 1.0),
    }
}

/// pass@k: the unbiased estimate, from `successes` among `rollouts`, of the probability that at least one of `k` rollouts
/// succeeds; `None` if there were fewer than `k`.
pub fn pass_at(k: usize, successes: usize, rollouts: usize) -> Option<f64> {
    if k > rollouts {
        return None;
    }
    // 1 - C(failures, k) / C(rollouts, k)
    let failures = rollouts - successes.min(rollouts);
    let none: f64 =
        (0..k).map(|tried| failures.saturating_sub(tried) as f64 / (rollouts - tried) as f64).product();
    Some(1.0 - none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_by_hand() {
        // Wilson's interval for 8 of 10 is 0.490 to 0.943
        let scores = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0];
        let Success { rollouts, mean, low, high } = success(&scores);
        assert_eq!(rollouts, 10);
        assert!((mean - 0.8).abs() < 1e-12 && (low - 0.4902).abs() < 1e-3 && (high - 0.9433).abs() < 1e-3);
        let never = success(&[0.0; 20]);
        assert!(never.low.abs() < 1e-12 && (0.1..0.2).contains(&never.high));
        assert_eq!(success(&[]).rollouts, 0);
    }

    #[test]
    fn passing_by_hand() {
        let close = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 1e-12;
        assert!(close(pass_at(1, 3, 4), 0.75));
        // of the 6 pairs among 4 rollouts with one success, 3 hold it
        assert!(close(pass_at(2, 1, 4), 0.5));
        assert!(close(pass_at(4, 1, 4), 1.0) && close(pass_at(4, 0, 4), 0.0));
        assert_eq!(pass_at(5, 1, 4), None);
    }
}
