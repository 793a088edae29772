//! Draws a chart of made-up runs to the file that is named: a look at what charts look like.

use arpo_chart::{Chart, Point, Series};
use std::io;

fn main() -> io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "learning_curve.png".to_owned());
    let curve = |name: &str, end: f64, pace: f64, phase: f64| {
        let point = |number: u32| {
            let x = f64::from(number * 5);
            let y = 0.45 + (end - 0.45) * (1.0 - (-x / pace).exp()) + 0.02 * (x * 0.9 + phase).sin();
            Point { x, y, band: Some((y - 0.05, y + 0.05)) }
        };
        Series { name: name.to_owned(), points: (0..=20).map(point).collect() }
    };
    let curves = vec![
        curve("ARPO", 0.90, 25.0, 0.0),
        curve("GRPO", 0.80, 35.0, 1.0),
        curve("GRPO, held-out tasks", 0.79, 60.0, 2.0),
    ];
    std::fs::write(path, Chart::of_success("Success on the pocket suite, 64 tasks", curves).png())
}
