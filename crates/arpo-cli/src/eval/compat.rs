//! The options of OSWorld's own evaluation script for UI-TARS, under their original names, so that an existing command line
//! works. Each sets a key of the configuration; options without a meaning here are accepted and ignored.

use crate::Failure;
use arpo_core::config::{Config, DesktopChoice, Layer};
use arpo_train::policy::chat::ChatPolicy;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of servers that OSWorld's launcher starts, on consecutive ports.
const SERVERS: u16 = 8;
/// Timeout for finding out which of them respond.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// What an option that only OSWorld has implies.
const IMPLIED: &str = "\
tasks.suite = \"osworld\"
# it has no templates to generate tasks from
tasks.generated = 0
tasks.endless = false
# OSWorld's script would fail at unsupported tasks when it reaches them
osworld.skip_missing = true
";

/// The options of OSWorld's script.
#[derive(Args)]
#[command(next_help_heading = "Options of OSWorld's script, under their original names")]
pub(super) struct CompatArguments {
    /// Ignored: no window is ever shown
    #[arg(long)]
    headless: bool,
    /// Only `screenshot` is supported
    #[arg(long = "observation_type", value_name = "WHAT")]
    observation_type: Option<String>,
    /// Only `pyautogui` is supported
    #[arg(long = "action_space", value_name = "WHAT")]
    action_space: Option<String>,
    /// The same as `--set collect.max_steps=...`
    #[arg(long = "max_steps", value_name = "TURNS")]
    max_steps: Option<usize>,
    /// The same as `--set osworld.give_up_at=...`: the response at this turn counts as giving up
    #[arg(long = "max_trajectory_length", value_name = "TURNS")]
    max_trajectory_length: Option<usize>,
    /// The same as `--set evaluation.temperature=...`
    #[arg(long, value_name = "NUMBER")]
    temperature: Option<f64>,
    /// The same as `--set chat.top_p=...`
    #[arg(long = "top_p", value_name = "SHARE")]
    top_p: Option<f64>,
    /// The same as `--set agent.max_tokens=...`
    #[arg(long = "max_tokens", value_name = "TOKENS")]
    max_tokens: Option<usize>,
    /// The same as `--set collect.desktops=...`
    #[arg(long = "num_envs", value_name = "DESKTOPS")]
    num_envs: Option<usize>,
    /// Seconds to wait after every action; the same as `--set osworld.pause_seconds=...`
    #[arg(long = "sleep_after_execution", value_name = "SECONDS")]
    sleep_after_execution: Option<f64>,
    /// The list of tasks; the same as `--set tasks.list=...`
    #[arg(long = "test_all_meta_path", value_name = "FILE")]
    test_all_meta_path: Option<String>,
    /// The folder of task files; the same as `--set osworld.tasks=...`
    #[arg(long = "test_config_base_dir", value_name = "DIR")]
    test_config_base_dir: Option<String>,
    /// The virtual machine's disk; the same as `--set osworld.desktop=vm --set osworld.vm_disk=...`
    #[arg(long = "path_to_vm", value_name = "FILE")]
    path_to_vm: Option<String>,
    /// The folder for results [default: results]
    #[arg(long = "result_dir", value_name = "DIR")]
    pub(super) result_dir: Option<PathBuf>,
    /// The number of the first trial [default: 0]
    #[arg(long = "trial-id", value_name = "NUMBER",
          value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(super) trial_id: Option<u32>,
    /// Use chat servers on this host as the policy
    #[arg(long = "server_ip", value_name = "URL")]
    server_ip: Option<String>,
    /// The first of the ports to try on that host
    #[arg(long = "server_port", value_name = "PORT", default_value_t = 9000)]
    server_port: u16,
    /// How many ports to try, from `--server_port` on; the servers that respond share the episodes in turn
    #[arg(long = "server_count", value_name = "NUMBER", default_value_t = SERVERS,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    server_count: u16,
}

impl CompatArguments {
    /// True if a chat server is the policy.
    pub(super) fn uses_chat(&self) -> bool {
        self.server_ip.is_some()
    }

    /// True if an option was given that only OSWorld has.
    pub(super) fn is_osworld(&self) -> bool {
        [&self.test_all_meta_path, &self.test_config_base_dir, &self.path_to_vm, &self.server_ip]
            .iter()
            .any(|given| given.is_some())
    }

