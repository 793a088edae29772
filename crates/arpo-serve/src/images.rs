//! From data URLs to pixels. An episode sends its earlier screenshots with every turn, so decoded images are kept for a
//! while, by the digest of what was sent.

use crate::ApiError;
use crate::chat::ImageUrl;
use arpo_engine::Screenshot;
use arpo_image::ImageError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::RgbImage;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of decoded images that are kept: about forty screenshots of 1920x1080.
const KEPT_BYTES: usize = 256 << 20;

/// Images that were sent lately.
#[derive(Debug, Default)]
pub(crate) struct ImageStore {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    images: HashMap<Arc<str>, (Arc<RgbImage>, u64)>,
    bytes: usize,
    clock: u64,
}

/// An image of a request whose size is known.
#[derive(Debug)]
pub(crate) struct SentImage {
    /// Where it is in the body.
    name: String,
    digest: Arc<str>,
    size: (u32, u32),
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// It was sent lately.
    Known(Arc<RgbImage>),
    Encoded(Vec<u8>),
}

impl SentImage {
    /// Bytes of its pixels.
    pub(crate) fn decoded_bytes(&self) -> u64 {
        3 * u64::from(self.size.0) * u64::from(self.size.1)
    }
}

fn wrong(name: &str, problem: &str) -> ApiError {
    ApiError::field(name, format!("{name}: {problem}"))
}

fn unusable(name: &str, error: &ImageError) -> ApiError {
    wrong(name, &format!("not an image that can be used: {error}"))
}

impl ImageStore {
    /// Finds out how large the image of a data URL is, which may have at most `max_pixels`. Nothing is decoded.
    pub(crate) fn look_at(&self, image: ImageUrl, max_pixels: u64) -> Result<SentImage, ApiError> {
        let ImageUrl { name, url } = image;
        let data = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
        let Some((_, encoded)) = data else {
            return Err(wrong(
                &name,
                "not a data URL: expected `data:image/png;base64,...`; this server opens no other addresses",
            ));
        };
        let digest = digest(encoded.as_bytes());
        let known = self.lock().get(&digest);
        if let Some(image) = known {
            return Ok(SentImage { name, digest, size: image.dimensions(), form: Form::Known(image) });
        }
        let bytes =
            STANDARD.decode(encoded).map_err(|error| wrong(&name, &format!("not base64: {error}")))?;
        let size = arpo_image::dimensions(&bytes, max_pixels).map_err(|error| unusable(&name, &error))?;
        Ok(SentImage { name, digest, size, form: Form::Encoded(bytes) })
    }

    /// Decodes an image.
    pub(crate) fn decode(&self, image: SentImage) -> Result<Screenshot, ApiError> {
        let SentImage { name, digest, size: (width, height), form } = image;
        let pixels = match form {
            Form::Known(pixels) => pixels,
            Form::Encoded(bytes) => {
                let decoded = arpo_image::decode(&bytes, u64::from(width) * u64::from(height));
                let pixels = Arc::new(decoded.map_err(|error| unusable(&name, &error))?);
                self.lock().insert(Arc::clone(&digest), Arc::clone(&pixels));
                pixels
            }
        };
        Ok(Screenshot::new(digest, pixels))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn get(&mut self, digest: &str) -> Option<Arc<RgbImage>> {
        self.clock += 1;
        let (image, last_used) = self.images.get_mut(digest)?;
        *last_used = self.clock;
        Some(Arc::clone(image))
    }

    fn insert(&mut self, digest: Arc<str>, image: Arc<RgbImage>) {
        let bytes = image.as_raw().len();
        if bytes > KEPT_BYTES || self.images.contains_key(&digest) {
            return;
        }
        while self.bytes + bytes > KEPT_BYTES {
            let oldest = self.images.iter().min_by_key(|(_, (_, last_used))| *last_used);
            let Some(oldest) = oldest.map(|(digest, _)| Arc::clone(digest)) else { break };
            self.bytes -= self.images.remove(&oldest).map_or(0, |(image, _)| image.as_raw().len());
        }
        self.bytes += bytes;
        self.images.insert(digest, (image, self.clock));
    }
}

/// Nobody can make two images with the same digest: pages and features of the cache are found by it.
fn digest(bytes: &[u8]) -> Arc<str> {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(width: u32, format: image::ImageFormat) -> String {
        let image = RgbImage::from_fn(width, 2, |x, y| image::Rgb([x as u8, y as u8, 7]));
        let mut bytes = std::io::Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        format!("data:image/any;base64,{}", STANDARD.encode(bytes.into_inner()))
    }

    fn decoded(store: &ImageStore, url: &str, name: &str, max_pixels: u64) -> Result<Screenshot, ApiError> {
        store.decode(store.look_at(ImageUrl { name: name.into(), url: url.into() }, max_pixels)?)
    }

    #[test]
    fn images_are_decoded_once() {
        let store = ImageStore::default();
        for format in [image::ImageFormat::Png, image::ImageFormat::Jpeg] {
            let url = url(5, format);
            let [first, again] = [(); 2].map(|()| decoded(&store, &url, "x", 100).unwrap());
            assert_eq!(first.size(), (5, 2));
            assert!(Arc::ptr_eq(&first.image().unwrap(), &again.image().unwrap()));
            assert_eq!(first.digest, again.digest);
        }
        assert_eq!(store.lock().images.len(), 2);
    }

    #[test]
    fn whatever_is_no_image_is_refused() {
        let store = ImageStore::default();
        let large = url(60, image::ImageFormat::Png);
        for (url, problem) in [
            ("https://example.com/a.png", "not a data URL"),
            ("data:image/png,abc", "not a data URL"),
            ("data:image/png;base64,a*", "not base64"),
            ("data:image/png;base64,aaaa", "neither a PNG nor a JPEG"),
            ("data:image/png;base64,iVBORw0KGgo=", "not an image"),
            (large.as_str(), "60x2 is too large: expected at most 100 pixels"),
        ] {
            let error = decoded(&store, url, "image 3", 100).unwrap_err();
            assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some("image 3")));
            assert!(error.message.starts_with("image 3: ") && error.message.contains(problem), "{error}");
        }
        assert!(store.lock().images.is_empty());
    }
}
