//! `arpo train`.

use crate::config::Layers;
use crate::memory;
use crate::show::{Show, ShowArguments};
use crate::{Failure, write_json};
use arpo_core::config::Config;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::{RunFolder, Start};
use arpo_train::trainer;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What `arpo train` takes.
#[derive(Args)]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    layers: Layers,
    /// The run's folder; without it a new one under runs/
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Go on with the run in --out
    #[arg(long, requires = "out")]
    resume: bool,
    /// Print the resolved configuration and what memory it needs, and stop
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: ShowArguments,
}

pub(crate) fn run(arguments: &TrainArguments, out: &mut impl Write) -> Result<(), Failure> {
    let config = arguments.layers.resolve()?;
    if arguments.dry_run {
        if arguments.show.json {
            return write_json(&config, out);
        }
        write!(out, "{}", config.to_toml())?;
        // as comments: what is printed stays a configuration
        for line in memory::report(&config).lines() {
            writeln!(out, "# {line}")?;
        }
        return Ok(());
    }
    let start = if arguments.resume { Start::Resume } else { Start::New };
    let path = arguments.out.clone().unwrap_or_else(|| new_folder(&config));
    let folder = RunFolder::start(&path, start).map_err(Failure::failed)?;
    check_resumed(&folder, &config)?;
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let mut show = Show::new(arguments.show, out);
    let trained = trainer::train(&config, &folder, start, &stop, &mut |event| show.event(&event));
    let shown = show.finish();
    trained.map_err(Failure::failed)?;
    Ok(shown?)
}

/// The first name under `runs/` that is free: the method and a number.
fn new_folder(config: &Config) -> PathBuf {
    let method = if config.replay.enabled { "arpo" } else { "grpo" };
    let name = |number: u32| Path::new("runs").join(format!("{method}-{number:03}"));
    // where all are taken the last one says so
    (1..=999).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(999))
}

/// A run goes on with the configuration it began with, but for its length.
fn check_resumed(folder: &RunFolder, config: &Config) -> Result<(), Failure> {
    const MAY_CHANGE: [&str; 4] =
        ["iterations", "checkpoints.every", "checkpoints.keep", "checkpoints.episodes_every"];
    let changes = folder.config_changes(&config.to_toml()).map_err(Failure::failed)?;
    let Some(change) = changes.iter().find(|change| !MAY_CHANGE.contains(&change.key.as_str())) else {
        return Ok(());
    };
    let said = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
    Err(Failure::usage(format!(
        "--resume: `{}` = {}: the run in {} began with {}",
        change.key,
        said(&change.is),
        folder.path().display(),
        said(&change.was)
    )))
}
