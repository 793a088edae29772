//! Learning curves as images, drawn without system fonts or external programs.
//!
//! | to change | look in |
//! |---|---|
//! | curves from metrics, means over several seeds | [`series`] |
//! | the ticks of an axis | [`ticks`] |
//! | the drawing | `draw` |

mod draw;
pub mod series;
pub mod ticks;

pub use series::{Point, Series};

use image::RgbImage;
use image::codecs::png::PngEncoder;

/// A chart with one or several curves over the same axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// Label of the x axis.
    pub x_label: String,
    /// Label of the y axis.
    pub y_label: String,
    /// The range of the y axis; `None` to fit the curves.
    pub y_range: Option<(f64, f64)>,
    /// The curves; later ones are drawn on top.
    pub series: Vec<Series>,
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
}

impl Default for Chart {
    fn default() -> Self {
        Self {
            title: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            y_range: None,
            series: vec![],
            width: 800,
            height: 450,
        }
    }
}

impl Chart {
    /// Success over iterations, from 0 to 1.
    pub fn of_success(title: &str, series: Vec<Series>) -> Self {
        Self {
            title: title.to_owned(),
            x_label: "iteration".to_owned(),
            y_label: "success".to_owned(),
            y_range: Some((0.0, 1.0)),
            series,
            ..Self::default()
        }
    }

    /// Draws the chart.
    pub fn draw(&self) -> RgbImage {
        draw::draw(self)
    }

    /// The chart as PNG bytes.
    pub fn png(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.draw().write_with_encoder(PngEncoder::new(&mut bytes)).expect("writing to memory cannot fail");
        bytes
    }
}

/// The colour of the `number`-th curve, as RGB, from a colour-blind safe palette.
pub fn colour(number: usize) -> [u8; 3] {
    const COLOURS: [[u8; 3]; 7] = [
        [0, 114, 178],
        [213, 94, 0],
        [0, 158, 115],
        [204, 121, 167],
        [230, 159, 0],
        [86, 180, 233],
        [90, 90, 90],
    ];
    COLOURS[number % COLOURS.len()]
}
