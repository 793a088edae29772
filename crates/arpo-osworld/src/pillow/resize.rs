//! Resizing as Pillow does it, to the byte: two passes of fixed-point convolution, colours weighted by alpha.

use super::{Mode, PillowImage};
use std::f64::consts::PI;

/// Bits of the fixed-point weights.
const PRECISION: u32 = 22;

/// A kernel and its support.
struct Kernel {
    reach: f64,
    weight: fn(f64) -> f64,
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

fn lanczos(x: f64) -> f64 {
    if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 }
}

fn bicubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    match x.abs() {
        x if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
        x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
        _ => 0.0,
    }
}

impl PillowImage {
    /// Resized by Lanczos.
    #[must_use]
    pub fn lanczos(&self, width: usize, height: usize) -> Self {
        self.resized(width, height, &Kernel { reach: 3.0, weight: lanczos })
    }

    /// Resized by bicubic interpolation, Pillow's default.
    #[must_use]
    pub fn bicubic(&self, width: usize, height: usize) -> Self {
        self.resized(width, height, &Kernel { reach: 2.0, weight: bicubic })
    }

    fn resized(&self, width: usize, height: usize, kernel: &Kernel) -> Self {
        if (self.width, self.height) == (width, height) {
            return self.clone();
        }
        if matches!(self.mode, Mode::La | Mode::Rgba) {
            return self
                .clone()
                .weighted_by_alpha(true)
                .passes(width, height, kernel)
                .weighted_by_alpha(false);
        }
        self.passes(width, height, kernel)
    }

    /// Horizontal, then vertical; a side of unchanged length is skipped.
    fn passes(&self, width: usize, height: usize, kernel: &Kernel) -> Self {
        let channels = self.mode.channels();
        let mut out = self.clone();
        if width != self.width {
            let weights = weights(self.width, width, kernel);
            let rows = out.pixels.chunks_exact(out.width * channels);
            out.pixels = rows.flat_map(|row| line(row, channels, &weights)).collect();
            out.width = width;
        }
        if height != self.height {
            let weights = weights(self.height, height, kernel);
            let step = width * channels;
            let mut pixels = vec![0; step * height];
            for (row, (first, parts)) in weights.iter().enumerate() {
                for at in 0..step {
                    let sum = parts
                        .iter()
                        .enumerate()
                        .map(|(tap, part)| i64::from(out.pixels[(first + tap) * step + at]) * part)
                        .sum();
                    pixels[row * step + at] = rounded(sum);
                }
            }
            out.pixels = pixels;
            out.height = height;
        }
        out
    }

    /// Colours times alpha, or divided by it.
    fn weighted_by_alpha(mut self, multiply: bool) -> Self {
        let channels = self.mode.channels();
        for pixel in self.pixels.chunks_exact_mut(channels) {
            let alpha = u32::from(pixel[channels - 1]);
            for color in &mut pixel[..channels - 1] {
                let value = u32::from(*color);
                *color = if multiply {
                    let product = value * alpha + 128;
                    (((product >> 8) + product) >> 8) as u8
                } else if alpha == 0 || alpha == 255 {
                    *color
                } else {
                    (255 * value / alpha).min(255) as u8
                };
            }
        }
        self
    }
}

/// For each output pixel, the first input pixel and the weights of its inputs.
fn weights(from: usize, to: usize, kernel: &Kernel) -> Vec<(usize, Vec<i64>)> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let reach = kernel.reach * stretch;
    let weights_at = |at: usize| {
        let centre = (at as f64 + 0.5) * scale;
        let first = (centre - reach + 0.5).max(0.0) as usize;
        let last = ((centre + reach + 0.5) as usize).min(from);
        let raw: Vec<f64> =
            (first..last).map(|input| (kernel.weight)((input as f64 - centre + 0.5) / stretch)).collect();
        let total: f64 = raw.iter().sum();
        let fixed = |weight: &f64| {
            let scaled = weight / total * f64::from(1_u32 << PRECISION);
            (if scaled < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i64
        };
        (first, raw.iter().map(fixed).collect())
    };
    (0..to).map(weights_at).collect()
}

fn line(row: &[u8], channels: usize, weights: &[(usize, Vec<i64>)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(weights.len() * channels);
    for (first, parts) in weights {
        for channel in 0..channels {
            let sum = parts
                .iter()
                .enumerate()
                .map(|(tap, part)| i64::from(row[(first + tap) * channels + channel]) * part)
                .sum();
            out.push(rounded(sum));
        }
    }
    out
}

fn rounded(sum: i64) -> u8 {
    ((sum + (1 << (PRECISION - 1))) >> PRECISION).clamp(0, 255) as u8
}
