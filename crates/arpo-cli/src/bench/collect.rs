//! `arpo bench collect`: episodes per minute and the utilisation of desktops and policy, with desktops as slow and as
//! uneven as real ones, in arrival order and in lock-step; with --workers, on worker processes.
//!
//! Desktops and policy are simulated: they only sleep for a random time, scaled down by a common factor.

use super::slow::{self, SlowDesktop, Times};
use super::workers::{self, Load};
use super::write_json;
use crate::Failure;
use arpo_core::config::{Config, Order};
use arpo_core::task::{Task, TaskId};
use arpo_env::environment::Environment;
use arpo_train::TrainError;
use arpo_train::collect::{CollectOptions, CollectReport, Collector, GroupPlan, GroupSize, Planner, Worlds};
use arpo_train::episode::History;
use arpo_train::policy::ScriptedPolicy;
use clap::{Args, value_parser};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The arguments of `arpo bench collect`.
#[derive(Args)]
pub(crate) struct CollectArguments {
    /// Desktops in parallel
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u16).range(1..=1024))]
    desktops: u16,
    /// Episodes to collect, of 5 to 15 steps
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u32).range(1..=100_000))]
    episodes: u32,
    /// Host the desktops in this many worker processes, which send screenshots over loopback; in arrival order only
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=64))]
    workers: Option<u16>,
    /// With --workers: the folder of the screenshots, as PNGs [default: the embedded desktop at 1920x1080]
    #[arg(long, value_name = "FOLDER", requires = "workers")]
    screens: Option<PathBuf>,
    #[command(flatten)]
    times: Times,
    /// Duration of a pass of the policy, whatever the batch
    #[arg(long, value_name = "SECONDS", default_value_t = 0.05)]
    pass: f64,
    /// Passes per response: one for each token
    #[arg(long, value_name = "N", default_value_t = 10)]
    passes: usize,
    /// Random seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    order: Order,
    /// In simulated time, not in real time.
    episodes_per_minute: f64,
    #[serde(flatten)]
    report: CollectReport,
}

#[derive(Serialize)]
struct Report {
    rows: Vec<Row>,
    /// Throughput of arrival order divided by that of lock-step.
    ratio: f64,
}

pub(crate) fn run(arguments: &CollectArguments, out: &mut impl Write) -> Result<(), Failure> {
    let CollectArguments { desktops, times, pass, passes, .. } = *arguments;
    let Times { step, reset, evaluate, spread, faster } = times;
    times.check()?;
    if !(0.0..=3600.0).contains(&pass) {
        return Err(Failure::failed("expected 0 to 3600 seconds for --pass"));
    }
    if !arguments.json {
        let episodes = arguments.episodes;
        writeln!(
            out,
            "{episodes} episodes of 5 to 15 steps on {desktops} desktops, {faster} times faster than real time"
        )?;
        writeln!(
            out,
            "  step {step} s, reset {reset} s, evaluation {evaluate} s on average, spread {spread}"
        )?;
        writeln!(out, "  a response takes {passes} passes of {pass} s")?;
    }
    if let Some(workers) = arguments.workers {
        let load = Load {
            workers: usize::from(workers),
            desktops: usize::from(desktops),
            episodes: arguments.episodes,
            times,
            response: pass * passes as f64,
            seed: arguments.seed,
        };
        let measured = workers::measure(&load, arguments.screens.as_deref())?;
        return if arguments.json { write_json(&measured, out) } else { Ok(writeln!(out, "  {measured}")?) };
    }
    let mut rows = Vec::new();
    for order in [Order::LockStep, Order::Arrival] {
        let report = measure(arguments, order)?;
        let episodes_per_minute = report.episodes as f64 / (report.seconds * faster) * 60.0;
        if !arguments.json {
            let name = match order {
                Order::Rounds => "rounds",
                Order::Arrival => "arrival",
                Order::LockStep => "lock-step",
            };
            let percent = |share: f64| share * 100.0;
            let (busy, generating) =
                (percent(report.desktop_utilisation), percent(report.policy_utilisation));
            let until_last = percent(report.desktop_utilisation_until_last);
            write!(
                out,
                "  {name:9}  {episodes_per_minute:5.1} episodes/min  policy busy {generating:4.1} %"
            )?;
            writeln!(
                out,
                "  desktops busy {busy:4.1} % ({until_last:4.1} % until the last episode started)"
            )?;
            out.flush()?;
        }
        rows.push(Row { order, episodes_per_minute, report });
    }
    let ratio = rows[1].episodes_per_minute / rows[0].episodes_per_minute;
    if arguments.json {
        return write_json(&Report { rows, ratio }, out);
    }
    writeln!(out, "  arrival order collects {ratio:.2} times as much as lock-step")?;
    Ok(())
}

fn measure(arguments: &CollectArguments, order: Order) -> Result<CollectReport, Failure> {
    let (times, screens) = (arguments.times, slow::grey_screen()?);
    let factory = move |_| Ok(Box::new(SlowDesktop::new(times, &screens)) as Box<dyn Environment>);
    let pass = Duration::from_secs_f64(arguments.pass / times.faster);
    let mut policy = ScriptedPolicy::new(script, pass).with_steps(arguments.passes);
    let options = CollectOptions { order, ..CollectOptions::from(&Config::default()) };
    let mut collector = Collector::new(Arc::new(factory), usize::from(arguments.desktops), options);
    let groups = groups(arguments.episodes, arguments.seed);
    Ok(collector.collect(&mut policy, groups, &mut |_| {}).map_err(Failure::failed)?.report)
}

/// An episode of 5 to 15 steps.
#[expect(clippy::unnecessary_wraps, reason = "scripts may fail")]
pub(super) fn script(history: &History) -> Result<String, TrainError> {
    let last = 4 + history.plan.sampling_seed % 11;
    let ends = history.responses.len() as u64 >= last;
    Ok(if ends { "Action: finished()" } else { "Action: wait()" }.to_owned())
}

/// So many groups of one episode.
pub(super) fn groups(episodes: u32, seed: u64) -> Vec<GroupPlan> {
    let planner = Planner { seed, step: 0, worlds: Worlds::Own, faulty: false };
    let group = |number: u32| {
        let task = Task {
            id: TaskId::new(format!("slow {number}")),
            instruction: String::new(),
            application: String::new(),
            setup: serde_json::Value::Null,
            evaluator: serde_json::Value::Null,
        };
        planner.group(&Arc::new(task), u64::from(number), GroupSize::new(1, 0, 15))
    };
    (0..episodes).map(group).collect()
}
