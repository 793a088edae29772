//! Readiness: a desktop is ready when its server gives a screenshot.

use super::desktop::Desktop;
use super::error::ProviderError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Until it must answer.
    pub(super) limit: Duration,
    /// Between tries.
    pub(super) interval: Duration,
    /// For one answer.
    pub(super) one_try: Duration,
}

impl Patience {
    /// For something that is there in seconds.
    pub(super) fn quick(limit: Duration) -> Self {
        Self { limit, interval: Duration::from_millis(100), one_try: Duration::from_secs(5) }
    }
}

/// Between looks at whether the container of a silent desktop still runs.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Waits for the first screenshot. A desktop that has ended is an error at once.
pub(super) fn wait_until_ready(
    desktop: &Desktop,
    patience: Patience,
    deadline: Instant,
    given_up: &AtomicBool,
) -> Result<(), ProviderError> {
    let begun = Instant::now();
    let end = deadline.min(begun + patience.limit);
    let mut look_at = begun + LOOK_INTERVAL;
    let mut problem = String::from("no try was made");
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
                log: desktop.last_words(),
            });
        }
        match answers(desktop, patience.one_try.min(left)) {
            Ok(()) => return Ok(()),
            Err(words) => problem = words,
        }
        if Instant::now() >= look_at {
            desktop.check()?;
            look_at = Instant::now() + LOOK_INTERVAL;
        }
        std::thread::sleep(patience.interval.min(end.saturating_duration_since(Instant::now())));
    }
}

/// Whether the server gives a screenshot, within a time.
pub(super) fn answers(desktop: &Desktop, limit: Duration) -> Result<(), String> {
    let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
    let agent = config.timeout_global(Some(limit)).build().new_agent();
    let mut answer = agent.get(screenshot_url(desktop)).call().map_err(|error| error.to_string())?;
    let status = answer.status().as_u16();
    if status != 200 {
        return Err(format!("status {status}"));
    }
    // The whole of it: a server that breaks off in the middle is not ready.
    answer
        .body_mut()
        .with_config()
        .limit(1 << 28)
        .read_to_vec()
        .map(|_| ())
        .map_err(|error| error.to_string())
}

fn screenshot_url(desktop: &Desktop) -> String {
    format!("{}/screenshot", desktop.addresses().server_url())
}
