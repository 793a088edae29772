//! `arpo bench serve`: a chat server under load, over HTTP: our own on the loopback interface, or any at `--url`.

use super::load::{Target, TurnTimes, play};
use super::{ModelName, compute_kind, warn_without_kernels, write_json};
use crate::Failure;
use crate::device::DeviceName;
use crate::serve::served;
use arpo_agent::geometry::UITARS_LIMITS;
use arpo_agent::window::ScreenshotWindow;
use arpo_core::config::{Config, SuiteChoice};
use arpo_core::trajectory::PolicyVersion;
use arpo_model::checkpoint::{Weights, save};
use arpo_model::config::{self, ModelConfig};
use arpo_serve::listen::Background;
use arpo_serve::{Limits, Server};
use arpo_tokenizer::fill::fill;
use arpo_torch::kernels::Kernels;
use arpo_train::agent::Agent;
use arpo_train::base_model;
use arpo_train::memory_plan::Work;
use arpo_train::style_choice::short_uitars;
use arpo_train::trainer::setup;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The arguments of `arpo bench serve`.
#[derive(Args)]
pub(crate) struct ServeArguments {
    /// The device of our server
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// The shapes of the model, which has random weights; with --url: the size of the screenshots
    #[arg(long, value_enum, default_value = "pocket")]
    model: ModelName,
    /// Measure another server instead: its address, as <http://127.0.0.1:8000/v1>
    #[arg(long)]
    url: Option<String>,
    /// The model's name there
    #[arg(long, default_value = "bench")]
    name: String,
    /// The key of that server
    #[arg(long)]
    api_key: Option<String>,
    /// Ask that server for responses of full length too, with vLLM's `ignore_eos`
    #[arg(long)]
    ignore_eos: bool,
    /// Clients at a time
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16])]
    clients: Vec<usize>,
    /// Episodes that each number of clients plays, per client
    #[arg(long, default_value_t = 2)]
    episodes: usize,
    /// Turns of an episode; each sends one more screenshot
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Tokens of a response
    #[arg(long, default_value_t = 32)]
    tokens: usize,
    /// Write the model to this folder, with a text for every token, so that another server can serve the same, and measure
    /// nothing
    #[arg(long, value_name = "FOLDER", conflicts_with = "url")]
    save: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    clients: usize,
    requests: usize,
    seconds: f64,
    requests_per_second: f64,
    response_tokens_per_second: f64,
    prompt_tokens: f64,
    /// Share of the prompts that was in the server's cache, if it says.
    cached: f64,
    /// From the request to its first text, over the responses that have text.
    first_token_median: Option<f64>,
    first_token_p95: Option<f64>,
    response_median: f64,
    response_p95: f64,
}

pub(crate) fn run(arguments: &ServeArguments, out: &mut impl Write) -> Result<(), Failure> {
    let counts = [arguments.episodes, arguments.turns, arguments.tokens];
    if counts.contains(&0) || arguments.clients.is_empty() || arguments.clients.contains(&0) {
        return Err(Failure::usage("--clients, --episodes, --turns and --tokens: expected at least 1"));
    }
    if let Some(folder) = &arguments.save {
        return write_model(arguments, folder);
    }
    let most = arguments.clients.iter().copied().max().unwrap_or(1);
    let server = match &arguments.url {
        Some(_) => None,
        None => Some(start(arguments, most)?),
    };
    let url = match (&arguments.url, &server) {
        (Some(url), _) => url.trim_end_matches('/').to_owned(),
        (None, Some(server)) => format!("http://{}/v1", server.address),
        (None, None) => String::new(),
    };
    let target = Target {
        url,
        model: arguments.name.clone(),
        key: arguments.api_key.clone(),
        tokens: arguments.tokens,
        ignore_eos: arguments.ignore_eos || server.is_some(),
    };
    // different screens for every load, or its prompts would be in the cache already
    let mut first = 0;
    let mut load = |clients: usize, episodes: usize, turns: usize| {
        let start = first;
        first += episodes;
        let screen = |episode, turn| arguments.model.screenshot(((start + episode) * 1000 + turn) as u32);
        play(&target, clients, episodes, turns, screen).map_err(Failure::failed)
    };
    // compiles kernels and reserves memory
    load(most, most, 1)?;
    let mut reports = Vec::new();
    for &clients in &arguments.clients {
        let measured = load(clients, clients * arguments.episodes, arguments.turns)?;
        let report = report(clients, &measured.turns, measured.seconds);
        if !arguments.json {
            print(&report, out)?;
        }
        reports.push(report);
    }
    if arguments.json { write_json(&reports, out) } else { Ok(()) }
}

/// A model without its weights.
struct Model {
    shapes: ModelConfig,
    /// The other files of a checkpoint.
    files: BTreeMap<String, Vec<u8>>,
    agent: Agent,
}

/// The shapes with the special tokens of the pocket tokenizer, which is the one at hand.
fn without_weights(model: ModelName) -> Result<Model, Failure> {
    let (pocket, mut files) = base_model::check(base_model::POCKET).map_err(Failure::of)?;
    let (mut file, own) = (model.config().to_json("bfloat16"), pocket.to_json("bfloat16"));
    for name in ["image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"] {
        file[name] = own[name].clone();
    }
    let shapes = config::parse(file).map_err(Failure::failed)?;
    // random weights sample any id, and a server streams only what has a text
    if let Some(tokenizer) = files.get_mut("tokenizer.json") {
        *tokenizer = fill(tokenizer, shapes.text.vocabulary as u32).map_err(Failure::failed)?;
    }
    let mut agent = Agent::new(
        &shapes,
        &files,
        Path::new(base_model::POCKET),
        short_uitars(ScreenshotWindow::new(32, 0)),
    )
    .map_err(Failure::of)?;
    if model == ModelName::SevenBillion {
        agent.processor.limits = UITARS_LIMITS;
    }
    Ok(Model { shapes, files, agent })
}

