//! Asks the Docker engine for its version; the command-line client is not needed.

use super::Finding;
use arpo_osworld::provider::{EngineVersion, ProviderError, engine_version};

/// Name of the finding.
pub(super) const NAME: &str = "Docker";

/// Checks whether an engine responds.
pub(super) fn engine() -> Finding {
    finding(engine_version())
}

fn finding(answer: Result<EngineVersion, ProviderError>) -> Finding {
    let needed_for = "container desktops and OSWorld";
    let install = "apt-get install docker.io && systemctl start docker";
    match answer {
        Ok(EngineVersion { host, version }) => Finding::usable(
            NAME,
            format!("engine {version} at {host}; desktops reach nothing outside (osworld.network)"),
        ),
        Err(ProviderError::NoEngine { host, problem }) => {
            Finding::missing(NAME, format!("no engine at {host}: {problem}"), needed_for, install)
        }
        Err(ProviderError::Forbidden { host }) => {
            let detail = format!("permission denied for the engine at {host}");
            Finding::broken(NAME, detail, needed_for, "usermod -aG docker $USER, then log in again")
        }
        Err(error) => Finding::broken(NAME, error.to_string(), needed_for, install),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn an_engine_that_refuses_is_broken_and_one_that_is_not_there_is_missing() {
        let host = || "unix:///x".to_owned();
        let missing = finding(Err(ProviderError::NoEngine { host: host(), problem: "no such file".into() }));
        assert!(missing.status == Status::Missing && missing.detail.contains("unix:///x"));
        let refused = finding(Err(ProviderError::Forbidden { host: host() }));
        assert!(
            refused.status == Status::Broken && refused.command.is_some_and(|way| way.contains("usermod"))
        );
        let version = "27.1".into();
        assert!(finding(Ok(EngineVersion { host: host(), version })).detail.contains("engine 27.1"));
    }
}
