//! The section for desktops in other processes and on other machines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desktops in other processes and on other machines, hosted by workers (`arpo-worker`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Where the desktops are: empty for this process; `local:4` for four worker processes on this machine, which the
    /// program starts and ends; `listen` for workers that somebody else starts and that connect to `cluster.listen`.
    /// `--cluster` sets it, too.
    pub workers: String,
    /// The address that workers connect to, for `listen`. Beyond this machine, a token is required: the same
    /// `ARPO_CLUSTER_TOKEN` in the environment of this program and of every worker.
    pub listen: String,
    /// How long a worker may be unreachable, in seconds. Within this time it reconnects and its episodes go on; after it they
    /// are lost and started again on other desktops, and the worker removes its own.
    #[schemars(range(min = 1.0, max = 3600.0))]
    pub grace_seconds: f64,
    /// How long a run waits for its first workers, in seconds.
    #[schemars(range(min = 1.0, max = 86_400.0))]
    pub start_seconds: f64,
    /// After this many failures in a row the desktops of a host, however many, are given no more work.
    #[schemars(range(min = 1, max = 1000))]
    pub quarantine_after: usize,
    /// For this many seconds, doubled each time it happens again, up to 16 times as long. A host that is the only one left
    /// is used in any case.
    #[schemars(range(min = 1.0, max = 86_400.0))]
    pub quarantine_seconds: f64,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            workers: String::new(),
            listen: "127.0.0.1:7700".into(),
            grace_seconds: 30.0,
            start_seconds: 120.0,
            quarantine_after: 8,
            quarantine_seconds: 60.0,
        }
    }
}

/// How workers come to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// There are none: the desktops are in this process.
    None,
    /// This many processes on this machine.
    Local(usize),
    /// Somebody else starts them.
    Listen,
}

impl ClusterConfig {
    /// Most worker processes on this machine.
    const MOST_LOCAL: usize = 256;

    /// How workers come to the run; an error names what was expected.
    pub fn placement(&self) -> Result<Workers, String> {
        let wrong = || {
            format!(
                "`cluster.workers` = {:?}: expected \"local:4\" (a number of processes from 1 to {}), \"listen\", or \
                 nothing",
                self.workers,
                Self::MOST_LOCAL
            )
        };
        match self.workers.as_str() {
            "" => Ok(Workers::None),
            "listen" => Ok(Workers::Listen),
            other => {
                let count = other.strip_prefix("local:").and_then(|count| count.parse().ok());
                let count = count.filter(|count| (1..=Self::MOST_LOCAL).contains(count));
                count.map(Workers::Local).ok_or_else(wrong)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_none_local_or_somebody_elses() {
        let placement = |text: &str| {
            ClusterConfig { workers: text.into(), ..ClusterConfig::default() }.placement().map_err(
                |problem| {
                    assert!(
                        problem.contains("`cluster.workers`") && problem.contains("expected"),
                        "{problem}"
                    );
                },
            )
        };
        assert_eq!(placement(""), Ok(Workers::None));
        assert_eq!(placement("local:4"), Ok(Workers::Local(4)));
        assert_eq!(placement("listen"), Ok(Workers::Listen));
        for wrong in ["local", "local:0", "local:1000", "local:-1", "local:4 ", "ray://head:8265", "Listen"] {
            assert_eq!(placement(wrong), Err(()), "{wrong}");
        }
    }
}
