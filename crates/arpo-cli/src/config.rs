//! Configuration on the command line: the layers shared by all commands, and `arpo config`.

use crate::Failure;
use arpo_core::config::presets::PRESETS;
use arpo_core::config::{Config, Layer, reference, resolve};
use clap::{Args, Subcommand};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

fn preset_help() -> String {
    let names: Vec<&str> = PRESETS.iter().skip(1).map(|(name, _)| *name).collect();
    format!("Start from a preset: {} (default), {}", PRESETS[0].0, names.join(", "))
}

/// The layers of a configuration; later ones override earlier ones.
#[derive(Args, Default, Clone)]
pub(crate) struct Layers {
    #[arg(long, value_name = "NAME", help = preset_help())]
    preset: Option<String>,
    /// Apply a TOML file on top; may be repeated
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Then set a single key, such as seed=7; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Where the desktops are: `local:4` for four worker processes on this machine, `ray://HEAD:8265` for the hosts of a Ray
    /// cluster, listen for workers that connect to `cluster.listen`; the same as --set cluster.workers=...
    #[arg(long, value_name = "WORKERS")]
    cluster: Option<String>,
    /// What other options of a command set, above all of these.
    #[arg(skip)]
    last: Vec<Layer>,
}

impl Layers {
    /// True if no layer was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.preset.is_none() && self.config.is_empty() && self.set.is_empty() && self.cluster.is_none()
    }

    /// With vLLM's servers as the rollout engine; a `--set` may name another kind of servers.
    pub(crate) fn with_servers(&self, servers: &[String]) -> Self {
        let mut layers = self.clone();
        if !servers.is_empty() {
            layers.set.insert(0, "rollout.engine=\"vllm\"".into());
            layers.set.push(format!("rollout.servers={servers:?}"));
        }
        layers
    }

    /// With so many processes that sample and learn together.
    pub(crate) fn with_ranks(&self, ranks: Option<usize>) -> Self {
        let mut layers = self.clone();
        layers.set.extend(ranks.map(|ranks| format!("learn.ranks={ranks}")));
        layers
    }

    /// With layers above all others.
    pub(crate) fn with_last(&self, last: Vec<Layer>) -> Self {
        Self { last, ..self.clone() }
    }

    /// Applies files and single keys to a run's stored configuration, which has this name in messages. The stored one is
    /// complete, so a preset below it would have no effect.
    pub(crate) fn resolve_over(&self, name: &str, stored: &str) -> Result<Config, Failure> {
        self.add_to(vec![Layer::toml(name, stored).map_err(Failure::usage)?])
    }

    /// The preset that was given.
    pub(crate) fn preset(&self) -> Option<&str> {
        self.preset.as_deref()
    }

    /// The resolved configuration.
    pub(crate) fn resolve(&self) -> Result<Config, Failure> {
        self.resolve_after(PRESETS[0].0, None)
    }

    /// The same for a command with its own default preset, and with settings (name and text) that are applied right after
    /// the preset.
    pub(crate) fn resolve_after(
        &self,
        preset: &str,
        settings: Option<(&str, &str)>,
    ) -> Result<Config, Failure> {
        let preset = self.preset.as_deref().unwrap_or(preset);
        let mut layers = vec![Layer::preset(preset).map_err(Failure::usage)?];
        if let Some((name, text)) = settings {
            layers.push(Layer::toml(name, text).map_err(Failure::usage)?);
        }
        self.add_to(layers)
    }

    /// Adds files, single keys and what other options set to other layers.
    fn add_to(&self, mut layers: Vec<Layer>) -> Result<Config, Failure> {
        for path in &self.config {
            let name = path.display().to_string();
            let text = fs::read_to_string(path)
                .map_err(|error| Failure::usage(format!("--config {name}: {error}")))?;
            layers.push(Layer::toml(&name, &text).map_err(Failure::usage)?);
        }
        for assignment in &self.set {
            layers.push(Layer::set(assignment).map_err(Failure::usage)?);
        }
        if let Some(workers) = &self.cluster {
            let assignment = format!("cluster.workers={workers:?}");
            layers.push(Layer::set(&assignment).map_err(Failure::usage)?);
        }
        layers.extend_from_slice(&self.last);
        resolve(&layers).map_err(Failure::usage)
    }
}

/// The arguments of `arpo config`.
#[derive(Args)]
pub(crate) struct ConfigArguments {
    #[command(subcommand)]
    topic: Topic,
}

#[derive(Subcommand)]
enum Topic {
    /// Print every key with its default, values and meaning, as Markdown
    Reference,
}

pub(crate) fn run(arguments: &ConfigArguments, out: &mut impl Write) -> Result<(), Failure> {
    match arguments.topic {
        Topic::Reference => Ok(write!(out, "{}", reference::markdown())?),
    }
}
