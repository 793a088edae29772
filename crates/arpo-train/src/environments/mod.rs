//! The environments port: a suite's tasks and desktops.
//!
//! | to change | look in |
//! |---|---|
//! | the embedded desktop, as configured | [`embedded`] |
//! | OSWorld's tasks, containers and virtual machines | [`osworld`] |
//! | which of a suite's tasks are trained and evaluated on | [`task_lists`] |

pub mod embedded;
pub mod osworld;
pub mod task_lists;

use crate::TrainError;
use arpo_agent::geometry::Size;
use arpo_core::config::{Config, FaultsConfig, SuiteChoice};
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_env::faults::{FaultCounts, FaultyDesktop};
use arpo_env::tasks::Suite;
use std::sync::Arc;

/// Where tasks and desktops come from. A function that creates a desktop is a source, too: one without tasks.
pub trait EnvironmentSource: Send + Sync {
    /// The tasks that can be trained on.
    fn tasks(&self) -> Result<Vec<Task>, TrainError> {
        Ok(vec![])
    }

    /// Tasks of other templates, which are never trained on.
    fn held_out(&self) -> Vec<Task> {
        vec![]
    }

    /// The suite whose templates generate further tasks, if there is one.
    fn templates(&self) -> Option<Suite> {
        None
    }

    /// [`Self::tasks`] already returns only the tasks of `tasks.list`.
    fn is_listed(&self) -> bool {
        false
    }

    /// Connects to the provider of the desktops, to find out early what is missing.
    fn open(&self) -> Result<(), TrainError> {
        Ok(())
    }

    /// Creates the desktop of a slot. Called again for a replacement, it first frees what the previous desktop still holds
    /// outside this program.
    fn make(&self, slot: usize) -> Result<Box<dyn Environment>, EnvironmentError>;

    /// Removes everything that desktops have left outside this program, including desktops held by hanging threads.
    fn close(&self) -> Result<(), TrainError> {
        Ok(())
    }
}

impl<F> EnvironmentSource for F
where
    F: Fn(usize) -> Result<Box<dyn Environment>, EnvironmentError> + Send + Sync,
{
    fn make(&self, slot: usize) -> Result<Box<dyn Environment>, EnvironmentError> {
        self(slot)
    }
}

/// The source of the suite that a configuration names.
pub fn source(config: &Config) -> Result<Arc<dyn EnvironmentSource>, TrainError> {
    Ok(match config.tasks.suite {
        SuiteChoice::Osworld => Arc::new(osworld::OsworldSource::new(config.clone(), None)),
        SuiteChoice::Pocket | SuiteChoice::Desktop => {
            Arc::new(embedded::EmbeddedSource::new(config, embedded::suite(config)?)?)
        }
    })
}

/// The size of the screens of the suite that a configuration names.
pub fn screen_size(config: &Config) -> Size {
    const OSWORLD: Size = Size { width: 1920, height: 1080 };
    let Ok(suite) = embedded::suite(config) else { return OSWORLD };
    let screen = embedded::screen(config, suite).unwrap_or_else(|_| suite.screen());
    Size { width: screen.width, height: screen.height }
}

/// A source whose desktops fail on purpose, as configured in `[faults]`; every fault is counted.
pub struct FaultySource {
    source: Arc<dyn EnvironmentSource>,
    faults: FaultsConfig,
    seed: u64,
    counts: Arc<FaultCounts>,
}

impl FaultySource {
    /// Wraps a source; returns it unchanged if the configuration has no faults.
    pub fn wrap(
        source: Arc<dyn EnvironmentSource>,
        config: &Config,
        counts: &Arc<FaultCounts>,
    ) -> Arc<dyn EnvironmentSource> {
        if !config.faults.any() {
            return source;
        }
        let (faults, seed, counts) = (config.faults.clone(), config.seed, Arc::clone(counts));
        Arc::new(Self { source, faults, seed, counts })
    }
}

impl EnvironmentSource for FaultySource {
    fn open(&self) -> Result<(), TrainError> {
        self.source.open()
    }

    fn make(&self, slot: usize) -> Result<Box<dyn Environment>, EnvironmentError> {
        let desktop = self.source.make(slot)?;
        let (faults, counts) = (self.faults.clone(), Arc::clone(&self.counts));
        Ok(Box::new(FaultyDesktop::new(desktop, faults, self.seed, counts)))
    }

    fn close(&self) -> Result<(), TrainError> {
        self.source.close()
    }
}
