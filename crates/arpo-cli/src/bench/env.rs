//! `arpo bench env`: steps per second of the embedded desktop on one core, at each screen size.

use super::write_json;
use crate::Failure;
use arpo_env::look::ScreenOptions;
use arpo_env::speed::{Speed, speed};
use arpo_env::tasks::Suite;
use clap::{Args, value_parser};
use serde::Serialize;
use std::io::Write;

/// The arguments of `arpo bench env`.
#[derive(Args)]
pub(crate) struct EnvArguments {
    /// Seconds to measure at each screen size
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    suite: Suite,
    width: u32,
    height: u32,
    #[serde(flatten)]
    speed: Speed,
}

pub(crate) fn run(arguments: &EnvArguments, out: &mut impl Write) -> Result<(), Failure> {
    let desktop = ScreenOptions::desktop;
    let screens = [
        (Suite::Pocket, Suite::Pocket.screen()),
        (Suite::Desktop, desktop(640, 480)),
        (Suite::Desktop, desktop(1280, 720)),
        (Suite::Desktop, desktop(1920, 1080)),
    ];
    let mut reports = Vec::new();
    if !arguments.json {
        writeln!(out, "complete episodes of the oracle with detours, one core")?;
    }
    for (suite, options) in screens {
        let (width, height) = (options.width, options.height);
        let speed = speed(suite, options, f64::from(arguments.seconds)).map_err(Failure::failed)?;
        if arguments.json {
            reports.push(Report { suite, width, height, speed });
            continue;
        }
        let (size, reset_ms) = (format!("{width}x{height}"), speed.reset_seconds * 1000.0);
        let steps = speed.steps_per_second;
        writeln!(out, "  {:7}  {size:>9}  {steps:6.0} steps/s  reset {reset_ms:5.2} ms", suite.key())?;
        out.flush()?;
    }
    if arguments.json { write_json(&reports, out) } else { Ok(()) }
}
