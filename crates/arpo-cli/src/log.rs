//! `arpo log`: sends runs that have ended to trackers, as `logging.to` does while a run is going on.

use crate::Failure;
use arpo_core::config::{Config, Layer, TRACKERS, resolve};
use arpo_track::export;
use arpo_train::run::folder::is_in_use;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The arguments of `arpo log`.
#[derive(Args)]
pub(crate) struct LogArguments {
    /// The run folders
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The trackers, separated by commas
    #[arg(long, required = true, value_delimiter = ',', value_name = "TRACKER",
        value_parser = PossibleValuesParser::new(TRACKERS))]
    to: Vec<String>,
    /// Set a key of the run's configuration, such as logging.project=desktop; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

pub(crate) fn run(arguments: &LogArguments, out: &mut impl Write) -> Result<(), Failure> {
    // all are checked before the first is sent
    let mut runs = vec![];
    for run in &arguments.runs {
        let (config, its_own) = config(run, arguments)?;
        export::check(run, &arguments.to, &its_own, is_in_use(run)).map_err(Failure::usage)?;
        runs.push((run, config));
    }
    let mut failed = false;
    for (run, config) in runs {
        let problems = export::export(run, &config.logging, is_in_use(run));
        for problem in &problems {
            let _ = writeln!(io::stderr(), "{problem}");
        }
        if problems.is_empty() {
            writeln!(out, "{}: sent to {}", run.display(), config.logging.to.join(", "))?;
        }
        failed |= !problems.is_empty();
    }
    if failed { Err(Failure::Reported) } else { Ok(()) }
}

/// The configuration of a run, with the trackers and keys of the command line; and the trackers it logs to itself.
fn config(run: &Path, arguments: &LogArguments) -> Result<(Config, Vec<String>), Failure> {
    let path = run.join("config.toml");
    let stored = fs::read_to_string(&path).map_err(|_| {
        Failure::usage(format!(
            "{}: holds no run: expected a folder with the config.toml of one",
            run.display()
        ))
    })?;
    let mut layers = vec![Layer::toml(&path.display().to_string(), &stored).map_err(Failure::usage)?];
    let its_own = resolve(&layers).map_err(Failure::usage)?.logging.to;
    for assignment in &arguments.set {
        layers.push(Layer::set(assignment).map_err(Failure::usage)?);
    }
    layers.push(Layer::set(&format!("logging.to={:?}", arguments.to)).map_err(Failure::usage)?);
    Ok((resolve(&layers).map_err(Failure::usage)?, its_own))
}
