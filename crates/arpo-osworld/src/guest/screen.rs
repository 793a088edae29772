//! A guest's screen: its size, screenshots, recordings.

use super::Guest;
use super::http::{Body, HttpGuest};
use crate::error::GuestError;
use arpo_agent::geometry::Size;
use serde_json::json;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

impl HttpGuest {
    /// A screenshot, as PNG.
    pub fn screenshot(&self) -> Result<Vec<u8>, GuestError> {
        let bytes = self.require("/screenshot", &Body::None)?;
        if bytes.starts_with(PNG) {
            return Ok(bytes);
        }
        Err(GuestError::Unreachable {
            call: "/screenshot".into(),
            problem: "the response is not a PNG".into(),
        })
    }

    /// How large the screen is.
    pub fn size(&self) -> Result<Size, GuestError> {
        let lost =
            |problem: &str| GuestError::Unreachable { call: "/screen_size".into(), problem: problem.into() };
        let size = self.screen_size()?.ok_or_else(|| lost("no response"))?;
        let side = |name: &str| size[name].as_u64().and_then(|side| u32::try_from(side).ok());
        match (side("width"), side("height")) {
            (Some(width), Some(height)) => Ok(Size { width, height }),
            _ => Err(lost(&format!("{size} has no width and height"))),
        }
    }

    /// Starts recording the screen.
    pub fn start_recording(&self) -> Result<(), GuestError> {
        self.require("/start_recording", &Body::Json(json!({}))).map(drop)
    }

    /// Ends the recording and returns it, as MP4.
    pub fn end_recording(&self) -> Result<Vec<u8>, GuestError> {
        self.require("/end_recording", &Body::Json(json!({})))
    }
}
