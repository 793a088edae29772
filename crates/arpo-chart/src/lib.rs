//! Learning curves as pictures, drawn by the program itself: no fonts, no programs of the system are needed.
//!
//! | to change | look in |
//! |---|---|
//! | what a curve is, how it comes from metrics and from several seeds | [`series`] |
//! | which numbers stand at an axis | [`ticks`] |
//! | how it looks | `draw` |

mod draw;
pub mod series;
pub mod ticks;

pub use series::{Point, Series};

use image::RgbImage;
use image::codecs::png::PngEncoder;

/// A chart with one or several curves over the same axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// What lies along the x axis.
    pub x_label: String,
    /// What lies along the y axis.
    pub y_label: String,
    /// Where the y axis begins and ends; `None` for what the curves need.
    pub y_range: Option<(f64, f64)>,
    /// The curves; later ones lie on top.
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

    /// The picture.
    pub fn draw(&self) -> RgbImage {
        draw::draw(self)
    }

    /// The picture as a PNG file's bytes.
    pub fn png(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.draw().write_with_encoder(PngEncoder::new(&mut bytes)).expect("memory can be written to");
        bytes
    }
}

/// The colour of the `number`-th curve, as RGB: told apart by people who see few colours too.
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
