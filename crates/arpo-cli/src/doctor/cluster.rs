//! Checks the hosts of a cluster before a run: workers are started as for a run, and each is asked what its host has.

use super::{Finding, Status};
use arpo_cluster::hub::Hub;
use arpo_core::config::Config;
use arpo_suite::EnvironmentSource;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Name of the findings.
const NAME: &str = "cluster";

/// Longest answer of a host: its Docker engine may be slow.
const LIMIT: Duration = Duration::from_secs(30);

/// A finding for each worker, and one for whatever prevented workers from coming.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    let mut config = config.clone();
    // nothing is started in advance
    config.osworld.spares = 0;
    let config = &config;
    let said = Arc::<Mutex<Vec<String>>>::default();
    let lines = Arc::clone(&said);
    let log = move |line: &str| lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    let found =
        match arpo_cluster::check(config).and_then(|()| arpo_cluster::hub(config, None, log, || false)) {
            Ok(None) => vec![],
            Ok(Some(hub)) => opened(&hub),
            Err(error) => vec![broken(error.to_string())],
        };
    // refused peers and jobs that end say so there
    let said = std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner));
    let refused = said.into_iter().filter(|line| line.starts_with("refused") || line.contains("has ended"));
    found.into_iter().chain(refused.map(broken)).collect()
}

fn opened(hub: &Hub) -> Vec<Finding> {
    if let Err(error) = hub.open() {
        return vec![broken(error.to_string())];
    }
    let findings = hub.inspect(LIMIT).into_iter().map(|(host, desktops, inspected)| match inspected {
        Ok(inspection) => {
            let memory = inspection.memory_gib.map(|gib| format!(", {gib:.0} GiB of memory"));
            let memory = memory.unwrap_or_default();
            let has = format!(
                "{host}: version {}, {desktops} desktops, {} processors{memory}",
                env!("CARGO_PKG_VERSION"),
                inspection.processors
            );
            match inspection.problem {
                None => Finding::usable(NAME, has),
                Some(problem) => broken(format!("{has}: {problem}")),
            }
        }
        Err(error) => broken(format!("{host}: {error}")),
    });
    findings.collect()
}

fn broken(detail: String) -> Finding {
    Finding { status: Status::Broken, ..Finding::usable(NAME, detail) }
}
