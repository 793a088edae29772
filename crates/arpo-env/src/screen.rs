//! What is on the screen: pixels, or the PNG they came in.
//!
//! A desktop in this process hands over its pixels. A guest or another machine delivers a PNG, which is kept: it is decoded
//! once, when the pixels are first needed, and whoever stores or sends the screen takes the bytes as they are.

use crate::environment::EnvironmentError;
use image::codecs::png::{CompressionType, FilterType, PngDecoder, PngEncoder};
use image::{ColorType, DynamicImage, ImageDecoder, RgbImage};
use std::fmt;
use std::io::Cursor;
use std::sync::{Arc, OnceLock};

/// More pixels than any real screen has: a PNG of a few kilobytes may claim billions, which would fill the memory.
const MOST_PIXELS: u64 = 1 << 26;

/// What is on the screen. Clones share it, so that keeping a history copies nothing.
#[derive(Clone)]
pub struct Screen(Form);

#[derive(Clone)]
enum Form {
    Pixels(Arc<RgbImage>),
    Png(Arc<Png>),
}

struct Png {
    bytes: Arc<[u8]>,
    size: (u32, u32),
    /// Decoding the bytes gives these pixels and nothing else, such as an alpha channel.
    exact: bool,
    pixels: OnceLock<Result<Arc<RgbImage>, String>>,
}

impl Screen {
    /// A screen of these pixels.
    pub fn new(pixels: impl Into<Arc<RgbImage>>) -> Self {
        Self(Form::Pixels(pixels.into()))
    }

    /// A screen that came as a PNG. Only its header is read: the rest is checked when the pixels are needed.
    pub fn from_png(bytes: impl Into<Arc<[u8]>>) -> Result<Self, EnvironmentError> {
        let bytes = bytes.into();
        let decoder = PngDecoder::new(Cursor::new(&bytes[..])).map_err(|error| not_a_png(&error))?;
        let size = decoder.dimensions();
        if u64::from(size.0) * u64::from(size.1) > MOST_PIXELS {
            return Err(not_a_png(&format!("{}x{} pixels: expected those of a screen", size.0, size.1)));
        }
        let exact = decoder.original_color_type() == ColorType::Rgb8.into();
        Ok(Self(Form::Png(Arc::new(Png { bytes, size, exact, pixels: OnceLock::new() }))))
    }

    /// Width and height.
    pub fn size(&self) -> (u32, u32) {
        match &self.0 {
            Form::Pixels(pixels) => pixels.dimensions(),
            Form::Png(png) => png.size,
        }
    }

    /// Its pixels, decoded at the first call; an error if the PNG is damaged.
    pub fn image(&self) -> Result<Arc<RgbImage>, EnvironmentError> {
        match &self.0 {
            Form::Pixels(pixels) => Ok(Arc::clone(pixels)),
            Form::Png(png) => {
                let decode = || {
                    let decoder = PngDecoder::new(Cursor::new(&png.bytes[..]));
                    let decoded = decoder.and_then(DynamicImage::from_decoder);
                    decoded.map(|image| Arc::new(image.into_rgb8())).map_err(|error| error.to_string())
                };
                png.pixels.get_or_init(decode).clone().map_err(|error| not_a_png(&error))
            }
        }
    }

    /// The PNG it came in, as it was delivered.
    pub fn delivered(&self) -> Option<&Arc<[u8]>> {
        match &self.0 {
            Form::Png(png) => Some(&png.bytes),
            Form::Pixels(_) => None,
        }
    }

    /// The PNG it came in, if it came in one that holds exactly its pixels.
    pub fn png(&self) -> Option<&Arc<[u8]>> {
        match &self.0 {
            Form::Png(png) if png.exact => Some(&png.bytes),
            Form::Png(_) | Form::Pixels(_) => None,
        }
    }

    /// As a PNG: the one it came in, or an encoded one.
    pub fn to_png(&self) -> Result<Arc<[u8]>, EnvironmentError> {
        match self.png() {
            Some(bytes) => Ok(Arc::clone(bytes)),
            None => encode_png(&*self.image()?).map(Into::into),
        }
    }

