//! `arpo bench preprocess`: image preprocessing on one core: from a screenshot to the patches that are uploaded to a GPU,
//! and to the normalised tensor for a vision tower on the CPU.

use super::{ModelName, write_json};
use crate::Failure;
use arpo_image::{ImageError, ImageProcessor, decode_png};
use arpo_model::vision::pixels_of;
use clap::Args;
use image::{ImageFormat, RgbImage};
use serde::Serialize;
use std::io::{Cursor, Write};
use std::time::Instant;
use tch::Device;

/// The arguments of `arpo bench preprocess`.
#[derive(Args)]
pub(crate) struct PreprocessArguments {
    /// Width and height of the screenshot
    #[arg(long, num_args = 2, default_values_t = [1920, 1080])]
    size: Vec<u32>,
    /// Measured screenshots, after one warm-up
    #[arg(long, default_value_t = 20)]
    times: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Milliseconds on one core, medians.
#[derive(Serialize)]
struct Report {
    width: u32,
    height: u32,
    patches: usize,
    decode_png_ms: f64,
    /// RGB to patches of bytes, which are uploaded to a GPU.
    to_patches_ms: f64,
    /// RGB to a normalised tensor on the CPU.
    to_numbers_ms: f64,
}

pub(crate) fn run(arguments: &PreprocessArguments, out: &mut impl Write) -> Result<(), Failure> {
    // everything runs on one thread
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().map_err(Failure::failed)?;
    tch::set_num_threads(1);
    let (width, height) = (arguments.size[0], arguments.size[1]);
    let screenshot = screen_like(width, height, 0);
    let mut png = Vec::new();
    screenshot.write_to(&mut Cursor::new(&mut png), ImageFormat::Png).map_err(Failure::failed)?;
    let processor = ImageProcessor::published();
    let patches = processor.grid(width, height).map_err(Failure::failed)?.patches();
    let to_tensor = || pixels_of(&processor, &[&screenshot], Device::Cpu);
    let report = Report {
        width,
        height,
        patches,
        decode_png_ms: median_ms(arguments.times, || decode_png(&png))?,
        to_patches_ms: median_ms(arguments.times, || processor.process(&screenshot))?,
        to_numbers_ms: median_ms(arguments.times, to_tensor)?,
    };
    if arguments.json {
        return write_json(&report, out);
    }
    writeln!(out, "{width} x {height} to {patches} patches, one core")?;
    writeln!(out, "  PNG to RGB               {:8.2} ms", report.decode_png_ms)?;
    writeln!(out, "  RGB to patches, for GPU  {:8.2} ms", report.to_patches_ms)?;
    writeln!(out, "  RGB to tensor, for CPU   {:8.2} ms", report.to_numbers_ms)?;
    Ok(())
}

/// An image with typical features of screens: areas of one colour, edges, gradients.
pub(super) fn screen_like(width: u32, height: u32, number: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let window = (x / 97 + y / 61 + number) % 7;
        let text = u8::from((x * 7 + y * 13 + number).is_multiple_of(11) && y % 19 < 9) * 90;
        let shade = (x * 255 / width) as u8;
        image::Rgb([(window * 30) as u8 ^ text, shade / 2 + text, ((y / 3 + number) % 200) as u8])
    })
}

fn median_ms<T>(times: usize, work: impl Fn() -> Result<T, ImageError>) -> Result<f64, Failure> {
    let one = |_| {
        let started = Instant::now();
        std::hint::black_box(work())?;
        Ok(started.elapsed().as_secs_f64() * 1000.0)
    };
    // the first is a warm-up
    let all: Result<Vec<f64>, ImageError> = (0..=times.max(1)).map(one).collect();
    let mut all = all.map_err(Failure::failed)?.split_off(1);
    all.sort_by(f64::total_cmp);
    Ok(all[all.len() / 2])
}

impl ModelName {
    /// A screenshot of the size that its agents see.
    pub(super) fn screenshot(self, number: u32) -> RgbImage {
        let (width, height) = self.screen();
        screen_like(width, height, number)
    }
}
