//! `arpo bench collect`: episodes per minute and the utilisation of desktops and policy, with desktops as slow and as
//! uneven as real ones, in arrival order and in lock-step.
//!
//! Desktops and policy are simulated: they only sleep for a random time, scaled down by a common factor.

use super::write_json;
use crate::Failure;
use arpo_core::action::Action;
use arpo_core::config::{Config, Order};
use arpo_core::random::{Purpose, stream};
use arpo_core::task::{Task, TaskId};
use arpo_env::environment::{Environment, EnvironmentError, Screen, StepResult, ends_episode};
use arpo_train::TrainError;
use arpo_train::collect::{CollectOptions, CollectReport, Collector, GroupSize, Planner, Worlds};
use arpo_train::episode::History;
use arpo_train::policy::ScriptedPolicy;
use clap::{Args, value_parser};
use image::{Rgb, RgbImage};
use rand::RngExt;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The arguments of `arpo bench collect`.
#[derive(Args)]
pub(crate) struct CollectArguments {
    /// Desktops in parallel
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u16).range(1..=1024))]
    desktops: u16,
    /// Episodes to collect, of 5 to 15 steps
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u32).range(1..=100_000))]
    episodes: u32,
    /// Mean duration of a step
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5)]
    step: f64,
    /// Mean duration of a reset
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0)]
    reset: f64,
    /// Mean duration of an evaluation
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    evaluate: f64,
    /// Standard deviation of the logarithm of these durations: 0 for constant ones, 1 for a heavy tail
    #[arg(long, value_name = "SIGMA", default_value_t = 1.0)]
    spread: f64,
    /// Duration of a pass of the policy, whatever the batch
    #[arg(long, value_name = "SECONDS", default_value_t = 0.05)]
    pass: f64,
    /// Passes per response: one for each token
    #[arg(long, value_name = "N", default_value_t = 10)]
    passes: usize,
    /// Speed-up of the simulated time
    #[arg(long, value_name = "FACTOR", default_value_t = 100.0)]
    faster: f64,
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

/// Mean durations of the calls in seconds, already scaled, and their spread.
#[derive(Clone, Copy)]
struct Times {
    reset: f64,
    step: f64,
    evaluate: f64,
    spread: f64,
}

/// A simulated desktop that only sleeps.
struct SlowDesktop {
    times: Times,
    seed: u64,
    calls: u64,
    screen: Screen,
}

impl SlowDesktop {
    /// Sleeps for a log-normal time with this mean. The same episode has the same durations in every order.
    fn sleep(&mut self, mean: f64) {
        let mut rng = stream(self.seed, Purpose::Environment, self.calls, 5);
        self.calls += 1;
        // Box-Muller transform
        let (radius, angle): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let spread = self.times.spread;
        sleep(Duration::from_secs_f64(mean * (spread * normal - spread * spread / 2.0).exp()));
    }
}

impl Environment for SlowDesktop {
    fn reset(&mut self, _: &Task, seed: u64, _: Instant) -> Result<Screen, EnvironmentError> {
        (self.seed, self.calls) = (seed, 0);
        self.sleep(self.times.reset);
        Ok(self.screen.clone())
    }

    fn step(&mut self, action: &Action, _: Instant) -> Result<StepResult, EnvironmentError> {
        self.sleep(self.times.step);
        Ok(StepResult { screen: self.screen.clone(), terminated: ends_episode(action), truncated: false })
    }

    fn evaluate(&mut self, _: Instant) -> Result<f64, EnvironmentError> {
        self.sleep(self.times.evaluate);
        Ok(1.0)
    }
}

pub(crate) fn run(arguments: &CollectArguments, out: &mut impl Write) -> Result<(), Failure> {
    let CollectArguments { desktops, step, reset, evaluate, spread, pass, passes, faster, .. } = *arguments;
    let numbers = [step, reset, evaluate, spread, pass];
    if numbers.iter().any(|number| !(0.0..=3600.0).contains(number)) || !(1.0..=1e6).contains(&faster) {
        return Err(Failure::failed("expected times from 0 to 3600 seconds, and at least 1 for --faster"));
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
    let mut rows = Vec::new();
    for order in [Order::LockStep, Order::Arrival] {
        let report = measure(arguments, order).map_err(Failure::failed)?;
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

fn measure(arguments: &CollectArguments, order: Order) -> Result<CollectReport, TrainError> {
    let faster = arguments.faster;
    let times = Times {
        reset: arguments.reset / faster,
        step: arguments.step / faster,
        evaluate: arguments.evaluate / faster,
        spread: arguments.spread,
    };
    let screen = Screen::new(RgbImage::from_pixel(28, 28, Rgb([128; 3])));
    let factory = move |_| {
        let desktop = SlowDesktop { times, seed: 0, calls: 0, screen: screen.clone() };
        Ok(Box::new(desktop) as Box<dyn Environment>)
    };
    let script = |history: &History| {
        let last = 4 + history.plan.sampling_seed % 11;
        let ends = history.responses.len() as u64 >= last;
        Ok(if ends { "Action: finished()" } else { "Action: wait()" }.to_owned())
    };
    let pass = Duration::from_secs_f64(arguments.pass / faster);
    let mut policy = ScriptedPolicy::new(script, pass).with_steps(arguments.passes);
    let options = CollectOptions { order, ..CollectOptions::from(&Config::default()) };
    let mut collector = Collector::new(Arc::new(factory), usize::from(arguments.desktops), options);
    let planner = Planner { seed: arguments.seed, step: 0, worlds: Worlds::Own, faulty: false };
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
    let groups = (0..arguments.episodes).map(group).collect();
    Ok(collector.collect(&mut policy, groups, &mut |_| {})?.report)
}
