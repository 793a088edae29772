//! The program `arpo`: the command line.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 the command line or the
//! configuration is wrong, 130 stopped on request.

mod bench;
mod choices;
mod cluster;
mod config;
mod curve;
mod device;
mod doctor;
mod dry_run;
mod env;
mod eval;
mod judge;
mod log;
mod memory;
mod offline;
mod osworld;
mod resume;
mod rollout;
mod select;
mod serve;
mod sft;
mod show;
mod train;
mod view;
mod worker;

use arpo_train::TrainError;
use clap::{Parser, Subcommand};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, ExitCode};

/// Trains vision-language GUI agents with reinforcement learning (ARPO).
#[derive(Parser)]
#[command(name = "arpo", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train an agent
    Train(train::TrainArguments),
    /// Evaluate an agent, by task and by application
    Eval(Box<eval::EvalArguments>),
    /// Select training tasks by rollouts of the base model
    Select(select::SelectArguments),
    /// Collect episodes to disk
    Rollout(rollout::RolloutArguments),
    /// Train offline on collected episodes: rejection sampling, DPO, KTO
    Offline(offline::OfflineArguments),
    /// Plot the learning curves of runs
    Curve(curve::CurveArguments),
    /// Send runs to trackers: TensorBoard, W&B, MLflow
    Log(log::LogArguments),
    /// Show runs in a browser: live curves, desktops, tasks, episodes
    View(view::ViewArguments),
    /// List runs with their state, best success and age
    Runs(view::RunsArguments),
    /// Write a report of runs as one HTML file
    Report(view::ReportArguments),
    /// Serve a checkpoint to clients of OpenAI's chat interface
    Serve(serve::ServeArguments),
    /// Host desktops for a trainer on another machine
    Worker(worker::WorkerArguments),
    /// Show the workers of a running trainer
    Cluster(cluster::ClusterArguments),
    /// Train a base model by supervised learning from the oracle
    Sft(sft::SftArguments),
    /// Check what this machine has, what is missing, and how to install it
    Doctor(doctor::DoctorArguments),
    /// List, show and play the tasks of the embedded desktop
    Env(env::EnvArguments),
    /// Show which OSWorld tasks can be evaluated, and run single metrics
    Osworld(osworld::OsworldArguments),
    /// Document the configuration
    Config(config::ConfigArguments),
    /// Run a benchmark
    Bench(bench::BenchArguments),
}

impl Command {
    /// Whether it keeps all cores busy for a while.
    fn computes(&self) -> bool {
        match self {
            Self::Train(_)
            | Self::Eval(_)
            | Self::Select(_)
            | Self::Rollout(_)
            | Self::Offline(_)
            | Self::Serve(_)
            | Self::Sft(_) => true,
            Self::Bench(arguments) => arguments.is_serving(),
            Self::Curve(_)
            | Self::Log(_)
            | Self::View(_)
            | Self::Runs(_)
            | Self::Report(_)
            | Self::Doctor(_)
            | Self::Worker(_)
            | Self::Cluster(_)
            | Self::Env(_)
            | Self::Osworld(_)
            | Self::Config(_) => false,
        }
    }
}

/// By default idle threads of libtorch spin and take the processor from busy ones, which costs small models a third of
/// their time. The OpenMP setting is read when the library is loaded, so the program re-executes itself with it. A setting
/// of the user wins.
fn let_idle_threads_sleep() {
    const SETTING: &str = "OMP_WAIT_POLICY";
    if std::env::var_os(SETTING).is_some() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        // returns only on failure; then the program is slower, not wrong
        let _ =
            process::Command::new(program).args(std::env::args_os().skip(1)).env(SETTING, "passive").exec();
    }
}

/// The exit code for a program stopped by Ctrl-C.
const STOPPED: u8 = 130;

/// Why a command did not succeed.
pub(crate) enum Failure {
    /// The command line or the configuration is wrong: exit code 2.
    Usage(String),
    /// Something did not work: exit code 1.
    Failed(String),
    /// The problem has been printed already: exit code 1.
    Reported,
    /// Stopped on request before the end, with a message for the user: exit code 130.
    Stopped(Option<String>),
    /// The reader of the output closed the pipe: not a failure.
    PipeClosed,
}

impl Failure {
    pub(crate) fn usage(problem: impl Display) -> Self {
        Self::Usage(problem.to_string())
    }

    /// The failure for a training error: configuration errors are usage errors.
    pub(crate) fn of(error: TrainError) -> Self {
        match error {
            TrainError::Interrupted => Self::Stopped(Some(error.to_string())),
            TrainError::Configuration(problem) => Self::Usage(problem),
            error => Self::failed(error),
        }
    }

    pub(crate) fn failed(problem: impl Display) -> Self {
        Self::Failed(problem.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::PipeClosed,
            _ => Self::failed(format!("cannot write the result: {error}")),
        }
    }
}

/// Writes a result as JSON.
pub(crate) fn write_json(report: &impl Serialize, out: &mut impl Write) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, report).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    if command.computes() {
        let_idle_threads_sleep();
    }
    // not locked: threads of `arpo train` have lines for it, too
    let mut out = io::BufWriter::new(io::stdout());
    let done = run(command, &mut out);
    // what was found before a failure is still the result
    let written = out.flush().map_err(Failure::from);
    let (problem, code) = match done.and(written) {
        Ok(()) | Err(Failure::PipeClosed) => return ExitCode::SUCCESS,
        Err(Failure::Reported) => return ExitCode::FAILURE,
        Err(Failure::Failed(problem)) => (problem, ExitCode::FAILURE),
        Err(Failure::Usage(problem)) => (problem, ExitCode::from(2)),
        Err(Failure::Stopped(None)) => return ExitCode::from(STOPPED),
        Err(Failure::Stopped(Some(message))) => {
            let _ = writeln!(io::stderr(), "{message}");
            return ExitCode::from(STOPPED);
        }
    };
    let _ = writeln!(io::stderr(), "error: {problem}");
    code
}

fn run(command: Command, out: &mut impl Write) -> Result<(), Failure> {
    match command {
        Command::Train(arguments) => train::run(&arguments, out),
        Command::Eval(arguments) => eval::run(&arguments, out),
        Command::Select(arguments) => select::run(&arguments, out),
        Command::Rollout(arguments) => rollout::run(&arguments, out),
        Command::Offline(arguments) => offline::run(&arguments, out),
        Command::Osworld(arguments) => osworld::run(&arguments, out),
        Command::Curve(arguments) => curve::run(&arguments, out),
        Command::Log(arguments) => log::run(&arguments, out),
        Command::View(arguments) => view::view(&arguments),
        Command::Runs(arguments) => view::list(&arguments, out),
        Command::Report(arguments) => view::report(&arguments, out),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Worker(arguments) => worker::run(&arguments),
        Command::Cluster(arguments) => cluster::run(&arguments, out),
        Command::Sft(arguments) => sft::run(&arguments, out),
        Command::Doctor(arguments) => doctor::run(&arguments, out),
        Command::Env(arguments) => env::run(&arguments, out),
        Command::Config(arguments) => config::run(&arguments, out),
        Command::Bench(arguments) => bench::run(&arguments, out),
    }
}
