//! The program `arpo-worker`: hosts desktops for a trainer on another machine, or for one on this machine in processes of
//! their own. It needs neither a configuration nor libtorch.

use arpo_cluster::protocol::token;
use arpo_cluster::worker::{Stop, Worker, WorkerOptions};
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Hosts desktops for `arpo train --cluster listen` and others. A shared token, if the trainer has one, is read from the
/// environment variable `ARPO_CLUSTER_TOKEN`.
#[derive(Parser)]
#[command(name = "arpo-worker", version, max_term_width = 100)]
struct Arguments {
    /// The trainer's address: `cluster.listen` of its configuration
    #[arg(long, value_name = "HOST:PORT")]
    connect: String,
    /// Most desktops [default: the number of processors]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    desktops: Option<u32>,
    /// How long desktops outlive a lost connection [default: `cluster.grace_seconds` of the trainer]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    grace: Option<Duration>,
    /// End with the first run: when it is over, or when its trainer is away for longer than the grace time
    #[arg(long)]
    one_run: bool,
    /// The name of this host in the trainer's messages [default: the name of the machine]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// End when the standard input ends, and so with the process that started this one
    #[arg(long, hide = true)]
    until_input_ends: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds, such as 30".into())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            log(&format!("error: {problem}"));
            ExitCode::FAILURE
        }
    }
}

fn log(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn run(arguments: Arguments) -> Result<(), String> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let options = WorkerOptions {
        connect: arguments.connect,
        token: token::from_environment(),
        desktops: arguments.desktops.map_or(processors, |desktops| desktops as usize),
        grace: arguments.grace,
    };
    let stop = Stop::default();
    end_on_signals(&stop).map_err(text)?;
    if arguments.until_input_ends {
        stop.when_closed(io::stdin()).map_err(text)?;
    }
    let mut worker = Worker::new(options, stop, log).map_err(text)?;
    if arguments.one_run {
        worker = worker.for_one_run();
    }
    if let Some(host) = arguments.host {
        worker = worker.on_host(host);
    }
    worker.run().map_err(text)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// The first signal removes the desktops, the second ends at once.
fn end_on_signals(stop: &Stop) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let stop = stop.clone();
    let wait = move || {
        for (before, signal) in signals.forever().enumerate() {
            if before > 0 {
                // the default action of the signal: the exit status says which
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            stop.request();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}
