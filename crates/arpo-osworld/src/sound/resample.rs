//! Another rate for samples, with the filter that librosa's resampler has at its default quality.

use std::f64::consts::PI;

/// The part of the band that passes unchanged; above it the filter falls, to nothing at the end of the band.
const PASSED: f64 = 0.9136;
/// Zero crossings of the kernel on each side, and the parameter of its window (Kaiser's).
const CROSSINGS: f64 = 96.0;
const WINDOW: f64 = 13.5;
/// Positions between two samples for which a kernel is made. Rates that recorders use need at most 441; with others a
/// position is rounded.
const PHASES_LIMIT: u32 = 512;

/// The samples at another rate; librosa's number of them. Neither rate may be 0.
pub fn resampled(samples: &[f32], from_hz: u32, to_hz: u32) -> Vec<f32> {
    if from_hz == to_hz || samples.is_empty() {
        return samples.to_vec();
    }
    let phases = (to_hz / common_divisor(from_hz, to_hz)).min(PHASES_LIMIT);
    let step = f64::from(from_hz) / f64::from(to_hz);
    let kernels = Kernels::new(1.0_f64.min(1.0 / step), phases);
    let length = samples.len() as f64 / step;
    // as many as there is sound for, filled up with silence
    let mut out: Vec<f32> =
        (0..length.round() as usize).map(|index| kernels.applied(samples, index as f64 * step)).collect();
    out.resize(length.ceil() as usize, 0.0);
    out
}

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// A windowed sinc for each position between two samples.
struct Kernels {
    /// Samples on each side.
    reach: usize,
    /// One after the other, each of `2 * reach + 1` weights.
    weights: Vec<f64>,
    phases: u32,
}

impl Kernels {
    /// For the given part of the band of the samples.
    fn new(band: f64, phases: u32) -> Self {
        let cut = band * f64::midpoint(PASSED, 1.0);
        let reach = CROSSINGS / cut;
        let whole = reach.ceil() as usize;
        let weight = |offset: f64| {
            let angle = PI * offset * cut;
            let sinc = if angle.abs() < 1e-9 { 1.0 } else { angle.sin() / angle };
            let inside = (1.0 - (offset / reach).powi(2)).max(0.0);
            cut * sinc * bessel(WINDOW * inside.sqrt()) / bessel(WINDOW)
        };
        let of_phase = |phase: u32| {
            let shift = whole as f64 + f64::from(phase) / f64::from(phases);
            (0..=2 * whole).map(move |at| at as f64 - shift)
        };
        let weights = (0..phases).flat_map(of_phase).map(weight).collect();
        Self { reach: whole, weights, phases }
    }

    /// The value at a position, in samples; silence beyond the ends.
    fn applied(&self, samples: &[f32], position: f64) -> f32 {
        let in_phases = (position * f64::from(self.phases)).round() as usize;
        let (centre, phase) = (in_phases / self.phases as usize, in_phases % self.phases as usize);
        let size = 2 * self.reach + 1;
        let kernel = &self.weights[phase * size..(phase + 1) * size];
        // the kernel's first weights lie before the first sample
        let skipped = self.reach.saturating_sub(centre);
        let first = (centre + skipped).saturating_sub(self.reach).min(samples.len());
        let pairs = samples[first..].iter().zip(&kernel[skipped..]);
        pairs.map(|(sample, weight)| f64::from(*sample) * weight).sum::<f64>() as f32
    }
}

/// The modified Bessel function of the first kind, of order 0, for the small arguments of a window.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for n in 1..60 {
        term *= (x / (2.0 * f64::from(n))).powi(2);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hz: f64, rate: f64, count: usize) -> Vec<f32> {
        (0..count).map(|at| (2.0 * PI * hz * at as f64 / rate).sin() as f32).collect()
    }

    #[test]
    fn a_tone_stays_a_tone() {
        for (from, count) in [(44_100, 8820), (48_000, 9600), (8000, 1600), (44_056, 8811)] {
            let found = resampled(&tone(440.0, f64::from(from), count), from, 22_050);
            let wanted = tone(440.0, 22_050.0, 4410);
            assert_eq!(found.len(), wanted.len());
            let inner = found.iter().zip(&wanted).skip(600).take(3200);
            let worst = inner.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            // a rounded position is off by a thousandth of a sample
            assert!(worst < if from == 44_056 { 1e-3 } else { 1e-5 }, "{from}: {worst}");
        }
    }

    #[test]
    fn what_the_new_rate_cannot_hold_is_gone() {
        let high = resampled(&tone(12_000.0, 44_100.0, 8820), 44_100, 22_050);
        let loudest = high[600..3800].iter().fold(0.0_f32, |a, b| a.max(b.abs()));
        assert!(loudest < 1e-5, "{loudest}");
    }

    #[test]
    fn values_are_soxr_s() {
        // soxr.resample of samples 0.0, 0.1, ..., 1.9 from 8000 to 22050, quality "soxr_hq": values 20 to 22.
        let ramp: Vec<f32> = (0..20_u8).map(|at| f32::from(at) / 10.0).collect();
        let found = resampled(&ramp, 8000, 22_050);
        assert_eq!(found.len(), 56);
        for (found, wanted) in found[20..].iter().zip(SOXR) {
            assert!((found - wanted).abs() < 1e-4, "{found} {wanted}");
        }
    }

    const SOXR: [f32; 3] = [0.711_012, 0.772_328, 0.823_775];

    #[test]
    fn few_samples_are_no_trouble() {
        assert!(resampled(&[], 8000, 22_050).is_empty());
        assert_eq!(resampled(&[0.5], 44_100, 22_050).len(), 1);
        assert_eq!(resampled(&[0.5], 96_000, 22_050).len(), 1);
    }
}
