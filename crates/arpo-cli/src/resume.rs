//! Resuming from a folder: its stored configuration is used, and the command line may only change what does not change
//! results, unless the user asks for it.

use crate::Failure;
use crate::config::Layers;
use arpo_core::config::Config;
use arpo_train::memory_plan::Work;
use arpo_train::run::config_changes::may_change;
use arpo_train::run::folder::{ConfigChange, config_changes};
use arpo_train::run::{RunError, RunFolder, Start};
use arpo_train::style_choice;
use arpo_train::trainer::setup;
use std::io::Write;
use std::path::Path;

/// Opens a run folder; unexpected contents are a usage error.
pub(crate) fn start(path: &Path, start: Start) -> Result<RunFolder, Failure> {
    RunFolder::start(path, start).map_err(|error| match error {
        RunError::NotEmpty { .. } | RunError::NoRun { .. } => Failure::usage(error),
        other => Failure::failed(other),
    })
}

/// Opens the folder and applies the layers to its stored configuration. Unless `allow_all`, changes that affect results
/// are rejected, and `hint` tells the user what to do.
pub(crate) fn resume(
    path: &Path,
    layers: &Layers,
    allow_all: bool,
    hint: &str,
) -> Result<(RunFolder, Config), Failure> {
    let folder = start(path, Start::Resume)?;
    if let Some(preset) = layers.preset() {
        let note =
            format!("note: --preset {preset} is ignored: a resumed run uses the configuration in its folder");
        let _ = writeln!(std::io::stderr(), "{note}");
    }
    let was = stored(&folder)?;
    let config = layers.resolve_over(&name(&folder), &was.to_toml())?;
    let rejected = rejected_changes(&was, &config);
    if allow_all || rejected.is_empty() {
        return Ok((folder, config));
    }
    Err(Failure::usage(format!(
        "--resume: this would change the run in {}: {}; {hint}",
        path.display(),
        rejected.join("; ")
    )))
}

/// The changes that a resumed run must not have, as text.
pub(crate) fn rejected_changes(was: &Config, is: &Config) -> Vec<String> {
    let changes = config_changes(&was.to_toml(), &is.to_toml());
    changes.iter().filter(|change| !may_change(&change.key)).map(ConfigChange::description).collect()
}

/// The stored configuration of a folder. Keys that did not exist when it was written have their defaults.
pub(crate) fn stored(folder: &RunFolder) -> Result<Config, Failure> {
    let text = folder.config().map_err(Failure::failed)?.unwrap_or_default();
    Layers::default().resolve_over(&name(folder), &text)
}

fn name(folder: &RunFolder) -> String {
    folder.path().join("config.toml").display().to_string()
}

/// Takes what the configuration leaves to the model from the model; returns a line that says which style that is, for
/// [`say`], once nothing else is wrong.
pub(crate) fn settle_style(config: &mut Config) -> Result<Option<String>, Failure> {
    style_choice::settle(config).map_err(Failure::usage)
}

/// Prints a line to stderr.
pub(crate) fn say(line: Option<String>) {
    if let Some(line) = line {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Resumes a folder, or starts a new one after checking its configuration.
pub(crate) fn resume_or_start(
    path: &Path,
    layers: &Layers,
    resumed: bool,
    work: Work,
) -> Result<(RunFolder, Config), Failure> {
    if resumed {
        return resume(path, layers, false, "leave it out");
    }
    let mut config = layers.resolve()?;
    let style = settle_style(&mut config)?;
    setup::check(&config, work).map_err(Failure::usage)?;
    say(style);
    let folder = start(path, Start::New)?;
    folder.write_config(&config.to_toml()).map_err(Failure::failed)?;
    Ok((folder, config))
}
