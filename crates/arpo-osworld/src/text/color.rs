//! How different two colours look: CIEDE2000 over CIE L*a*b*, as scikit-image computes them.

/// A colour of six hexadecimal digits.
pub fn parse(digits: &str) -> Option<[u8; 3]> {
    let part = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (digits.len() == 6).then_some(())?;
    Some([part(0)?, part(2)?, part(4)?])
}

/// The difference of two colours; about 2 is just visible.
pub fn difference(one: [u8; 3], other: [u8; 3]) -> f64 {
    let ([l1, a1, b1], [l2, a2, b2]) = (lab(one), lab(other));
    let seventh = |value: f64| (value.powi(7) / (value.powi(7) + 25_f64.powi(7))).sqrt();
    let mean_chroma = f64::midpoint(a1.hypot(b1), a2.hypot(b2));
    let stretch = 1.0 + 0.5 * (1.0 - seventh(mean_chroma));
    let (a1, a2) = (a1 * stretch, a2 * stretch);
    let (c1, c2) = (a1.hypot(b1), a2.hypot(b2));
    let hue = |b: f64, a: f64| b.atan2(a).rem_euclid(std::f64::consts::TAU);
    let (h1, h2) = (hue(b1, a1), hue(b2, a2));
    let is_grey = c1 * c2 == 0.0;
    let mut turn = if is_grey { 0.0 } else { h2 - h1 };
    if turn > std::f64::consts::PI {
        turn -= std::f64::consts::TAU;
    } else if turn < -std::f64::consts::PI {
        turn += std::f64::consts::TAU;
    }
    let (delta_l, delta_c, delta_h) = (l2 - l1, c2 - c1, 2.0 * (c1 * c2).sqrt() * (turn / 2.0).sin());
    let mean_hue = match h1 + h2 {
        sum if is_grey => sum,
        sum if (h1 - h2).abs() <= std::f64::consts::PI => sum / 2.0,
        sum if sum < std::f64::consts::TAU => f64::midpoint(sum, std::f64::consts::TAU),
        sum => (sum - std::f64::consts::TAU) / 2.0,
    };
    let (mean_l, mean_c) = (f64::midpoint(l1, l2), f64::midpoint(c1, c2));
    let weight = 1.0 - 0.17 * (mean_hue - 30_f64.to_radians()).cos()
        + 0.24 * (2.0 * mean_hue).cos()
        + 0.32 * (3.0 * mean_hue + 6_f64.to_radians()).cos()
        - 0.20 * (4.0 * mean_hue - 63_f64.to_radians()).cos();
    let lightness = (mean_l - 50.0).powi(2);
    let s_l = 1.0 + 0.015 * lightness / (20.0 + lightness).sqrt();
    let (s_c, s_h) = (1.0 + 0.045 * mean_c, 1.0 + 0.015 * mean_c * weight);
    let angle = 60_f64.to_radians() * (-((mean_hue.to_degrees() - 275.0) / 25.0).powi(2)).exp();
    let rotation = -angle.sin() * 2.0 * seventh(mean_c);
    let (l, c, h) = (delta_l / s_l, delta_c / s_c, delta_h / s_h);
    (l * l + c * c + h * h + rotation * c * h).max(0.0).sqrt()
}

/// Under the light D65 for an observer of 2 degrees.
fn lab(color: [u8; 3]) -> [f64; 3] {
    let linear = color.map(|byte| {
        let value = f64::from(byte) / 255.0;
        if value > 0.04045 { ((value + 0.055) / 1.055).powf(2.4) } else { value / 12.92 }
    });
    let mix =
        |weights: [f64; 3]| linear.iter().zip(weights).map(|(value, weight)| value * weight).sum::<f64>();
    let xyz = [
        mix([0.412_453, 0.357_580, 0.180_423]) / 0.950_47,
        mix([0.212_671, 0.715_160, 0.072_169]),
        mix([0.019_334, 0.119_193, 0.950_227]) / 1.088_83,
    ];
    let [x, y, z] =
        xyz.map(|value| if value > 0.008_856 { value.cbrt() } else { 7.787 * value + 16.0 / 116.0 });
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_scikit_image_s() {
        // scikit-image 0.24.0: deltaE_ciede2000(rgb2lab(a), rgb2lab(b))
        for (a, b, wanted) in WANTED {
            let found = difference(a, b);
            assert!((found - wanted).abs() < 1e-4, "{a:?} {b:?}: {found}");
        }
        assert_eq!((parse("FF0010"), parse("FF00"), parse("GG0000")), (Some([255, 0, 16]), None, None));
    }

    const WANTED: [([u8; 3], [u8; 3], f64); 6] = [
        ([255, 0, 0], [255, 0, 0], 0.0),
        ([201, 33, 30], [255, 0, 0], 11.314_123),
        ([0, 0, 255], [255, 0, 0], 52.881_4),
        ([42, 96, 153], [0, 0, 255], 21.092_857),
        ([0, 0, 0], [0, 0, 255], 39.680_96),
        ([255, 0, 16], [255, 0, 0], 1.575_057),
    ];
}
