//! Fault injection: wraps any environment so that it now and then crashes, hangs, slows down, shows a bad screenshot or
//! fails to evaluate.
//!
//! The run's seed, the episode's seed and the number of the call in the episode decide whether a call has a fault, so a
//! run has the same faults again, whichever desktop runs the episode. Injected faults are counted.

use crate::environment::{Environment, EnvironmentError, RecordEntry, Screen, StepResult};
use arpo_core::action::Action;
use arpo_core::config::FaultsConfig;
use arpo_core::random::{Purpose, stream};
use arpo_core::task::Task;
use image::RgbImage;
use image::imageops::crop_imm;
use rand::RngExt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A hanging call returns this long after its deadline: longer than any caller should wait, but not for ever, so that
/// a long run with many hangs does not accumulate threads.
const HANG: Duration = Duration::from_secs(5);

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The environment breaks, and stays broken.
    Crash,
    /// A call does not return before its deadline.
    Hang,
    /// A call takes longer.
    Slow,
    /// A screenshot without anything on it.
    BlackScreen,
    /// A screenshot without its lower half.
    TruncatedScreen,
    /// The evaluator fails.
    EvaluatorError,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Crash, Self::Hang, Self::Slow, Self::BlackScreen, Self::TruncatedScreen, Self::EvaluatorError];

    /// Its name in metrics.
    pub fn key(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Hang => "hang",
            Self::Slow => "slow",
            Self::BlackScreen => "black_screen",
            Self::TruncatedScreen => "truncated_screen",
            Self::EvaluatorError => "evaluator_error",
        }
    }

    fn rate(self, config: &FaultsConfig) -> f64 {
        match self {
            Self::Crash => config.crash,
            Self::Hang => config.hang,
            Self::Slow => config.slow,
            Self::BlackScreen => config.black_screen,
            Self::TruncatedScreen => config.truncated_screen,
            Self::EvaluatorError => config.evaluator_error,
        }
    }

    /// Whether the fault can occur in an evaluation, or else in a reset or step.
    fn fits(self, evaluation: bool) -> bool {
        match self {
            Self::Hang | Self::Slow => true,
            Self::Crash | Self::BlackScreen | Self::TruncatedScreen => !evaluation,
            Self::EvaluatorError => evaluation,
        }
    }
}

/// How often each fault was injected, by any number of environments.
#[derive(Debug, Default)]
pub struct FaultCounts([AtomicU64; Fault::ALL.len()]);

impl FaultCounts {
    /// Counts so far; faults that were never injected are left out.
    pub fn injected(&self) -> BTreeMap<Fault, u64> {
        let count = |fault: Fault| (fault, self.0[fault as usize].load(Ordering::Relaxed));
        Fault::ALL.into_iter().map(count).filter(|(_, count)| *count > 0).collect()
    }

