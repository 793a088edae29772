//! Throughput of the embedded desktop: steps per second on one core, including rendering, resets and evaluation.

use crate::embedded::EmbeddedDesktop;
use crate::environment::EnvironmentError;
use crate::look::ScreenOptions;
use crate::oracle::Oracle;
use crate::policies::{Scripted, run_episode};
use crate::tasks::Suite;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speed {
    /// Steps, in whole episodes of the oracle with detours.
    pub steps_per_second: f64,
    /// Mean of one reset with its screenshot.
    pub reset_seconds: f64,
}

/// Steps an episode may take.
const MAX_STEPS: usize = 30;

/// Runs a suite's tasks on a screen for about this many seconds.
pub fn speed(suite: Suite, options: ScreenOptions, seconds: f64) -> Result<Speed, EnvironmentError> {
    let mut environment = EmbeddedDesktop::new(options)?;
    let tasks: Vec<_> = suite.all_tasks().collect();
    let limit = Duration::from_secs_f64(seconds);
    let (mut steps, mut seed) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < limit {
        let mut policy = Scripted::Oracle(Oracle::with_detours(seed, 0.2));
        let task = tasks[seed as usize % tasks.len()];
        steps += run_episode(&mut environment, task, seed, &mut policy, MAX_STEPS)?.actions.len();
        seed += 1;
    }
    let steps_per_second =
        f64::from(u32::try_from(steps).unwrap_or(u32::MAX)) / start.elapsed().as_secs_f64();
    let start = Instant::now();
    let resets = tasks.len().min(32);
    for (seed, task) in tasks.iter().take(resets).enumerate() {
        run_episode(&mut environment, task, seed as u64, &mut Scripted::oracle(), 0)?;
    }
    let reset_seconds = start.elapsed().as_secs_f64() / resets as f64;
    Ok(Speed { steps_per_second, reset_seconds })
}
