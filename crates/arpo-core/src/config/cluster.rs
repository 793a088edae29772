//! The section for desktops in other processes and on other machines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Desktops in other processes and on other machines, hosted by workers (`arpo-worker`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Where the desktops are: empty for this process; `local:4` for four worker processes on this machine, which the
    /// program starts and ends; `ray://HEAD:8265` for workers on the hosts of the Ray cluster with its dashboard there;
    /// `listen` for workers that somebody else starts and that connect to `cluster.listen`. `--cluster` sets it, too.
    pub workers: String,
    /// The address that this program listens on for workers. Empty: `127.0.0.1:7700` for `listen`; for Ray any free port of
    /// this machine's address on the way to Ray's head. For `listen` beyond this machine a token is required: the same
    /// `ARPO_CLUSTER_TOKEN` in the environment of this program and of every worker. With Ray, workers are given it.
    pub listen: String,
    /// For Ray: the host, or HOST:PORT, that workers reach this program under, if it is another one than that of
    /// `cluster.listen`, such as that of a tunnel. Empty: the same.
    pub advertise: String,
    /// For Ray: the path of `arpo-worker` on every host, such as that of a shared file system. Empty: Ray brings the program
    /// to its hosts, and nothing is installed by hand.
    pub worker_path: String,
    /// How many hosts (with `local:N`, processes) may be lost while the others still have room for all desktops, as far as they
    /// offer it. Ray's hosts then hold that much more of their resource; desktops are started only where they are needed.
    #[schemars(range(max = 1000))]
    pub spare_hosts: usize,
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
            listen: String::new(),
            advertise: String::new(),
            worker_path: String::new(),
            spare_hosts: 1,
            grace_seconds: 30.0,
            start_seconds: 120.0,
            quarantine_after: 8,
            quarantine_seconds: 60.0,
        }
    }
}

/// How workers come to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workers {
    /// There are none: the desktops are in this process.
    None,
    /// This many processes on this machine.
    Local(usize),
    /// A Ray cluster starts them, whose dashboard is at this `HOST:PORT`.
    Ray(String),
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
                "`cluster.workers` = {:?}: expected \"local:4\" (a number of processes from 1 to {}), \"ray://HEAD:8265\", \
                 \"listen\", or nothing",
                self.workers,
                Self::MOST_LOCAL
            )
        };
        match self.workers.as_str() {
            "" => Ok(Workers::None),
            "listen" => Ok(Workers::Listen),
            other if other.starts_with("ray://") => {
                let head = other.strip_prefix("ray://").filter(|head| is_host_and_port(head));
                head.map(|head| Workers::Ray(head.into())).ok_or_else(wrong)
            }
            other => {
                let count = other.strip_prefix("local:").and_then(|count| count.parse().ok());
                let count = count.filter(|count| (1..=Self::MOST_LOCAL).contains(count));
                count.map(Workers::Local).ok_or_else(wrong)
            }
        }
    }
}

/// Whether this is `HOST:PORT`, and can be a part of a URL.
fn is_host_and_port(text: &str) -> bool {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && host.chars().all(is_name) && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
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
        assert_eq!(placement("ray://head-1.x:8265"), Ok(Workers::Ray("head-1.x:8265".into())));
        for wrong in ["local", "local:0", "local:1000", "local:-1", "local:4 ", "Listen"] {
            assert_eq!(placement(wrong), Err(()), "{wrong}");
        }
        for wrong in
            ["ray://", "ray://head", "ray://head:0", "ray://head:x", "ray://:1", "ray://a/b:1", "ray://a@b:1"]
        {
            assert_eq!(placement(wrong), Err(()), "{wrong}");
        }
    }
}