    fn add(&self, fault: Fault) {
        self.0[fault as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The bits of an episode's seed that make the world's seed.
const WORLD_SEED_MASK: u64 = 0xffff_ffff;

/// An environment with faults.
#[derive(Debug)]
pub struct FaultyDesktop<E> {
    inner: E,
    config: FaultsConfig,
    seed: u64,
    counts: Arc<FaultCounts>,
    episode_seed: u64,
    calls: u64,
    crashed: bool,
}

impl<E: Environment> FaultyDesktop<E> {
    /// Wraps an environment; `seed` is the run's. The upper half of an episode's seed only distinguishes episodes in the
    /// same world: the environment gets the lower half.
    pub fn new(inner: E, config: FaultsConfig, seed: u64, counts: Arc<FaultCounts>) -> Self {
        Self { inner, config, seed, counts, episode_seed: 0, calls: 0, crashed: false }
    }

    /// The fault of the next call, if it has one. Faults that end the call at once are raised here.
    fn fault(&mut self, evaluation: bool, deadline: Instant) -> Result<Option<Fault>, EnvironmentError> {
        let broken = || EnvironmentError::Broken { reason: "injected crash".into() };
        if self.crashed {
            return Err(broken());
        }
        let mut draw: f64 = stream(self.seed, Purpose::Faults, self.episode_seed, self.calls).random();
        self.calls += 1;
        let fault = Fault::ALL.into_iter().filter(|fault| fault.fits(evaluation)).find(|fault| {
            draw -= fault.rate(&self.config);
            draw < 0.0
        });
        let Some(fault) = fault else { return Ok(None) };
        self.counts.add(fault);
        match fault {
            Fault::Crash => {
                self.crashed = true;
                Err(broken())
            }
            Fault::Hang => {
                sleep(deadline.saturating_duration_since(Instant::now()) + HANG);
                Err(EnvironmentError::Deadline { during: "an injected hang" })
            }
            Fault::EvaluatorError => {
                Err(EnvironmentError::Broken { reason: "injected evaluator error".into() })
            }
            Fault::Slow => {
                sleep(Duration::from_secs_f64(self.config.slow_seconds));
                Ok(None)
            }
            Fault::BlackScreen | Fault::TruncatedScreen => Ok(Some(fault)),
        }
    }
}

/// The screenshot after a fault.
fn corrupted(screen: Screen, fault: Option<Fault>) -> Result<Screen, EnvironmentError> {
    let (width, height) = screen.size();
    let image = match fault {
        Some(Fault::BlackScreen) => RgbImage::new(width, height),
        Some(Fault::TruncatedScreen) => crop_imm(&*screen.image()?, 0, 0, width, height / 2).to_image(),
        _ => return Ok(screen),
    };
    Ok(Screen::new(image))
}

impl<E: Environment> Environment for FaultyDesktop<E> {
    fn reset(&mut self, task: &Task, seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError> {
        (self.episode_seed, self.calls) = (seed, 0);
        let fault = self.fault(false, deadline)?;
        corrupted(self.inner.reset(task, seed & WORLD_SEED_MASK, deadline)?, fault)
    }

    fn record_response(&mut self, response: &str) {
        self.inner.record_response(response);
    }

    fn take_record(&mut self) -> Vec<RecordEntry> {
        self.inner.take_record()
    }

    fn step(&mut self, action: &Action, deadline: Instant) -> Result<StepResult, EnvironmentError> {
        let fault = self.fault(false, deadline)?;
        let stepped = self.inner.step(action, deadline)?;
        Ok(StepResult { screen: corrupted(stepped.screen, fault)?, ..stepped })
    }

    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError> {
        self.fault(true, deadline)?;
        self.inner.evaluate(deadline)
    }

    fn is_deterministic(&self) -> bool {
        self.inner.is_deterministic()
    }

    fn screen_size(&self) -> Option<(u32, u32)> {
        self.inner.screen_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Conformance;
    use crate::embedded::EmbeddedDesktop;
    use crate::tasks::{Split, Suite};

    fn desktop(config: FaultsConfig) -> (FaultyDesktop<EmbeddedDesktop>, Arc<FaultCounts>) {
        let counts = Arc::new(FaultCounts::default());
        let inner = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
        (FaultyDesktop::new(inner, config, 7, Arc::clone(&counts)), counts)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    #[test]
    fn without_faults_it_is_what_it_wraps() {
        let tasks = Suite::Pocket.tasks(Split::Train);
        let (task, other_task) = (tasks[0].clone(), tasks[1].clone());
        let conformance = Conformance { task, other_task, call: Duration::from_mins(1) };
        assert_eq!(conformance.check(|| desktop(FaultsConfig::default()).0), Ok(()));
    }

    #[test]
    fn every_fault_shows() {
        let task = &Suite::Pocket.tasks(Split::Train)[0];
        let only = |change: fn(&mut FaultsConfig)| {
            let mut config = FaultsConfig { slow_seconds: 0.0, ..FaultsConfig::default() };
            change(&mut config);
            desktop(config)
        };
        let (mut crashing, counts) = only(|config| config.crash = 1.0);
        assert!(matches!(crashing.reset(task, 1, soon()), Err(EnvironmentError::Broken { .. })));
        assert!(matches!(crashing.evaluate(soon()), Err(EnvironmentError::Broken { .. })));
        assert_eq!(counts.injected(), BTreeMap::from([(Fault::Crash, 1)]));

        let (mut black, counts) = only(|config| config.black_screen = 1.0);
        let screen = black.reset(task, 1, soon()).unwrap();
        assert!(screen.image().unwrap().as_raw().iter().all(|&level| level == 0));
        assert_eq!(Some(screen.size()), black.screen_size());
        assert_eq!(black.evaluate(soon()), Ok(0.0));
        assert_eq!(counts.injected(), BTreeMap::from([(Fault::BlackScreen, 1)]));

        let (mut truncated, _) = only(|config| config.truncated_screen = 1.0);
        let (width, height) = truncated.screen_size().unwrap();
        truncated.reset(task, 1, soon()).unwrap();
        let stepped = truncated.step(&Action::Wait {}, soon()).unwrap();
        assert_eq!(stepped.screen.size(), (width, height / 2));

        let (mut unevaluated, counts) = only(|config| (config.evaluator_error, config.slow) = (0.5, 0.5));
        unevaluated.reset(task, 1, soon()).unwrap();
        let evaluated: Vec<bool> = (0..100).map(|_| unevaluated.evaluate(soon()).is_ok()).collect();
        let (slow, failed) = (counts.injected()[&Fault::Slow], counts.injected()[&Fault::EvaluatorError]);
        assert_eq!(evaluated.iter().filter(|evaluated| !**evaluated).count() as u64, failed);
        assert!((20..=80).contains(&failed) && slow >= 100 - failed);
    }

    #[test]
    fn the_same_episode_has_the_same_faults_on_any_desktop() {
        let task = &Suite::Pocket.tasks(Split::Train)[0];
        let config = FaultsConfig { crash: 0.2, black_screen: 0.2, ..FaultsConfig::default() };
        let trace = |episode_seed, before: u64| {
            let (mut desktop, _) = desktop(config.clone());
            if before > 0 {
                let _ = desktop.reset(task, before, soon());
                desktop.crashed = false;
            }
            let first = desktop.reset(task, episode_seed, soon()).is_ok();
            let black = |stepped: StepResult| {
                stepped.screen.image().unwrap().as_raw().iter().all(|&level| level == 0)
            };
            let steps = (0..9).map(|_| desktop.step(&Action::Wait {}, soon()).ok().map(black));
            (first, steps.collect::<Vec<_>>())
        };
        let traces: Vec<_> = (1..20).map(|seed| trace(seed, 0)).collect();
        assert_eq!(traces, (1..20).map(|seed| trace(seed, seed + 50)).collect::<Vec<_>>());
        assert!(traces.iter().any(|one| *one != traces[0]));
    }
}
