//! `arpo train`: trains an agent.

use crate::config::Layers;
use crate::memory;
use crate::resume::{resume, say, settle_style, start};
use crate::show::{SharedShow, ShowArguments};
use crate::{Failure, write_json};
use arpo_core::config::Config;
use arpo_track::Ending;
use arpo_train::memory_plan::Work;
use arpo_train::run::Start;
use arpo_train::run::about::set_view;
use arpo_train::run::events::RunEvent;
use arpo_train::run::stop::StopSwitch;
use arpo_train::trainer;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The arguments of `arpo train`.
#[derive(Args)]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    layers: Layers,
    /// Sample with vLLM servers that are already running; may be repeated. The same as --set rollout.engine=vllm --set
    /// rollout.servers=...
    #[arg(long, value_name = "http://HOST:PORT", value_delimiter = ',')]
    servers: Vec<String>,
    /// Processes that sample and learn together, one for each GPU of this machine; the same as --set learn.ranks=... With --set
    /// learn.gpus=... so many of them learn while the others sample. With --join: how many of them are on this machine
    #[arg(long, value_name = "N", visible_alias = "ranks")]
    gpus: Option<usize>,
    /// Join the run that waits for ranks at this address, and work for it until it is over; it needs no other options
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["out", "preset", "config", "set", "servers", "dry_run"])]
    join: Option<String>,
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
    /// Show the run in a browser while it trains, at the address that is printed first [default port: 9100, or a free one]
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "clap's type for an option whose value may be left out")]
    view: Option<Option<u16>>,
    /// Print the resolved configuration and its memory plan, and stop
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: ShowArguments,
}

pub(crate) fn run(arguments: &TrainArguments, out: &mut impl Write) -> Result<(), Failure> {
    if let Some(address) = &arguments.join {
        return join(address, arguments.gpus.unwrap_or(1));
    }
    let layers = arguments.layers.with_servers(&arguments.servers).with_ranks(arguments.gpus);
    let (folder, config, start, style) = match &arguments.out {
        Some(path) if arguments.resume => {
            let (folder, config) = resume(path, &layers, arguments.change_run, HINT)?;
            if arguments.dry_run {
                return dry_run(arguments, &config, out);
            }
            trainer::setup::check_tasks(&config).map_err(Failure::usage)?;
            (folder, config, Start::Resume, None)
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
            let path = arguments.out.clone().unwrap_or_else(|| new_folder(&config));
            (start(&path, Start::New)?, config, Start::New, style)
        }
    };
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    // until the run ends
    let page = arguments.view.map(|port| arpo_view::serve_in_background(folder.path(), port)).transpose();
    let page = page.map_err(Failure::failed)?;
    say(page.as_ref().map(|page| format!("view: {}", arpo_view::page_address(page.address, None))));
    say(style);
    if let Some(page) = &page {
        set_view(&folder, &arpo_view::page_address(page.address, None)).map_err(Failure::failed)?;
    }
    let show = SharedShow::new(arguments.show);
    stop.tell(show.signals());
    let mut trackers = None;
    let trained = trainer::train(&config, &folder, start, &stop, &show.notices(), &mut |event| {
        // now the metrics are cut to where a resumed run continues
        if matches!(event, RunEvent::RunStarted(_)) && !config.logging.to.is_empty() {
            trackers = Some(arpo_track::follow(folder.path(), &config.logging));
        }
        let notices = trackers.as_ref().map(arpo_track::Following::notices).unwrap_or_default();
        show.event(&event);
        for message in notices {
            show.notice(message);
        }
    });
    if let Some(trackers) = trackers {
        let ending = match &trained {
            Ok(ended) if ended.interrupted => Ending::Stopped,
            Ok(_) => Ending::Finished,
            Err(_) => Ending::Failed,
        };
        for message in trackers.end(ending) {
            show.notice(message);
        }
    }
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

/// Longest wait of a rank for the run that it joins, and for the other ranks.
const JOIN_TIMEOUT: Duration = Duration::from_hours(1);

/// Works for another process's run.
fn join(address: &str, ranks: usize) -> Result<(), Failure> {
    if ranks == 0 {
        return Err(Failure::usage("--gpus 0: expected at least 1"));
    }
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    trainer::ranks::join(address, ranks, JOIN_TIMEOUT, &stop).map_err(Failure::of)
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
