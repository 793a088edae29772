//! The environments port: the tasks and desktops that a configuration names. No libtorch here, so that a program that only
//! hosts desktops stays small.
//!
//! | to change | look in |
//! |---|---|
//! | the embedded desktop, as configured | [`embedded`] |
//! | OSWorld's tasks, containers and virtual machines | [`osworld`] |
//! | which of a suite's tasks are trained and evaluated on | [`task_lists`] |
//! | desktops that fail on purpose | [`faulty`] |
//! | episodes recorded in result folders | [`recorded`] |

pub mod embedded;
mod error;
pub mod faulty;
pub mod osworld;
pub mod recorded;
pub mod task_lists;

pub use error::SuiteError;
pub use faulty::FaultySource;
pub use recorded::RecordedSource;

use arpo_agent::geometry::Size;
use arpo_core::config::{Config, SuiteChoice};
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_env::tasks::Suite;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Where tasks and desktops come from. A function that creates a desktop is a source, too: one without tasks.
pub trait EnvironmentSource: Send + Sync {
    /// The tasks that can be trained on.
    fn tasks(&self) -> Result<Vec<Task>, SuiteError> {
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
    fn open(&self) -> Result<(), SuiteError> {
        Ok(())
    }

    /// How many desktops there is room for at present, if that is limited; known after [`Self::open`].
    fn max_desktops(&self) -> Option<usize> {
        None
    }

    /// What its hosts have done so far; empty if all desktops are in this process.
    fn hosts(&self) -> Vec<HostUse> {
        vec![]
    }

    /// The host of each desktop, by slot; empty if all desktops are in this process.
    fn places(&self) -> BTreeMap<usize, String> {
        BTreeMap::new()
    }

    /// Creates the desktop of a slot. Called again for a replacement, it first frees what the previous desktop still holds
    /// outside this program.
    fn make(&self, slot: usize) -> Result<Box<dyn Environment>, EnvironmentError>;

    /// Removes everything that desktops have left outside this program, including desktops held by hanging threads.
    fn close(&self) -> Result<(), SuiteError> {
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

/// What the desktops of a host have done, from the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostUse {
    /// Its name.
    pub host: String,
    /// The time of its desktops, summed: two desktops for a second are two seconds.
    pub desktops: Duration,
    /// How much of that they were in calls.
    pub busy: Duration,
    /// Failures of its desktops and workers.
    pub failures: u64,
    /// Bytes of its screens.
    pub received: u64,
}

/// The source of the suite that a configuration names.
pub fn source(config: &Config) -> Result<Arc<dyn EnvironmentSource>, SuiteError> {
    Ok(match config.tasks.suite {
        SuiteChoice::Osworld => Arc::new(osworld::OsworldSource::new(config.clone())),
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
