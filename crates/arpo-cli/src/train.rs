//! `arpo train`: trains an agent.

use crate::config::Layers;
use crate::memory;
use crate::resume::{resume, say, settle_style, start};
use crate::show::{Show, ShowArguments};
use crate::{Failure, write_json};
use arpo_core::config::Config;
use arpo_train::memory_plan::Work;
use arpo_train::run::Start;
use arpo_train::run::stop::StopSwitch;
use arpo_train::trainer;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The arguments of `arpo train`.
#[derive(Args)]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    layers: Layers,
    /// Sample with vLLM servers that are already running; may be repeated. The same as --set rollout.engine=vllm --set
    /// rollout.servers=...
    #[arg(long, value_name = "http://HOST:PORT", value_delimiter = ',')]
    servers: Vec<String>,
    /// The run folder [default: a new one under runs/]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Resume the run in --out, with the configuration stored there. Other options may change its length, desktops,
    /// deadlines, memory and checkpoints
    #[arg(long, requires = "out")]
    resume: bool,
    /// With --resume: accept any other change, and record it in the folder
    #[arg(long, requires = "resume")]
    change_run: bool,
    /// Print the resolved configuration and its memory plan, and stop
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: ShowArguments,
}

pub(crate) fn run(arguments: &TrainArguments, out: &mut impl Write) -> Result<(), Failure> {
    let layers = arguments.layers.with_servers(&arguments.servers);
    let (folder, config, start) = match &arguments.out {
        Some(path) if arguments.resume => {
            let (folder, config) = resume(path, &layers, arguments.change_run, HINT)?;
            if arguments.dry_run {
                return dry_run(arguments, &config, out);
            }
            trainer::setup::check_tasks(&config).map_err(Failure::usage)?;
            (folder, config, Start::Resume)
        }
        _ => {
            let mut config = layers.resolve()?;
            // without a model, a dry run shows what does not depend on it
            let settled = settle_style(&mut config);
            if arguments.dry_run {
                return dry_run(arguments, &config, out);
            }
            let style = settled?;
            // checked before a folder is created
            trainer::setup::check(&config, Work::Training).map_err(Failure::usage)?;
            say(style);
            let path = arguments.out.clone().unwrap_or_else(|| new_folder(&config));
            (start(&path, Start::New)?, config, Start::New)
        }
    };
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let mut show = Show::new(arguments.show, out);
    let trained = trainer::train(&config, &folder, start, &stop, &mut |event| show.event(&event));
    let shown = show.finish();
    let ended = trained.map_err(Failure::of)?;
    shown?;
    if ended.interrupted { Err(Failure::Stopped(None)) } else { Ok(()) }
}

fn dry_run(arguments: &TrainArguments, config: &Config, out: &mut impl Write) -> Result<(), Failure> {
    if arguments.show.json {
        return write_json(config, out);
    }
    write!(out, "{}", config.to_toml())?;
    // as comments, so that the output is a valid configuration
    for line in memory::report(config).lines() {
        writeln!(out, "# {line}")?;
    }
    Ok(())
}

/// What to do about a rejected change.
const HINT: &str = "leave it out, or take it with --change-run";

/// The first name under `runs/` that is free: the method and a number.
fn new_folder(config: &Config) -> PathBuf {
    let replays = config.replay.enabled && !config.tasks.endless;
    let method = if replays { "arpo" } else { "grpo" };
    let name = |number: u32| Path::new("runs").join(format!("{method}-{number:03}"));
    // if all are taken, opening the last one reports the error
    (1..=999).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(999))
}
