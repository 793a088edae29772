//! `arpo bench cluster --simulate`: many desktops on workers over loopback, with the durations of real ones, and beside what is
//! measured what arithmetic predicts: where network and processors of the trainer saturate.

use super::slow::Times;
use super::workers::{Load, Measured, measure};
use crate::{Failure, write_json};
use clap::{Args, value_parser};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Steps of an episode on average: 5 to 15.
const STEPS: f64 = 10.0;

/// The arguments of `arpo bench cluster`.
#[derive(Args)]
pub(crate) struct ClusterArguments {
    /// Simulate desktops; others are not measured
    #[arg(long, required = true)]
    simulate: bool,
    /// Desktops in parallel; may be repeated
    #[arg(long, value_name = "N", default_values_t = [128, 1000], value_parser = value_parser!(u32).range(1..=10_000))]
    desktops: Vec<u32>,
    /// Worker processes
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Episodes for each desktop
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u16).range(1..=100))]
    episodes: u16,
    /// The folder of the screenshots, as PNGs [default: the embedded desktop at 1920x1080]
    #[arg(long, value_name = "FOLDER")]
    screens: Option<PathBuf>,
    #[command(flatten)]
    times: Times,
    /// Time for a response of the policy
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    response: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    measured: Measured,
    /// If neither network nor processors limit it.
    predicted_steps_per_second: f64,
    /// Desktops at which the trainer's screens take a whole processor.
    desktops_per_processor: f64,
    /// Desktops at which they fill a gigabit per second.
    desktops_per_gigabit: f64,
}

pub(crate) fn run(arguments: &ClusterArguments, out: &mut impl Write) -> Result<(), Failure> {
    let ClusterArguments { times, response, .. } = *arguments;
    times.check()?;
    if !(0.0..=3600.0).contains(&response) {
        return Err(Failure::failed("expected 0 to 3600 seconds for --response"));
    }
    let Times { step, reset, evaluate, faster, .. } = times;
    // what a desktop does between two resets
    let episode = (reset + STEPS * (step + response) + evaluate) / faster;
    let mut rows = vec![];
    for &desktops in &arguments.desktops {
        let load = Load {
            workers: usize::from(arguments.workers),
            desktops: desktops as usize,
            episodes: desktops * u32::from(arguments.episodes),
            times,
            response,
            seed: 0,
        };
        let measured = measure(&load, arguments.screens.as_deref())?;
        let screens_per_desktop = (STEPS + 1.0) / episode;
        let row = Row {
            predicted_steps_per_second: f64::from(desktops) * STEPS / episode,
            desktops_per_processor: 1e3 / (measured.milliseconds_per_screen * screens_per_desktop),
            desktops_per_gigabit: 125e3 / (measured.kilobytes_per_screen * screens_per_desktop),
            measured,
        };
        if !arguments.json {
            writeln!(out, "{}", row.measured)?;
            writeln!(
                out,
                "  arithmetic: {:.1} steps/s; one processor for {:.0} desktops, one gigabit/s for {:.0}",
                row.predicted_steps_per_second, row.desktops_per_processor, row.desktops_per_gigabit
            )?;
            out.flush()?;
        }
        rows.push(row);
    }
    if arguments.json { write_json(&rows, out) } else { Ok(()) }
}
