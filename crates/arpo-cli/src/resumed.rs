//! Going on with what is in a folder: the configuration is the folder's, and what the command line says otherwise must not
//! change results unless that is asked for.

use crate::Failure;
use crate::config::Layers;
use arpo_core::config::Config;
use arpo_train::memory_plan::Work;
use arpo_train::run::folder::{ConfigChange, config_changes};
use arpo_train::run::resume::may_change;
use arpo_train::run::{RunError, RunFolder, Start};
use arpo_train::trainer::setup;
use std::io::Write;
use std::path::Path;

/// Takes hold of a folder; one that holds something else than expected is the user's mistake.
pub(crate) fn start(path: &Path, start: Start) -> Result<RunFolder, Failure> {
    RunFolder::start(path, start).map_err(|error| match error {
        RunError::NotEmpty { .. } | RunError::NoRun { .. } => Failure::usage(error),
        other => Failure::failed(other),
    })
}

/// The folder, and the configuration in it with what the layers change. Without `any`, changes that change results are
/// refused, and `otherwise` says what to do about them.
pub(crate) fn resume(
    path: &Path,
    layers: &Layers,
    any: bool,
    otherwise: &str,
) -> Result<(RunFolder, Config), Failure> {
    let folder = start(path, Start::Resume)?;
    if let Some(preset) = layers.preset() {
        let note = format!(
            "note: --preset {preset} is left out: a run goes on with the configuration in its folder"
        );
        let _ = writeln!(std::io::stderr(), "{note}");
    }
    let was = stored(&folder)?;
    let config = layers.resolve_over(&name(&folder), &was.to_toml())?;
    let refused = refused(&was, &config);
    if any || refused.is_empty() {
        return Ok((folder, config));
    }
    Err(Failure::usage(format!(
        "--resume: this would change what is in {}: {}; {otherwise}",
        path.display(),
        refused.join("; ")
    )))
}

/// What must not be otherwise when something goes on, in words.
pub(crate) fn refused(was: &Config, is: &Config) -> Vec<String> {
    let changes = config_changes(&was.to_toml(), &is.to_toml());
    changes.iter().filter(|change| !may_change(&change.key)).map(ConfigChange::in_words).collect()
}

/// The configuration of a folder. One written before a key existed has the key's default.
pub(crate) fn stored(folder: &RunFolder) -> Result<Config, Failure> {
    let text = folder.config().map_err(Failure::failed)?.unwrap_or_default();
    Layers::default().resolve_over(&name(folder), &text)
}

fn name(folder: &RunFolder) -> String {
    folder.path().join("config.toml").display().to_string()
}

/// A folder to go on with, or a new one with this configuration in it, which is looked through before.
pub(crate) fn resume_or_start(
    path: &Path,
    layers: &Layers,
    resumed: bool,
    work: Work,
) -> Result<(RunFolder, Config), Failure> {
    if resumed {
        return resume(path, layers, false, "leave it out");
    }
    let config = layers.resolve()?;
    setup::check(&config, work).map_err(Failure::usage)?;
    let folder = start(path, Start::New)?;
    folder.write_config(&config.to_toml()).map_err(Failure::failed)?;
    Ok((folder, config))
}
