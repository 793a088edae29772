//! Screenshots as data URLs, encoded once: every request of an episode shows its last screenshots again.

use crate::episode::EpisodeScreen;
use arpo_env::environment::encode_png;
use base64::Engine;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes kept encoded.
const KEPT: usize = 1 << 28;

/// Encoded screenshots, by digest.
#[derive(Debug, Default)]
pub(super) struct DataUrls(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    urls: HashMap<Arc<str>, Arc<str>>,
    bytes: usize,
}

impl DataUrls {
    /// A screenshot as a PNG in a URL.
    pub(super) fn of(&self, screen: &EpisodeScreen) -> Result<Arc<str>, String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).urls.get(&screen.digest).cloned();
        if let Some(url) = known {
            return Ok(url);
        }
        let png = match &screen.png {
            Some(png) => Arc::clone(png),
            None => encode_png(&screen.image).map_err(|error| error.to_string())?.into(),
        };
        let encoded = base64::engine::general_purpose::STANDARD.encode(png);
        let url: Arc<str> = format!("data:image/png;base64,{encoded}").into();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.bytes + url.len() > KEPT {
            *kept = Kept::default();
        }
        if kept.urls.insert(Arc::clone(&screen.digest), Arc::clone(&url)).is_none() {
            kept.bytes += url.len();
        }
        Ok(url)
    }
}
