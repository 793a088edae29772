//! A source whose episodes are recorded in OSWorld's result folders, on this machine, wherever its desktops are.

pub use arpo_osworld::results::record::Trial;

use crate::{EnvironmentSource, HostUse, SuiteError};
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_env::tasks::Suite;
use arpo_osworld::results::recorder::RecordedDesktop;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Records the episodes of another source in the folder of a trial.
pub struct RecordedSource {
    source: Arc<dyn EnvironmentSource>,
    trial: Trial,
}

impl RecordedSource {
    /// Records a source.
    pub fn new(source: Arc<dyn EnvironmentSource>, trial: Trial) -> Self {
        Self { source, trial }
    }
}

impl EnvironmentSource for RecordedSource {
    fn tasks(&self) -> Result<Vec<Task>, SuiteError> {
        self.source.tasks()
    }

    fn held_out(&self) -> Vec<Task> {
        self.source.held_out()
    }

    fn templates(&self) -> Option<Suite> {
        self.source.templates()
    }

    fn is_listed(&self) -> bool {
        self.source.is_listed()
    }

    fn open(&self) -> Result<(), SuiteError> {
        self.source.open()
    }

    fn max_desktops(&self) -> Option<usize> {
        self.source.max_desktops()
    }

    fn hosts(&self) -> Vec<HostUse> {
        self.source.hosts()
    }

    fn places(&self) -> BTreeMap<usize, String> {
        self.source.places()
    }

    fn make(&self, slot: usize) -> Result<Box<dyn Environment>, EnvironmentError> {
        Ok(Box::new(RecordedDesktop::new(self.source.make(slot)?, self.trial.clone())))
    }

    fn close(&self) -> Result<(), SuiteError> {
        self.source.close()
    }
}