    /// The options that set a key, as layers, which check their bounds; a message names the option.
    pub(super) fn layers(&self) -> Result<Vec<Layer>, Failure> {
        let whole = |value: usize| format!("{value}");
        let number = |value: f64| format!("{value:?}");
        // a string of JSON is one of TOML
        let text = |value: &String| serde_json::Value::from(value.as_str()).to_string();
        let vm = |_: &String| "\"vm\"".to_owned();
        let given = [
            ("max_steps", "collect.max_steps", self.max_steps.map(whole)),
            ("max_trajectory_length", "osworld.give_up_at", self.max_trajectory_length.map(whole)),
            ("temperature", "evaluation.temperature", self.temperature.map(number)),
            ("top_p", "chat.top_p", self.top_p.map(number)),
            ("max_tokens", "agent.max_tokens", self.max_tokens.map(whole)),
            ("num_envs", "collect.desktops", self.num_envs.map(whole)),
            ("sleep_after_execution", "osworld.pause_seconds", self.sleep_after_execution.map(number)),
            ("test_all_meta_path", "tasks.list", self.test_all_meta_path.as_ref().map(text)),
            ("test_config_base_dir", "osworld.tasks", self.test_config_base_dir.as_ref().map(text)),
            ("path_to_vm", "osworld.vm_disk", self.path_to_vm.as_ref().map(text)),
            ("path_to_vm", "osworld.desktop", self.path_to_vm.as_ref().map(vm)),
        ];
        let implied = self.is_osworld().then(|| Layer::toml("the options of OSWorld's script", IMPLIED));
        let set = |(option, key, value): (&str, &str, Option<String>)| {
            let value = value?;
            let layer = Layer::set(&format!("{key}={value}"));
            Some(layer.map(|layer| layer.named(&format!("--{option} {value}"))))
        };
        let layers = implied.into_iter().chain(given.into_iter().filter_map(set));
        layers.collect::<Result<_, _>>().map_err(Failure::usage)
    }

    /// Applies what no layer can say: it depends on this machine or on servers.
    pub(super) fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        for (option, value, only) in [
            ("observation_type", &self.observation_type, "screenshot"),
            ("action_space", &self.action_space, "pyautogui"),
        ] {
            if let Some(value) = value.as_deref().filter(|value| *value != only) {
                return Err(Failure::usage(format!(
                    "--{option} {value}: expected {only}, nothing else is supported"
                )));
            }
        }
        if self.is_osworld() && Path::new(&config.osworld.vm_disk).is_file() {
            config.osworld.desktop = DesktopChoice::Vm;
        }
        if let Some(host) = &self.server_ip {
            // OSWorld's script expects all eight; any of them is enough
            let ports = (0..self.server_count).filter_map(|offset| self.server_port.checked_add(offset));
            let host = host.trim_end_matches('/');
            let candidates: Vec<String> = ports.map(|port| format!("{host}:{port}/v1")).collect();
            let key = super::key(config);
            config.chat.servers =
                ChatPolicy::available(&candidates, key.as_deref(), &config.chat.key_variable, PROBE_TIMEOUT)
                    .map_err(Failure::failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layers;
    use arpo_core::config::SuiteChoice;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        layers: Layers,
        #[command(flatten)]
        compat: CompatArguments,
    }

    /// The configuration before what depends on this machine.
    fn configured(arguments: &[&str]) -> Config {
        let line = ["arpo"].iter().chain(arguments);
        let CommandLine { layers, compat } = CommandLine::parse_from(line);
        let last = compat.layers().ok().unwrap();
        layers.with_last(last).resolve().ok().unwrap()
    }

    #[test]
    fn options_win_over_every_other_layer() {
        let given = configured(&[
            "--set=collect.desktops=3",
            "--set=tasks.list=other.json",
            "--num_envs=5",
            "--temperature=1",
            "--test_all_meta_path=a \"list\".json",
            "--cluster=local:2",
        ]);
        assert_eq!((given.collect.desktops, given.evaluation.temperature), (5, 1.0));
        assert_eq!(given.tasks.list, "a \"list\".json");
        assert_eq!((given.tasks.suite, given.osworld.skip_missing), (SuiteChoice::Osworld, true));
        assert_eq!(configured(&["--set=collect.desktops=3"]).collect.desktops, 3);
    }

    #[test]
    fn osworlds_tasks_replace_generated_ones() {
        let generated = ["--set=tasks.generated=64", "--set=tasks.endless=true"];
        let given = configured(&[&generated[..], &["--path_to_vm=disk.qcow2"]].concat());
        assert_eq!((given.tasks.generated, given.tasks.endless), (0, false));
        assert_eq!(
            (given.osworld.desktop, given.osworld.vm_disk.as_str()),
            (DesktopChoice::Vm, "disk.qcow2")
        );
        assert_eq!(configured(&["--max_steps=9"]).tasks.suite, SuiteChoice::Pocket);
    }
}
