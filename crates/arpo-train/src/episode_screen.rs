//! A screenshot of an episode: its pixels, its PNG, or both.
//!
//! A decoded 1080p screen takes 6.2 MB: those of 128 episodes of 15 turns would be 12 GB. The policy looks at the pixels
//! once; after that only the PNG is kept, and whoever needs the pixels again decodes them. Small screens stay decoded:
//! encoding them would cost more time than it saves memory.

use arpo_core::trajectory::ImageRef;
use arpo_engine::{ImageSource, Screenshot};
use arpo_env::environment::{EnvironmentError, Screen, encode_png};
use arpo_image::ImageError;
use image::RgbImage;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Largest screen that stays decoded, in bytes of its pixels: about 290x290.
const SMALL_BYTES: u64 = 256 << 10;

/// A screenshot of an episode. Clones share it: when its pixels are released, they are released for all.
#[derive(Clone)]
pub struct EpisodeScreen(Arc<Shared>);

struct Shared {
    digest: Arc<str>,
    size: (u32, u32),
    /// `None` once they are released; the PNG is there then.
    pixels: Mutex<Option<Arc<RgbImage>>>,
    /// Exactly these pixels: the PNG they came in, or else the first one that was made of them.
    png: OnceLock<Arc<[u8]>>,
}

impl EpisodeScreen {
    /// From pixels, and the PNG that they came in, if they came in one.
    pub fn new(image: Arc<RgbImage>, png: Option<Arc<[u8]>>) -> Self {
        Self(Arc::new(Shared {
            digest: digest(&image).into(),
            size: image.dimensions(),
            pixels: Mutex::new(Some(image)),
            png: png.map_or_else(OnceLock::new, OnceLock::from),
        }))
    }

    /// From its reference and its PNG, which is decoded when the pixels are needed.
    pub(crate) fn encoded(reference: &ImageRef, png: Arc<[u8]>) -> Self {
        Self(Arc::new(Shared {
            digest: reference.digest.as_str().into(),
            size: (reference.width, reference.height),
            pixels: Mutex::new(None),
            png: OnceLock::from(png),
        }))
    }

    /// What refers to it, without pixels and PNG: asking for those is an error.
    pub(crate) fn referred_to(&self) -> Self {
        Self(Arc::new(Shared {
            digest: Arc::clone(&self.0.digest),
            size: self.0.size,
            pixels: Mutex::new(None),
            png: OnceLock::new(),
        }))
    }

    /// A desktop's screen; an error if it cannot be decoded.
    pub(crate) fn of(screen: &Screen) -> Result<Self, EnvironmentError> {
        Ok(Self::new(screen.image()?, screen.png().cloned()))
    }

    /// The digest of its pixels.
    pub fn digest(&self) -> &Arc<str> {
        &self.0.digest
    }

    /// Width and height.
    pub fn size(&self) -> (u32, u32) {
        self.0.size
    }

    /// A trajectory's reference to it.
    pub fn reference(&self) -> ImageRef {
        let (width, height) = self.size();
        ImageRef { digest: self.digest().to_string(), width, height }
    }

    /// Its pixels. Released ones are decoded at every call.
    pub fn image(&self) -> Result<Arc<RgbImage>, EnvironmentError> {
        self.0.image()
    }

    /// Its PNG: the one it came in, or one that is encoded at the first call.
    pub fn png(&self) -> Result<Arc<[u8]>, EnvironmentError> {
        if let Some(png) = self.0.png.get() {
            return Ok(Arc::clone(png));
        }
        let encoded = encode_png(&*self.image()?)?;
        Ok(Arc::clone(self.0.png.get_or_init(|| encoded.into())))
    }

    /// As the engine takes it.
    pub fn screenshot(&self) -> Screenshot {
        Screenshot::from_source(Arc::clone(self.digest()), Arc::clone(&self.0) as Arc<dyn ImageSource>)
    }

    /// Keeps only the PNG, which is encoded first if there is none, unless the screen is small.
    pub fn release_pixels(&self) {
        let (width, height) = self.size();
        if u64::from(width) * u64::from(height) * 3 > SMALL_BYTES && self.png().is_ok() {
            *self.0.pixels() = None;
        }
    }

