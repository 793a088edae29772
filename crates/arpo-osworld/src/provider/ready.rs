//! Readiness: a desktop is ready when its server returns a screenshot, and ours only when the screen is still, too.
//!
//! The server of our image responds once there is a panel, others as soon as there is a display, which is black at first. A
//! spare is frozen when it is ready: what was not drawn by then would be missing.

use super::desktop::Desktop;
use super::error::ProviderError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Timeouts of the readiness check.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadinessPolicy {
    /// Until it must respond.
    pub(super) limit: Duration,
    /// Between attempts.
    pub(super) interval: Duration,
    /// Timeout of one attempt.
    pub(super) one_try: Duration,
    /// Whether to wait for a still screen, too.
    pub(super) settles: bool,
}

impl ReadinessPolicy {
    /// For a desktop that is ready in seconds.
    pub(super) fn quick(limit: Duration) -> Self {
        Self { limit, interval: Duration::from_millis(100), one_try: Duration::from_secs(5), settles: false }
    }
}

/// Interval of checks that the container of a silent desktop still runs.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A screen without changes for this long is still.
const STILL: Duration = Duration::from_millis(500);
/// A screen that is never still, or stays empty, is accepted this long after the first response.
const STILL_WITHIN: Duration = Duration::from_secs(10);
/// A screen with one colour on more than this fraction is empty.
const EMPTY: f64 = 0.995;

/// Waits for the first screenshot. A desktop that has ended is an error at once.
pub(super) fn wait_until_ready(
    desktop: &Desktop,
    policy: ReadinessPolicy,
    deadline: Instant,
    given_up: &AtomicBool,
) -> Result<(), ProviderError> {
    let begun = Instant::now();
    let end = deadline.min(begun + policy.limit);
    let mut look_at = begun + LOOK_INTERVAL;
    let mut problem = String::from("no attempt was made");
    loop {
        if given_up.load(Ordering::Acquire) {
            return Err(ProviderError::Closing { name: desktop.name().to_owned() });
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ProviderError::NotReady {
                name: desktop.name().to_owned(),
                url: screenshot_url(desktop),
                limit_secs: end.saturating_duration_since(begun).as_secs(),
                problem,
                log: desktop.log_tail(),
            });
        }
        match fetch_screenshot(desktop, policy.one_try.min(left)) {
            Ok(screenshot) if policy.settles => {
                let limit = end.min(Instant::now() + STILL_WITHIN);
                return wait_until_still(desktop, policy, screenshot, limit, given_up);
            }
            Ok(_) => return Ok(()),
            Err(error) => problem = error,
        }
        if Instant::now() >= look_at {
            desktop.check()?;
            look_at = Instant::now() + LOOK_INTERVAL;
        }
        std::thread::sleep(policy.interval.min(end.saturating_duration_since(Instant::now())));
    }
}

/// Waits until the screen is still and not empty.
fn wait_until_still(
    desktop: &Desktop,
    policy: ReadinessPolicy,
    first: Vec<u8>,
    limit: Instant,
    given_up: &AtomicBool,
) -> Result<(), ProviderError> {
    let (mut last, mut since) = (first, Instant::now());
    while Instant::now() < limit {
        if given_up.load(Ordering::Acquire) {
            return Err(ProviderError::Closing { name: desktop.name().to_owned() });
        }
        std::thread::sleep(policy.interval);
        match fetch_screenshot(desktop, policy.one_try) {
            Ok(screenshot) if screenshot == last => {
                if since.elapsed() >= STILL && !is_empty(&last) {
                    return Ok(());
                }
            }
            Ok(screenshot) => (last, since) = (screenshot, Instant::now()),
            // It responded before: either it has ended, or it is busy.
            Err(_) => desktop.check()?,
        }
    }
    Ok(())
}

/// Whether a screenshot is nearly empty; false if it cannot be decoded.
fn is_empty(screenshot: &[u8]) -> bool {
    let Ok(image) = image::load_from_memory(screenshot) else { return false };
    let image = image.into_rgb8();
    // The corner is the commonest colour of an empty screen.
    let Some(corner) = image.pixels().next() else { return true };
    let same = image.pixels().filter(|pixel| *pixel == corner).count();
    same as f64 > EMPTY * (f64::from(image.width()) * f64::from(image.height()))
}

/// A screenshot of the server, within a time limit.
pub(super) fn fetch_screenshot(desktop: &Desktop, limit: Duration) -> Result<Vec<u8>, String> {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    let agent = config.timeout_global(Some(limit)).build().new_agent();
    let mut request = agent.get(screenshot_url(desktop));
    if let Some(token) = desktop.token() {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut response = request.call().map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    // The token of a running guest is not known here: a guest that asks for it is running.
    let asks = status == 401 && desktop.container().is_none();
    if status != 200 && !asks {
        return Err(format!("status {status}"));
    }
    // Read all of it: a server that breaks off in the middle is not ready.
    response.body_mut().with_config().limit(1 << 28).read_to_vec().map_err(|error| error.to_string())
}

fn screenshot_url(desktop: &Desktop) -> String {
    format!("{}/screenshot", desktop.addresses().server_url())
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ImageFormat, Rgb, RgbImage};
    use std::io::Cursor;

    #[test]
    fn a_screen_with_only_a_pointer_is_empty() {
        let shot = |image: &RgbImage| {
            let mut file = Cursor::new(Vec::new());
            image.write_to(&mut file, ImageFormat::Png).expect("a PNG");
            file.into_inner()
        };
        let mut image = RgbImage::new(320, 180);
        for (x, y) in (0..12).flat_map(|x| (0..18).map(move |y| (x, y))) {
            image.put_pixel(160 + x, 90 + y, Rgb([255, 255, 255]));
        }
        assert!(is_empty(&shot(&image)));
        // A panel along the edge.
        for (x, y) in (0..320).flat_map(|x| (170..180).map(move |y| (x, y))) {
            image.put_pixel(x, y, Rgb([30, 40, 50]));
        }
        assert!(!is_empty(&shot(&image)));
        assert!(!is_empty(b"no image"));
    }
}
