//! A simulated desktop: as slow and as uneven as a real one, with screenshots of its own or of a real one.

use crate::Failure;
use arpo_core::action::Action;
use arpo_core::random::{Purpose, stream};
use arpo_core::task::Task;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, EnvironmentError, Screen, StepResult, encode_png, ends_episode};
use arpo_env::look::ScreenOptions;
use arpo_env::tasks::{Split, Suite};
use clap::Args;
use image::{Rgb, RgbImage};
use rand::RngExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the calls of a desktop take.
#[derive(Args, Clone, Copy)]
pub(super) struct Times {
    /// Mean duration of a step
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5)]
    pub(super) step: f64,
    /// Mean duration of a reset
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0)]
    pub(super) reset: f64,
    /// Mean duration of an evaluation
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub(super) evaluate: f64,
    /// Standard deviation of the logarithm of these durations: 0 for constant ones, 1 for a heavy tail
    #[arg(long, value_name = "SIGMA", default_value_t = 1.0)]
    pub(super) spread: f64,
    /// Speed-up of the simulated time
    #[arg(long, value_name = "FACTOR", default_value_t = 100.0)]
    pub(super) faster: f64,
}

impl Times {
    pub(super) fn check(self) -> Result<(), Failure> {
        let Self { step, reset, evaluate, spread, faster } = self;
        if [step, reset, evaluate, spread].iter().any(|number| !(0.0..=3600.0).contains(number))
            || !(1.0..=1e6).contains(&faster)
        {
            return Err(Failure::failed(
                "expected times from 0 to 3600 seconds, and at least 1 for --faster",
            ));
        }
        Ok(())
    }

    /// As options of a program.
    pub(super) fn arguments(self) -> Vec<String> {
        let Self { step, reset, evaluate, spread, faster } = self;
        let options = [
            ("step", step),
            ("reset", reset),
            ("evaluate", evaluate),
            ("spread", spread),
            ("faster", faster),
        ];
        options.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
    }
}

/// A simulated desktop that only sleeps, and shows one screen after the other.
pub(super) struct SlowDesktop {
    times: Times,
    seed: u64,
    calls: u64,
    screens: Arc<[Arc<[u8]>]>,
}

impl SlowDesktop {
    /// A desktop with these screens, as PNGs.
    pub(super) fn new(times: Times, screens: &Arc<[Arc<[u8]>]>) -> Self {
        Self { times, seed: 0, calls: 0, screens: Arc::clone(screens) }
    }

    /// Sleeps for a log-normal time with this mean. The same episode has the same durations in every order.
    fn sleep(&mut self, mean: f64) {
        let mut rng = stream(self.seed, Purpose::Environment, self.calls, 5);
        self.calls += 1;
        // Box-Muller transform
        let (radius, angle): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let Times { spread, faster, .. } = self.times;
        sleep(Duration::from_secs_f64(mean / faster * (spread * normal - spread * spread / 2.0).exp()));
    }

    fn screen(&self) -> Result<Screen, EnvironmentError> {
        // episodes begin at different screens
        let number = (self.seed % 1024 + self.calls) as usize % self.screens.len();
        Screen::from_png(Arc::clone(&self.screens[number]))
    }
}

impl Environment for SlowDesktop {
    fn reset(&mut self, _: &Task, seed: u64, _: Instant) -> Result<Screen, EnvironmentError> {
        (self.seed, self.calls) = (seed, 0);
        self.sleep(self.times.reset);
        self.screen()
    }

    fn step(&mut self, action: &Action, _: Instant) -> Result<StepResult, EnvironmentError> {
        self.sleep(self.times.step);
        Ok(StepResult { screen: self.screen()?, terminated: ends_episode(action), truncated: false })
    }

    fn evaluate(&mut self, _: Instant) -> Result<f64, EnvironmentError> {
        self.sleep(self.times.evaluate);
        Ok(1.0)
    }
}

/// One small grey screen.
pub(super) fn grey_screen() -> Result<Arc<[Arc<[u8]>]>, Failure> {
    let png = encode_png(&RgbImage::from_pixel(28, 28, Rgb([128; 3]))).map_err(Failure::failed)?;
    Ok([png.into()].into())
}

/// The PNGs in a folder and its folders, such as that of an evaluation; without one, screens of the embedded desktop of 1920 x
/// 1080 pixels.
pub(super) fn screens(folder: Option<&Path>) -> Result<Arc<[Arc<[u8]>]>, Failure> {
    let Some(folder) = folder else { return embedded_screens().map_err(Failure::failed) };
    let mut paths = vec![];
    find_pngs(folder, &mut paths)
        .map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))?;
    paths.sort();
    paths.truncate(MOST_SCREENS);
    if paths.is_empty() {
        return Err(Failure::usage(format!("--screens {}: no PNG in it", folder.display())));
    }
    let read = |path: &PathBuf| match std::fs::read(path) {
        Ok(bytes) => Ok(Arc::<[u8]>::from(bytes)),
        Err(error) => Err(Failure::failed(format!("{}: {error}", path.display()))),
    };
    paths.iter().map(read).collect()
}

/// Enough to differ from each other; every worker keeps them in memory.
const MOST_SCREENS: usize = 64;

fn find_pngs(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find_pngs(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "png") {
            found.push(path);
        }
    }
    Ok(())
}

fn embedded_screens() -> Result<Arc<[Arc<[u8]>]>, EnvironmentError> {
    let mut desktop = EmbeddedDesktop::new(ScreenOptions::desktop(1920, 1080))?;
    let deadline = Instant::now() + Duration::from_mins(5);
    let mut draw = |task: &Task| desktop.reset(task, 0, deadline)?.to_png();
    Suite::Desktop.tasks(Split::Train).iter().take(8).map(&mut draw).collect()
}
