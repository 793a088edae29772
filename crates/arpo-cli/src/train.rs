//! `arpo train`.

use crate::config::Layers;
use crate::{Failure, write_json};
use clap::Args;
use std::io::Write;

/// What `arpo train` takes.
#[derive(Args)]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    layers: Layers,
    /// Print the resolved configuration and stop
    #[arg(long)]
    dry_run: bool,
    /// Print it as JSON instead of TOML
    #[arg(long, requires = "dry_run")]
    json: bool,
}

pub(crate) fn run(arguments: &TrainArguments, out: &mut impl Write) -> Result<(), Failure> {
    let config = arguments.layers.resolve()?;
    if !arguments.dry_run {
        return Err(Failure::failed(
            "this version has no learner yet: `arpo train --dry-run` prints the configuration it will train with",
        ));
    }
    if arguments.json {
        write_json(&config, out)?;
    } else {
        write!(out, "{}", config.to_toml())?;
    }
    Ok(())
}
