//! `arpo sft`: a base model from the oracle's demonstrations.

use crate::Failure;
use crate::device::DeviceName;
use arpo_env::tasks::Suite;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::{RunFolder, Start};
use arpo_train::supervised::SupervisedOptions;
use arpo_train::supervised::run::{Schedule, SupervisedEvent, train};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// What `arpo sft` takes.
#[derive(Args)]
pub(crate) struct SftArguments {
    /// The run's folder; the model will be in its folder `model`
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Go on with the run in --out
    #[arg(long)]
    resume: bool,
    /// Whose tasks: the pocket's small screens, or the desktop's, for a larger model
    #[arg(long, value_enum, default_value = "pocket")]
    suite: SuiteName,
    /// Where to compute
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// Updates on questions about screens only
    #[arg(long, default_value_t = 700)]
    grounding_updates: u64,
    /// Updates in all
    #[arg(long, default_value_t = 3000)]
    updates: u64,
    /// Screens in an update on questions
    #[arg(long, default_value_t = 256)]
    screens: usize,
    /// Episodes in an update on episodes
    #[arg(long, default_value_t = 128)]
    episodes: usize,
    /// Share of updates on questions after the first phase
    #[arg(long, default_value_t = 0.2)]
    grounding_share: f64,
    /// How often an application's tasks are shown, like editor=2; others 1. May be repeated
    #[arg(long, value_name = "APPLICATION=WEIGHT", value_parser = weight)]
    weight: Vec<(String, u32)>,
    /// Learning rate after the warm-up
    #[arg(long, default_value_t = 1e-3)]
    learning_rate: f64,
    /// Updates between evaluations, at which the run is also saved
    #[arg(long, default_value_t = 50)]
    evaluate_every: u64,
    /// Tasks in an evaluation
    #[arg(long, default_value_t = 208)]
    evaluate_tasks: usize,
    /// Stop at the first evaluation with at least this success
    #[arg(long)]
    until: Option<f64>,
    /// Stop after so many minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Names every draw
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print events as JSON, one object per line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SuiteName {
    Pocket,
    Desktop,
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let (application, weight) = text.split_once('=').ok_or("expected APPLICATION=WEIGHT, like editor=2")?;
    let weight = weight.parse().map_err(|_| format!("{weight:?} is no weight: expected a whole number"))?;
    Ok((application.to_owned(), weight))
}

pub(crate) fn run(arguments: &SftArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = arguments.device.device()?;
    let suite = match arguments.suite {
        SuiteName::Pocket => Suite::Pocket,
        SuiteName::Desktop => Suite::Desktop,
    };
    for (what, count) in [
        ("--screens", arguments.screens),
        ("--episodes", arguments.episodes),
        ("--evaluate-tasks", arguments.evaluate_tasks),
        ("--evaluate-every", arguments.evaluate_every as usize),
    ] {
        if count == 0 {
            return Err(Failure::usage(format!("{what} 0: expected at least 1")));
        }
    }
    let options = SupervisedOptions {
        suite,
        grounding_updates: arguments.grounding_updates,
        updates: arguments.updates,
        screens: arguments.screens,
        episodes: arguments.episodes,
        grounding_share: arguments.grounding_share,
        weights: arguments.weight.iter().cloned().collect(),
        learning_rate: arguments.learning_rate,
        warm_up: 100,
        max_steps: 15,
        seed: arguments.seed,
    };
    options.check().map_err(Failure::usage)?;
    let schedule = Schedule {
        every: arguments.evaluate_every,
        tasks: arguments.evaluate_tasks,
        until: arguments.until,
        limit: arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes.max(0.0) * 60.0)),
    };
    let start = if arguments.resume { Start::Resume } else { Start::New };
    let folder = RunFolder::start(&arguments.out, start).map_err(Failure::failed)?;
    folder.write_config(&options.to_toml()).map_err(Failure::failed)?;
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let bar = bar(arguments.updates, arguments.json);
    let mut problem = Ok(());
    let model = train(&options, &schedule, &folder, start, device, &stop, &mut |event| {
        let shown = show(&event, arguments.json, &bar, out);
        problem = std::mem::replace(&mut problem, Ok(())).and(shown);
    });
    bar.finish_and_clear();
    let model = model.map_err(Failure::failed)?;
    problem?;
    writeln!(out, "written: {}", model.display())?;
    Ok(())
}

/// On a terminal only; elsewhere there are the lines of evaluations.
fn bar(updates: u64, hidden: bool) -> ProgressBar {
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(updates) };
    let style = ProgressStyle::with_template("updates {pos:>5}/{len} {bar:30} {eta} left  {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn show(event: &SupervisedEvent, json: bool, bar: &ProgressBar, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        if !matches!(event, SupervisedEvent::Updated { .. }) {
            serde_json::to_writer(&mut *out, event).map_err(std::io::Error::from)?;
            writeln!(out)?;
            out.flush()?;
        }
        return Ok(());
    }
    match event {
        SupervisedEvent::Started { parameters, updates } => {
            bar.set_position(*updates);
            let resumed =
                if *updates > 0 { format!(", going on after update {updates}") } else { String::new() };
            bar.suspend(|| writeln!(out, "{parameters} parameters{resumed}"))?;
        }
        SupervisedEvent::Notice { message } => bar.suspend(|| writeln!(out, "{message}"))?,
        SupervisedEvent::Updated { updates, loss } => {
            bar.set_position(*updates);
            bar.set_message(format!("loss {loss:.3}"));
        }
        SupervisedEvent::Judged { updates, seconds, loss, success, applications } => {
            let judged = success.map_or_else(String::new, |success| {
                let by: Vec<String> =
                    applications.iter().map(|(name, mean)| format!("{name} {mean:.2}")).collect();
                format!("  success {:.3}  {}", success.mean, by.join(" "))
            });
            bar.suspend(|| writeln!(out, "update {updates:5}  {seconds:6.1} s  loss {loss:.4}{judged}"))?;
        }
    }
    out.flush()?;
    Ok(())
}
