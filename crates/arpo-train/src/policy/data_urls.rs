//! A screenshot as a data URL. Its PNG is encoded once, if it did not come with one; the text around it costs little.

use crate::episode::EpisodeScreen;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A screenshot as a PNG in a URL.
pub(super) fn data_url(screen: &EpisodeScreen) -> Result<String, String> {
    let png = screen.png().map_err(|error| error.to_string())?;
    let mut url = String::from("data:image/png;base64,");
    STANDARD.encode_string(&png[..], &mut url);
    Ok(url)
}