fn start(arguments: &ServeArguments, clients: usize) -> Result<Background, Failure> {
    let device = arguments.device.device()?;
    let kernels = Kernels::of(device);
    warn_without_kernels(&kernels);
    let Model { shapes, agent, .. } = without_weights(arguments.model)?;
    let mut config = Config::default();
    config.collect.desktops = clients;
    config.agent.max_screenshots = arguments.turns;
    config.agent.max_tokens = arguments.tokens;
    (config.agent.min_pixels, config.agent.max_pixels) =
        (agent.processor.limits.min, agent.processor.limits.max);
    config.model.freeze_vision = true;
    config.model.cache_gib = 0.0;
    config.tasks.suite = match arguments.model {
        ModelName::Pocket => SuiteChoice::Pocket,
        ModelName::SevenBillion | ModelName::Qwen3EightBillion => SuiteChoice::Osworld,
    };
    let weights = Weights::random(&shapes, compute_kind(device), device).with_kernels(kernels);
    let plan = setup::memory(&config, &shapes, device, Work::Sampling);
    let engine = setup::engine_within(&plan, &config, &shapes, &weights, &agent, PolicyVersion(0));
    let limits = Limits { context_tokens: usize::MAX, choices: 2 * clients, ..Limits::default() };
    let server =
        Server::start(engine, served(&agent, &arguments.name), limits, None).map_err(Failure::failed)?;
    Background::start(server).map_err(Failure::failed)
}

/// Writes the model with random weights as a checkpoint.
fn write_model(arguments: &ServeArguments, folder: &Path) -> Result<(), Failure> {
    let device = arguments.device.device()?;
    let Model { shapes, files, .. } = without_weights(arguments.model)?;
    let mut config = Config::default();
    if arguments.model == ModelName::SevenBillion {
        (config.agent.min_pixels, config.agent.max_pixels) = (UITARS_LIMITS.min, UITARS_LIMITS.max);
    }
    let weights = Weights::random(&shapes, compute_kind(device), device);
    save(folder, &shapes, &weights, &setup::side_files_of(&config, files)).map_err(Failure::failed)
}

fn report(clients: usize, turns: &[TurnTimes], seconds: f64) -> Report {
    let sum = |of: fn(&TurnTimes) -> u64| turns.iter().map(of).sum::<u64>() as f64;
    let sorted = |of: fn(&TurnTimes) -> Option<f64>| {
        let mut values: Vec<f64> = turns.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let first_token = sorted(|turn| turn.first_token);
    let whole = sorted(|turn| Some(turn.whole));
    let requests = turns.len();
    Report {
        clients,
        requests,
        seconds,
        requests_per_second: requests as f64 / seconds,
        response_tokens_per_second: sum(|turn| turn.response_tokens) / seconds,
        prompt_tokens: sum(|turn| turn.prompt_tokens) / requests as f64,
        cached: sum(|turn| turn.cached_tokens) / sum(|turn| turn.prompt_tokens).max(1.0),
        first_token_median: quantile(&first_token, 0.5),
        first_token_p95: quantile(&first_token, 0.95),
        response_median: quantile(&whole, 0.5).unwrap_or_default(),
        response_p95: quantile(&whole, 0.95).unwrap_or_default(),
    }
}

/// The value at this share of sorted values.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * share).round() as usize])
}

fn print(report: &Report, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(
        out,
        "{} clients, {} requests of {:.0} prompt tokens, {:.0} % of them cached",
        report.clients,
        report.requests,
        report.prompt_tokens,
        100.0 * report.cached
    )?;
    writeln!(
        out,
        "  {:8.2} requests/s  {:8.1} tokens/s",
        report.requests_per_second, report.response_tokens_per_second
    )?;
    let milliseconds = |name: &str, median: f64, p95: f64| {
        format!("  {name:<12} {:8.1} ms median  {:8.1} ms for 95 %", 1e3 * median, 1e3 * p95)
    };
    match (report.first_token_median, report.first_token_p95) {
        (Some(median), Some(p95)) => writeln!(out, "{}", milliseconds("first token", median, p95))?,
        _ => writeln!(out, "  first token  unknown: no response had text")?,
    }
    writeln!(out, "{}", milliseconds("response", report.response_median, report.response_p95))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(first_token: Option<f64>, whole: f64) -> TurnTimes {
        TurnTimes { first_token, whole, ..TurnTimes::default() }
    }

    /// A response without text would otherwise be one whose first token took no time.
    #[test]
    fn only_responses_with_text_have_a_time_to_the_first_token() {
        let measured = report(1, &[turn(None, 5.0), turn(Some(2.0), 3.0), turn(Some(1.0), 4.0)], 12.0);
        assert_eq!((measured.first_token_median, measured.response_median), (Some(2.0), 4.0));
        assert_eq!((measured.first_token_p95, measured.response_p95), (Some(2.0), 5.0));
        let measured = report(1, &[turn(None, 5.0)], 5.0);
        assert_eq!((measured.first_token_median, measured.response_median), (None, 5.0));
        let mut printed = Vec::new();
        assert!(print(&measured, &mut printed).is_ok());
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.contains("first token  unknown: no response had text"), "{printed}");
    }
}
