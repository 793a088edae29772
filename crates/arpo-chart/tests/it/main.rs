//! Charts show the right curves in the right positions.

use arpo_chart::{Chart, Point, Series, colour};
use image::{ImageFormat, RgbImage};

/// A straight line from 0.2 at 0 to 0.8 at 100, with an interval of 0.1 to each side.
fn rising(name: &str, banded: bool) -> Series {
    let point = |number: u32| {
        let y = 0.2 + 0.006 * f64::from(number);
        Point { x: f64::from(number), y, band: banded.then_some((y - 0.1, y + 0.1)) }
    };
    Series { name: name.into(), points: (0..=100).map(point).collect() }
}

fn level(name: &str, y: f64) -> Series {
    let point = |x: u32| Point { x: f64::from(x) * 10.0, y, band: None };
    Series { name: name.into(), points: (0..=10).map(point).collect() }
}

/// The rows of a column whose pixels have approximately this colour.
fn rows(image: &RgbImage, x: u32, wanted: [u8; 3]) -> Vec<u32> {
    let close = |y: &u32| {
        let pixel = image.get_pixel(x, *y).0;
        pixel.iter().zip(wanted).all(|(&one, other)| one.abs_diff(other) < 24)
    };
    (0..image.height()).filter(close).collect()
}

/// The area of the curves at the standard size.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 742.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 398.0;

fn column(x: f64) -> u32 {
    (LEFT + (RIGHT - LEFT) * x / 100.0) as u32
}

fn row(y: f64) -> f64 {
    BOTTOM - (BOTTOM - TOP) * y
}

#[test]
fn curves_are_drawn_at_their_values() {
    let chart = Chart::of_success("Success", vec![rising("rising", false), level("level", 0.1)]);
    let image = chart.draw();
    assert_eq!(image.dimensions(), (800, 450));
    for x in [10.0, 30.0, 55.0, 90.0] {
        for (number, y) in [(0, 0.2 + 0.006 * x), (1, 0.1)] {
            let found = rows(&image, column(x), colour(number));
            assert!(!found.is_empty(), "curve {number} at {x}");
            // the legend lies above the curves
            let found: Vec<f64> = found.into_iter().map(f64::from).filter(|&row| row > TOP).collect();
            assert!(
                found.iter().all(|found| (found - row(y)).abs() < 6.0),
                "curve {number} at {x}: {found:?}"
            );
        }
    }
}

#[test]
fn an_interval_is_a_pale_band() {
    let image = Chart::of_success("Success", vec![rising("rising", true)]).draw();
    let at = |x: f64, y: f64| image.get_pixel(column(x), row(y) as u32).0;
    let pale = |pixel: [u8; 3]| pixel[0] < 225 && pixel[2] > 230;
    let middle = 0.2 + 0.006 * 50.0;
    assert!(pale(at(50.0, middle + 0.06)), "{:?}", at(50.0, middle + 0.06));
    assert!(pale(at(50.0, middle - 0.06)), "{:?}", at(50.0, middle - 0.06));
    assert_eq!(at(50.0, middle + 0.16), [255; 3]);
}

/// Legend entries that do not fit in a row are listed in a column, within the image.
#[test]
fn many_long_names_fit() {
    let name = |number: usize| format!("a rather long name, number {number}");
    let series: Vec<Series> = (0..6).map(|number| level(&name(number), 0.5 + 0.05 * number as f64)).collect();
    let image = Chart::of_success("Success", series).draw();
    for number in 0..6 {
        // the legend's short lines lie below all curves
        let low = (0..image.width()).flat_map(|x| rows(&image, x, colour(number)));
        let low: Vec<u32> = low.filter(|&y| f64::from(y) > row(0.45)).collect();
        assert!(low.len() > 30, "curve {number}: {} pixels", low.len());
    }
}

#[test]
fn the_same_chart_is_the_same_file_and_it_decodes() {
    let chart = Chart::of_success("Success", vec![rising("one", true)]);
    let bytes = chart.png();
    assert_eq!(bytes, chart.png());
    let decoded = image::load_from_memory_with_format(&bytes, ImageFormat::Png).unwrap().into_rgb8();
    assert_eq!(decoded, chart.draw());
}

#[test]
fn non_finite_points_are_skipped() {
    let mut broken = level("broken", 0.5);
    broken.points[3].y = f64::NAN;
    broken.points[4].x = f64::INFINITY;
    let one = Series { name: "one point".into(), points: vec![Point { x: 5.0, y: 3.0, band: None }] };
    for series in [vec![], vec![Series::default()], vec![broken], vec![one]] {
        for y_range in [None, Some((0.0, 1.0))] {
            let chart = Chart { series: series.clone(), y_range, ..Chart::default() };
            assert_eq!(chart.draw().dimensions(), (800, 450));
        }
    }
}
