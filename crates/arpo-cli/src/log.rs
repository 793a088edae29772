//! `arpo log`: sends runs that have ended to trackers, as `logging.to` does while a run is going on.

use crate::Failure;
use arpo_core::config::{Config, Layer, TRACKERS, resolve};
use arpo_track::{Ending, follow};
use arpo_train::run::about::RunAbout;
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
        runs.push((run, config(run, arguments)?));
    }
    let mut failed = false;
    for (run, config) in runs {
        let about = RunAbout::read(run);
        let ending = match about.ending.as_deref() {
            Some("finished") => Ending::Finished,
            Some("stopped") => Ending::Stopped,
            // an older version did not say
            None if about.started <= 0.0 => Ending::Finished,
            // without an ending it was killed
            Some(_) | None => Ending::Failed,
        };
        let problems = follow(run, &config.logging).end(ending);
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

/// The configuration of a run, with the trackers and keys of the command line.
fn config(run: &Path, arguments: &LogArguments) -> Result<Config, Failure> {
    let path = run.join("config.toml");
    let stored = fs::read_to_string(&path).map_err(|_| {
        Failure::usage(format!(
            "{}: holds no run: expected a folder with the config.toml of one",
            run.display()
        ))
    })?;
    let mut layers = vec![Layer::toml(&path.display().to_string(), &stored).map_err(Failure::usage)?];
    for assignment in &arguments.set {
        layers.push(Layer::set(assignment).map_err(Failure::usage)?);
    }
    layers.push(Layer::set(&format!("logging.to={:?}", arguments.to)).map_err(Failure::usage)?);
    resolve(&layers).map_err(Failure::usage)
}
