//! What a guest's screen shows: its size, a picture, a film.

use super::Guest;
use super::http::{Body, HttpGuest};
use crate::error::GuestError;
use arpo_agent::geometry::Size;
use serde_json::json;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

impl HttpGuest {
    /// A picture of the screen, as PNG.
    pub fn screenshot(&self) -> Result<Vec<u8>, GuestError> {
        let bytes = self.wanted("/screenshot", &Body::None)?;
        if bytes.starts_with(PNG) {
            return Ok(bytes);
        }
        Err(GuestError::Unreachable { call: "/screenshot".into(), problem: "what came is no PNG".into() })
    }

    /// How large the screen is.
    pub fn size(&self) -> Result<Size, GuestError> {
        let lost =
            |problem: &str| GuestError::Unreachable { call: "/screen_size".into(), problem: problem.into() };
        let size = self.screen_size()?.ok_or_else(|| lost("no answer"))?;
        let side = |name: &str| size[name].as_u64().and_then(|side| u32::try_from(side).ok());
        match (side("width"), side("height")) {
            (Some(width), Some(height)) => Ok(Size { width, height }),
            _ => Err(lost(&format!("{size} has no width and height"))),
        }
    }

    /// Begins to film the screen.
    pub fn start_recording(&self) -> Result<(), GuestError> {
        self.wanted("/start_recording", &Body::Json(json!({}))).map(drop)
    }

    /// Ends the film and returns it, as MP4.
    pub fn end_recording(&self) -> Result<Vec<u8>, GuestError> {
        self.wanted("/end_recording", &Body::Json(json!({})))
    }
}
