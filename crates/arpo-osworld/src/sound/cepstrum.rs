//! Mel-frequency cepstral coefficients as librosa computes them with its defaults, scaled by coefficient.

use super::decode::RATE_HZ;
use rustfft::FftPlanner;
use rustfft::num_complex::Complex;
use std::f64::consts::PI;

const WINDOW: usize = 2048;
const HOP: usize = 512;
const BANDS: usize = 128;
const COEFFICIENTS: usize = 20;
/// Powers are clamped to this minimum, and decibels to this range below the loudest.
const LEAST_POWER: f64 = 1e-10;
const RANGE_DB: f64 = 80.0;

/// One frame's coefficients.
pub type Frame = [f64; COEFFICIENTS];

/// The frames, each coefficient divided by its largest size over time.
pub fn normalised_frames(samples: &[f32]) -> Vec<Frame> {
    let mut frames = coefficients(samples);
    for at in 0..COEFFICIENTS {
        let largest = frames.iter().map(|frame| frame[at].abs()).fold(0.0, f64::max);
        if largest > f64::MIN_POSITIVE {
            for frame in &mut frames {
                frame[at] /= largest;
            }
        }
    }
    frames
}

fn coefficients(samples: &[f32]) -> Vec<Frame> {
    let bands = mel_bands();
    let mut levels: Vec<Vec<f64>> = power_spectra(samples)
        .iter()
        .map(|spectrum| {
            let power = |band: &Vec<(usize, f64)>| {
                band.iter().map(|(bin, weight)| spectrum[*bin] * weight).sum::<f64>()
            };
            bands.iter().map(|band| 10.0 * power(band).max(LEAST_POWER).log10()).collect()
        })
        .collect();
    let loudest = levels.iter().flatten().copied().fold(f64::MIN, f64::max);
    levels.iter_mut().flatten().for_each(|level| *level = level.max(loudest - RANGE_DB));
    levels.iter().map(|frame| cosine_transform(frame)).collect()
}

/// Squared magnitudes of windows around every hop, zeros beyond the ends: at least one window.
fn power_spectra(samples: &[f32]) -> Vec<Vec<f64>> {
    let transform = FftPlanner::<f64>::new().plan_fft_forward(WINDOW);
    let hann: Vec<f64> =
        (0..WINDOW).map(|at| 0.5 - 0.5 * (2.0 * PI * at as f64 / WINDOW as f64).cos()).collect();
    let sample = |index: isize| {
        usize::try_from(index).ok().and_then(|index| samples.get(index)).map_or(0.0, |one| f64::from(*one))
    };
    let frame = |number: usize| {
        let start = (number * HOP) as isize - (WINDOW / 2) as isize;
        let mut buffer: Vec<Complex<f64>> = hann
            .iter()
            .enumerate()
            .map(|(at, weight)| Complex::new(sample(start + at as isize) * weight, 0.0))
            .collect();
        transform.process(&mut buffer);
        buffer[..=WINDOW / 2].iter().map(Complex::norm_sqr).collect()
    };
    (0..=samples.len() / HOP).map(frame).collect()
}

/// Slaney's mel scale: linear to 1 kHz, logarithmic above.
fn mel_to_hz(mel: f64) -> f64 {
    const LINEAR_HZ: f64 = 200.0 / 3.0;
    const BREAK_MEL: f64 = 1000.0 / LINEAR_HZ;
    if mel < BREAK_MEL { LINEAR_HZ * mel } else { 1000.0 * ((6.4_f64.ln() / 27.0) * (mel - BREAK_MEL)).exp() }
}

fn hz_to_mel(hz: f64) -> f64 {
    const LINEAR_HZ: f64 = 200.0 / 3.0;
    if hz < 1000.0 { hz / LINEAR_HZ } else { 1000.0 / LINEAR_HZ + (hz / 1000.0).ln() / (6.4_f64.ln() / 27.0) }
}

/// Triangles of equal area over the bins, each as bins with weights.
fn mel_bands() -> Vec<Vec<(usize, f64)>> {
    let top = hz_to_mel(f64::from(RATE_HZ) / 2.0);
    let edges: Vec<f64> = (0..BANDS + 2).map(|at| mel_to_hz(top * at as f64 / (BANDS + 1) as f64)).collect();
    let bin_hz = f64::from(RATE_HZ) / WINDOW as f64;
    let band = |edge: &[f64]| {
        let area = 2.0 / (edge[2] - edge[0]);
        let weight = |bin: usize| {
            let hz = bin as f64 * bin_hz;
            let rising = (hz - edge[0]) / (edge[1] - edge[0]);
            let falling = (edge[2] - hz) / (edge[2] - edge[1]);
            rising.min(falling).max(0.0) * area
        };
        (0..=WINDOW / 2).map(|bin| (bin, weight(bin))).filter(|(_, weight)| *weight > 0.0).collect()
    };
    edges.windows(3).map(band).collect()
}

/// The first coefficients of the orthonormal cosine transform.
fn cosine_transform(levels: &[f64]) -> Frame {
    let count = levels.len() as f64;
    std::array::from_fn(|at| {
        let scale = if at == 0 { (1.0 / count).sqrt() } else { (2.0 / count).sqrt() };
        let term =
            |(index, level): (usize, &f64)| level * (PI * (index as f64 + 0.5) * at as f64 / count).cos();
        scale * levels.iter().enumerate().map(term).sum::<f64>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_are_librosa_s() {
        // librosa: mfcc(y=0.5*sin(2*pi*440*t), sr=22050) of 4096 samples, frame 4, coefficients 0 to 3.
        let samples: Vec<f32> =
            (0..4096).map(|at| (0.5 * (2.0 * PI * 440.0 * f64::from(at) / 22_050.0).sin()) as f32).collect();
        let frames = coefficients(&samples);
        assert_eq!(frames.len(), 9);
        for (found, wanted) in frames[4].iter().zip(LIBROSA) {
            assert!((found - wanted).abs() < 0.02, "{found} {wanted}");
        }
    }

    const LIBROSA: [f64; 4] = [-482.027_92, 37.882_77, 28.293_28, 14.139_72];
}
