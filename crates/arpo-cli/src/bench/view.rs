//! `arpo bench view`: a made-up run of many iterations and episodes is opened, listed and watched over HTTP.

use super::write_json;
use crate::Failure;
use arpo_train::memory::resident_mib;
use arpo_view::testing::{Plan, SyntheticRun};
use clap::{Args, value_parser};
use serde::Serialize;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for an answer.
const DEADLINE: Duration = Duration::from_mins(2);
const GROUP: u64 = 10;

/// The arguments of `arpo bench view`.
#[derive(Args)]
pub(crate) struct ViewArguments {
    /// Iterations of the run
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u64).range(1..=100_000))]
    iterations: u64,
    /// Episodes of an iteration, a multiple of 10
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u64).range(10..=10_000))]
    episodes: u64,
    /// Where the run is written, and removed afterwards
    #[arg(long, value_name = "FOLDER", default_value = "bench-view-run")]
    folder: PathBuf,
    /// Keep the run
    #[arg(long)]
    keep: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    iterations: u64,
    episodes: u64,
    index_mib: f64,
    written_seconds: f64,
    /// From an empty server to everything that the first page shows.
    open_seconds: f64,
    /// The same when the run is known.
    again_seconds: f64,
    first_episodes_ms: f64,
    filtered_ms: f64,
    last_page_ms: f64,
    episode_ms: f64,
    matrix_ms: f64,
    memory_mib: Option<f64>,
}

pub(crate) fn run(arguments: &ViewArguments, out: &mut impl Write) -> Result<(), Failure> {
    let folder = &arguments.folder;
    if folder.exists() {
        let problem = format!("--folder {}: exists already; expected a name that is free", folder.display());
        return Err(Failure::usage(problem));
    }
    let measured = measure(arguments, folder);
    if !arguments.keep {
        let _ = std::fs::remove_dir_all(folder);
    }
    let report = measured?;
    if arguments.json {
        return write_json(&report, out);
    }
    let Report { iterations, episodes, index_mib, written_seconds, .. } = report;
    writeln!(
        out,
        "{iterations} iterations, {episodes} episodes, an index of {index_mib:.0} MiB, written in {written_seconds:.1} s"
    )?;
    for (name, value, unit) in [
        ("open", report.open_seconds, "s"),
        ("open again", report.again_seconds, "s"),
        ("first episodes", report.first_episodes_ms, "ms"),
        ("filtered", report.filtered_ms, "ms"),
        ("last page", report.last_page_ms, "ms"),
        ("one episode", report.episode_ms, "ms"),
        ("task matrix", report.matrix_ms, "ms"),
    ] {
        writeln!(out, "  {name:<16} {value:9.2} {unit}")?;
    }
    if let Some(mib) = report.memory_mib {
        writeln!(out, "  {:<16} {mib:9.1} MiB", "memory")?;
    }
    Ok(())
}

fn measure(arguments: &ViewArguments, folder: &Path) -> Result<Report, Failure> {
    let plan = Plan {
        iterations: arguments.iterations,
        tasks: 128,
        groups: (arguments.episodes / GROUP).max(1) as usize,
        group_size: GROUP as usize,
        turns: 4,
        desktops: 2,
        screens: 64,
        screen: (168, 112),
        evaluate_every: 20,
        ..Plan::default()
    };
    let began = Instant::now();
    SyntheticRun::whole(folder, plan, 0)
        .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
    let written_seconds = began.elapsed().as_secs_f64();
    let index = std::fs::metadata(folder.join("episodes/index.jsonl")).map_err(Failure::failed)?.len();
    let before = resident_mib();
    let server = arpo_view::serve_in_background(folder, Some(0)).map_err(Failure::failed)?;
    let client = ureq::Agent::config_builder().timeout_global(Some(DEADLINE)).proxy(None).build().new_agent();
    let get = |path: &str| -> Result<(Value, f64), Failure> {
        let began = Instant::now();
        let url = format!("http://{}{path}", server.address);
        let mut response =
            client.get(&url).call().map_err(|error| Failure::failed(format!("{path}: {error}")))?;
        // all metrics of a long run are more than the client's usual limit
        let text =
            response.body_mut().with_config().limit(1 << 30).read_to_string().map_err(Failure::failed)?;
        let value = serde_json::from_str(&text).map_err(Failure::failed)?;
        Ok((value, began.elapsed().as_secs_f64()))
    };
    // what the first page asks for
    let open = |run: &str| -> Result<f64, Failure> {
        let (_, list) = get("/api/runs")?;
        let (_, metrics) = get(&format!("/api/runs/{run}/metrics"))?;
        let (_, status) = get(&format!("/api/runs/{run}/status"))?;
        Ok(list + metrics + status)
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (open_seconds, again_seconds) = (open(&name)?, open(&name)?);
    let episodes = |query: &str| get(&format!("/api/runs/{name}/episodes?limit=100&{query}"));
    let (first, first_seconds) = episodes("")?;
    let total = first["total"].as_u64().unwrap_or(0);
    let (_, filtered) = episodes("search=settings&score=solved&sort=turns")?;
    let (_, last_page) = episodes(&format!("offset={}", total.saturating_sub(100)))?;
    let row = &first["rows"][0];
    let text = |key: &str| row[key].as_str().unwrap_or("").to_owned();
    let (_, episode) = get(&format!("/api/runs/{name}/episode?file={}&id={}", text("file"), text("id")))?;
    let (_, matrix) = get(&format!("/api/runs/{name}/tasks?columns=60"))?;
    Ok(Report {
        iterations: arguments.iterations,
        episodes: total,
        index_mib: index as f64 / f64::from(1 << 20),
        written_seconds,
        open_seconds,
        again_seconds,
        first_episodes_ms: first_seconds * 1000.0,
        filtered_ms: filtered * 1000.0,
        last_page_ms: last_page * 1000.0,
        episode_ms: episode * 1000.0,
        matrix_ms: matrix * 1000.0,
        memory_mib: resident_mib().zip(before).map(|(after, before)| after - before),
    })
}