    /// True if both are the same screen in memory; cheap, and false for equal pixels elsewhere.
    pub fn is(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Pixels(one), Form::Pixels(other)) => Arc::ptr_eq(one, other),
            (Form::Png(one), Form::Png(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Pixels as a PNG, compressed lightly: a 1080p screen takes about 30 ms, and a better compression several times that.
pub fn encode_png(pixels: &RgbImage) -> Result<Vec<u8>, EnvironmentError> {
    let mut png = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut png, CompressionType::Fast, FilterType::Adaptive);
    pixels.write_with_encoder(encoder).map_err(|error| EnvironmentError::Broken {
        reason: format!("the screenshot cannot be encoded: {error}"),
    })?;
    Ok(png)
}

fn not_a_png(error: &dyn fmt::Display) -> EnvironmentError {
    EnvironmentError::Broken { reason: format!("the screenshot is not a valid PNG: {error}") }
}

/// Equal if their pixels are, in whatever form; a damaged screen equals none.
impl PartialEq for Screen {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || matches!((self.image(), other.image()), (Ok(one), Ok(other)) if one == other)
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match &self.0 {
            Form::Pixels(_) => "pixels",
            Form::Png(_) => "PNG",
        };
        let (width, height) = self.size();
        write!(f, "Screen({form}, {width}x{height})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels() -> RgbImage {
        RgbImage::from_fn(40, 30, |x, y| image::Rgb([x as u8, y as u8, (x * y) as u8]))
    }

    #[test]
    fn a_png_keeps_its_bytes_and_is_decoded_once() {
        let bytes = encode_png(&pixels()).unwrap();
        let screen = Screen::from_png(bytes.clone()).unwrap();
        assert_eq!((screen.size(), &screen.png().unwrap()[..]), ((40, 30), &bytes[..]));
        assert_eq!(&screen.to_png().unwrap()[..], &bytes[..]);
        let image = screen.image().unwrap();
        assert_eq!(*image, pixels());
        assert!(Arc::ptr_eq(&image, &screen.clone().image().unwrap()));
        assert_eq!(screen, Screen::new(pixels()));
        assert!(!screen.is(&Screen::from_png(bytes.clone()).unwrap()) && screen.is(&screen.clone()));
        assert_eq!(&Screen::new(pixels()).to_png().unwrap()[..], &bytes[..]);
    }

    /// One with an alpha channel is decoded to other pixels than a viewer of the file shows.
    #[test]
    fn only_an_exact_png_is_used_again() {
        let mut bytes = vec![];
        let clear = DynamicImage::from(pixels()).into_rgba8();
        clear.write_to(&mut Cursor::new(&mut bytes), image::ImageFormat::Png).unwrap();
        let screen = Screen::from_png(bytes).unwrap();
        assert!(screen.png().is_none() && screen.delivered().is_some());
        assert_eq!(*screen.image().unwrap(), pixels());
        assert_eq!(&screen.to_png().unwrap()[..], encode_png(&pixels()).unwrap());
    }

    #[test]
    fn a_damaged_png_is_an_error_of_one_line() {
        let bytes = encode_png(&pixels()).unwrap();
        for cut in [0, 7, 20] {
            let error = Screen::from_png(&bytes[..cut]).unwrap_err().to_string();
            assert!(error.contains("not a valid PNG"), "{error}");
        }
        let cut = Screen::from_png(&bytes[..bytes.len() - 30]).unwrap();
        assert!(cut.image().unwrap_err().to_string().contains("not a valid PNG"));
        assert_ne!(cut, cut.clone().image().map_or_else(|_| Screen::new(pixels()), Screen::new));
    }

    /// A header that claims 65536 x 65536 pixels.
    #[test]
    fn a_png_of_billions_of_pixels_is_refused() {
        let mut bytes = encode_png(&RgbImage::new(1, 1)).unwrap();
        bytes[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
        let checksum = crc(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&checksum.to_be_bytes());
        let error = Screen::from_png(bytes).unwrap_err().to_string();
        assert!(error.contains("65536x65536"), "{error}");
    }

    fn crc(bytes: &[u8]) -> u32 {
        let step = |sum: u32, byte: &u8| {
            (0..8)
                .fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg()))
        };
        !bytes.iter().fold(!0, step)
    }
}
