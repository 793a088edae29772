//! `arpo worker`: becomes `arpo-worker`, the program beside this one that hosts desktops and needs no libtorch.

use crate::Failure;
use arpo_cluster::placement::local::Local;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The arguments of `arpo worker`: those of `arpo-worker`.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct WorkerArguments {
    /// The options of `arpo-worker`; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

pub(crate) fn run(arguments: &WorkerArguments) -> Result<(), Failure> {
    let program = Local::program_beside_this().map_err(Failure::failed)?;
    // returns only on failure
    let error = Command::new(&program).args(&arguments.options).exec();
    Err(Failure::failed(format!("{}: {error}", program.display())))
}
