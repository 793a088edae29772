//! From data URLs to pixels. An episode sends its earlier screenshots with every turn, so decoded images are kept for a
//! while, by the digest of what was sent.

use crate::ApiError;
use arpo_engine::Screenshot;
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

impl ImageStore {
    /// The image of a data URL, with at most `max_pixels`. `name` says in messages where it is.
    pub(crate) fn image(&self, url: &str, name: &str, max_pixels: u64) -> Result<Screenshot, ApiError> {
        let wrong = |problem: &str| ApiError::field(name, format!("{name}: {problem}"));
        let data = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
        let Some((_, encoded)) = data else {
            return Err(wrong(
                "not a data URL: expected `data:image/png;base64,...`; this server opens no other addresses",
            ));
        };
        let digest = digest(encoded.as_bytes());
        if let Some(image) = self.lock().get(&digest) {
            return Ok(Screenshot { digest, image });
        }
        let bytes = STANDARD.decode(encoded).map_err(|error| wrong(&format!("not base64: {error}")))?;
        let image = arpo_image::decode(&bytes, max_pixels)
            .map_err(|error| wrong(&format!("not an image that can be used: {error}")))?;
        let image = Arc::new(image);
        self.lock().insert(Arc::clone(&digest), Arc::clone(&image));
        Ok(Screenshot { digest, image })
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

    #[test]
    fn images_are_decoded_once() {
        let store = ImageStore::default();
        for format in [image::ImageFormat::Png, image::ImageFormat::Jpeg] {
            let url = url(5, format);
            let [first, again] = [(); 2].map(|()| store.image(&url, "x", 100).unwrap());
            assert_eq!(first.image.dimensions(), (5, 2));
            assert!(Arc::ptr_eq(&first.image, &again.image));
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
            let error = store.image(url, "image 3", 100).unwrap_err();
            assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some("image 3")));
            assert!(error.message.starts_with("image 3: ") && error.message.contains(problem), "{error}");
        }
        assert!(store.lock().images.is_empty());
    }
}
