//! Fault injection: a source whose desktops fail on purpose.

use crate::{EnvironmentSource, HostUse, SuiteError};
use arpo_core::config::{Config, FaultsConfig};
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_env::faults::{FaultCounts, FaultyDesktop};
use std::collections::BTreeMap;
use std::sync::Arc;

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
        let desktop = self.source.make(slot)?;
        let (faults, counts) = (self.faults.clone(), Arc::clone(&self.counts));
        Ok(Box::new(FaultyDesktop::new(desktop, faults, self.seed, counts)))
    }

    fn close(&self) -> Result<(), SuiteError> {
        self.source.close()
    }
}
