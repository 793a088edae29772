//! The section for the rollout engine: what samples responses while training, here or on inference servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What samples responses while training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// The engine that samples.
    pub engine: RolloutEngine,
    /// Base URLs of inference servers that are already running, as `http://host:port`, without `/v1`. `--servers` sets
    /// them, and vLLM as the engine. Each is given the run's weights before it is asked anything.
    pub servers: Vec<String>,
    /// A command that starts a server, such as `vllm serve --dtype float32`: it is given the model, its port and the
    /// options that training needs, one server for each of `rollout.gpus`. Its servers are started again when they die and
    /// ended with the run. Empty: the servers of `rollout.servers`.
    pub start: String,
    /// The GPUs of the servers that `rollout.start` starts, one server each, as `CUDA_VISIBLE_DEVICES` names them. Empty:
    /// one server. Without effect on the built-in engine, whose GPUs are those of the ranks (`learn.gpus`).
    pub gpus: Vec<String>,
    /// The folder that new weights are saved to, one for each run: this program and all servers must reach it under the
    /// same path. Empty: `sampler` in the run folder.
    pub weights: String,
    /// The environment variable that holds the servers' API key, if they need one.
    pub key_variable: String,
    /// Requests that a server has at once, at most; further ones wait here.
    #[schemars(range(min = 1, max = 10_000))]
    pub requests: usize,
    /// Timeout of one request for a response, in seconds. A server that misses it is asked nothing until it has said
    /// that it still has the weights, or has been given them again.
    #[schemars(range(min = 0.1, max = 86_400.0))]
    pub limit_seconds: f64,
    /// Timeout of one step of a weight update on a server, in seconds.
    #[schemars(range(min = 0.1, max = 86_400.0))]
    pub update_seconds: f64,
    /// How long a run waits for a server, at its start and when none is left, in seconds. Then a pending episode is lost, and
    /// without any server the run ends.
    #[schemars(range(min = 1.0, max = 86_400.0))]
    pub wait_seconds: f64,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            engine: RolloutEngine::Builtin,
            servers: vec![],
            start: String::new(),
            gpus: vec![],
            weights: String::new(),
            key_variable: "VLLM_API_KEY".into(),
            requests: 64,
            limit_seconds: 120.0,
            update_seconds: 300.0,
            wait_seconds: 600.0,
        }
    }
}

/// An engine that samples responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutEngine {
    /// The built-in engine, in this process.
    Builtin,
    /// vLLM's servers.
    Vllm,
    /// `SGLang`'s servers.
    Sglang,
}

impl RolloutConfig {
    /// Rules between the keys.
    pub(super) fn check(&self) -> Result<(), String> {
        let (served, started) = (!self.servers.is_empty(), !self.start.trim().is_empty());
        if self.engine == RolloutEngine::Builtin {
            return match (served, started) {
                (false, false) => Ok(()),
                _ => Err("`rollout.engine` = \"builtin\" uses no servers: expected \"vllm\" or \"sglang\", or neither \
                          `rollout.servers` nor `rollout.start`"
                    .into()),
            };
        }
        match (served, started) {
            (false, false) => Err(
                "`rollout.engine` needs servers: expected `rollout.servers` = [\"http://host:port\"], or \
                                   `rollout.start` = \"vllm serve\""
                    .into(),
            ),
            (true, true) => {
                Err("`rollout.servers` and `rollout.start` are both set: expected one of them".into())
            }
            (false, true) if has_option(&self.start, "--port") => Err(
                "`rollout.start` has --port: expected a command without it, because every server is given a free port"
                    .into(),
            ),
            _ => match self.servers.iter().find(|server| !is_base_url(server)) {
                Some(server) => Err(format!(
                    "`rollout.servers`: {server:?} is no base URL: expected http://host:port, without /v1"
                )),
                None => Ok(()),
            },
        }
    }
}

/// Whether a command, such as `rollout.start`, has an option, with its value after a space or after `=`.
pub fn has_option(command: &str, option: &str) -> bool {
    command.split_whitespace().any(|word| word.split('=').next() == Some(option))
}

/// Whether this is `http://host:port` or the same with `https`.
fn is_base_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.map(|rest| rest.trim_end_matches('/')).is_some_and(|host| {
        !host.is_empty() && !host.contains(|letter: char| letter == '/' || letter.is_whitespace())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_given_or_started() {
        let config = |engine, servers: &[&str], start: &str| RolloutConfig {
            engine,
            servers: servers.iter().map(|&server| server.into()).collect(),
            start: start.into(),
            ..RolloutConfig::default()
        };
        let vllm = |servers: &[&str], start: &str| config(RolloutEngine::Vllm, servers, start).check();
        assert_eq!(RolloutConfig::default().check(), Ok(()));
        assert_eq!(vllm(&["http://a:1", "https://b/"], ""), Ok(()));
        assert_eq!(vllm(&[], "vllm serve"), Ok(()));
        assert!(vllm(&[], " ").unwrap_err().contains("needs servers"));
        assert!(vllm(&["http://a:1"], "vllm serve").unwrap_err().contains("both"));
        for wrong in ["vllm serve --port 9000", "vllm serve --port=9000 --dtype float32"] {
            assert!(vllm(&[], wrong).unwrap_err().starts_with("`rollout.start` has --port"), "{wrong}");
        }
        assert_eq!(vllm(&[], "vllm serve --port-range 1"), Ok(()));
        for wrong in ["a:1", "http://", "http://a:1/v1", "http://a b"] {
            assert!(vllm(&[wrong], "").unwrap_err().contains("without /v1"), "{wrong}");
        }
        let builtin = config(RolloutEngine::Builtin, &["http://a:1"], "").check();
        assert!(builtin.unwrap_err().contains("uses no servers"));
        // runs are stored with it, which may be resumed
        let without_effect = RolloutConfig { gpus: vec!["1".into()], ..RolloutConfig::default() }.check();
        assert_eq!(without_effect, Ok(()));
    }
}
