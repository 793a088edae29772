//! Metrics on videos: their frames, one by one.

use super::call::yes;
use super::{Call, Metric, Score, metric};
use crate::error::MetricError;
use crate::pillow::PillowImage;
use crate::pillow::phash::{distance, perceptual_hash};
use crate::state::State;
use crate::video::frames_by_host;

pub(super) const METRICS: &[Metric] = &[metric("compare_videos", compare_videos)];

/// Frames that are looked at, unless the task says another number.
const FRAMES: f64 = 100.0;
/// Bits in which frames may differ, and frames that may differ by more.
const THRESHOLD: f64 = 5.0;

/// The first frames look alike, but for a few; if a video ends before, the other ends there, too. A file that cannot be
/// decoded is a video without frames.
fn compare_videos(call: &Call<'_>) -> Score {
    let limit = call.number("max_frames_to_check").unwrap_or(FRAMES).max(0.0) as usize;
    let threshold = call.number("threshold").unwrap_or(THRESHOLD);
    let (found, wanted) = (hashes(call, call.result, limit)?, hashes(call, call.expected()?, limit)?);
    let different =
        found.iter().zip(&wanted).filter(|(a, b)| f64::from(distance(**a, **b)) > threshold).count();
    Ok(yes(different as f64 <= threshold && found.len() == wanted.len()))
}

fn hashes(call: &Call<'_>, video: &State, limit: usize) -> Result<Vec<u64>, MetricError> {
    let file = match video {
        State::Null | State::Absent(_) => return Ok(Vec::new()),
        other => other.file()?,
    };
    let mut hashes = Vec::new();
    let mut each = |frame: &[u8]| -> Result<(), MetricError> {
        hashes.push(perceptual_hash(&PillowImage::decode(frame)?));
        Ok(())
    };
    match call.settings.sandbox {
        Some(sandbox) => sandbox.video_frames(file, limit, &mut each)?,
        None => frames_by_host(file, limit, &mut each)?,
    }
    Ok(hashes)
}