    /// True if both are the same screen in memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let pixels = self.0.pixels().as_ref().map_or(0, |pixels| pixels.as_raw().len());
        pixels + self.0.png.get().map_or(0, |png| png.len())
    }
}

impl Shared {
    fn pixels(&self) -> MutexGuard<'_, Option<Arc<RgbImage>>> {
        self.pixels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn image(&self) -> Result<Arc<RgbImage>, EnvironmentError> {
        let pixels = self.pixels().clone();
        match (pixels, self.png.get()) {
            (Some(pixels), _) => Ok(pixels),
            (None, Some(png)) => Screen::from_png(Arc::clone(png))?.image(),
            (None, None) => {
                Err(EnvironmentError::Broken { reason: "a screenshot without pixels and PNG".into() })
            }
        }
    }
}

impl ImageSource for Shared {
    fn size(&self) -> (u32, u32) {
        self.size
    }

    fn image(&self) -> Result<Arc<RgbImage>, ImageError> {
        self.image().map_err(|error| ImageError::Image(error.to_string()))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}x{} pixels", self.digest, self.size.0, self.size.1)
    }
}

impl fmt::Debug for EpisodeScreen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EpisodeScreen").field(&self.0).finish()
    }
}

fn digest(image: &RgbImage) -> String {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, image.dimensions(), image.as_raw()).hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(0), half(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels(width: u32, height: u32, grey: u8) -> Arc<RgbImage> {
        Arc::new(RgbImage::from_fn(width, height, |x, y| image::Rgb([grey, x as u8, (x * y) as u8])))
    }

    #[test]
    fn equal_pixels_have_equal_digests() {
        let digest = |width, height, grey| {
            let image = RgbImage::from_pixel(width, height, image::Rgb([grey; 3]));
            EpisodeScreen::new(Arc::new(image), None).digest().clone()
        };
        assert_eq!(digest(4, 3, 7), digest(4, 3, 7));
        assert_ne!(digest(4, 3, 7), digest(4, 3, 8));
        assert_ne!(digest(4, 3, 7), digest(3, 4, 7));
    }

    /// However it came, the pixels are the same before and after.
    #[test]
    fn a_large_screen_keeps_only_its_png() {
        let image = pixels(640, 480, 9);
        let png: Arc<[u8]> = encode_png(&image).unwrap().into();
        for came_in in [None, Some(Arc::clone(&png))] {
            let screen = EpisodeScreen::new(Arc::clone(&image), came_in);
            let (shared, shown) = (screen.clone(), screen.screenshot());
            assert!(Arc::ptr_eq(&screen.image().unwrap(), &image));
            screen.release_pixels();
            assert_eq!((screen.bytes(), shared.bytes()), (png.len(), png.len()));
            assert_eq!((screen.png().unwrap(), screen.size()), (Arc::clone(&png), (640, 480)));
            assert_eq!((shared.image().unwrap(), shown.image().unwrap()), (image.clone(), image.clone()));
        }
        assert_eq!(Arc::strong_count(&image), 1, "nothing else holds the pixels");
    }

    #[test]
    fn a_screen_is_the_same_after_it_travelled_as_a_png() {
        let screen = EpisodeScreen::new(pixels(168, 140, 3), None);
        let arrived = EpisodeScreen::encoded(&screen.reference(), screen.png().unwrap());
        assert_eq!(arrived.reference(), screen.reference());
        assert_eq!(arrived.image().unwrap(), screen.image().unwrap());
        assert_eq!(arrived.screenshot().digest, screen.screenshot().digest);
    }

    #[test]
    fn a_small_screen_stays_decoded_and_is_encoded_once() {
        let image = pixels(168, 140, 1);
        let screen = EpisodeScreen::new(Arc::clone(&image), None);
        screen.release_pixels();
        assert_eq!(screen.bytes(), 168 * 140 * 3, "not even encoded");
        assert!(Arc::ptr_eq(&screen.image().unwrap(), &image));
        assert!(Arc::ptr_eq(&screen.png().unwrap(), &screen.clone().png().unwrap()));
    }
}
