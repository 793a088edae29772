//! `arpo bench rollout`: one step of agents that have screenshots behind them (look at a new one, answer), with the
//! cache of the steps before and without.

use super::episode::MadeTurns;
use super::{ModelName, device_memory_gib, number_kind, warn_without_kernels, write_json};
use crate::Failure;
use crate::device::DeviceName;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Engine, EngineOptions, Request, Sampling, Screenshot};
use arpo_image::ImageProcessor;
use arpo_model::checkpoint::Weights;
use arpo_model::config::ModelConfig;
use arpo_model::model::Model;
use arpo_torch::kernels;
use arpo_train::memory::resident_mib;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;
use tch::Kind;

/// What `arpo bench rollout` takes.
#[derive(Args)]
pub(crate) struct RolloutArguments {
    /// Where to compute
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// Whose shapes
    #[arg(long, value_enum, default_value = "pocket")]
    model: ModelName,
    /// Episodes at once
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32])]
    episodes: Vec<usize>,
    /// Screenshots behind each
    #[arg(long, default_value_t = 14)]
    behind: usize,
    /// Tokens of an answer
    #[arg(long, default_value_t = 100)]
    tokens: usize,
    /// Leave out the comparison with reading everything again
    #[arg(long)]
    without_whole: bool,
    /// Without our own CUDA kernels
    #[arg(long)]
    plain: bool,
    /// GB/s that reading memory reaches on the device, for the share of it
    #[arg(long, default_value_t = 4300.0)]
    bandwidth: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    episodes: usize,
    tokens_behind: usize,
    new_tokens: usize,
    answer_tokens: usize,
    /// Until every episode has its first token.
    first_token_seconds: f64,
    /// One token for every episode, nothing else in the pass.
    decode_seconds: f64,
    decode_tokens_per_second: f64,
    decode_gigabytes: f64,
    decode_bandwidth_share: f64,
    step_seconds: f64,
    whole_seconds: Option<f64>,
    times_faster: Option<f64>,
    /// Log-probabilities with the cache and without it.
    mean_difference: Option<f64>,
    device_memory_gib: Option<f64>,
    resident_mib: Option<f64>,
}

pub(crate) fn run(arguments: &RolloutArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = arguments.device.device()?;
    kernels::use_plain_versions(arguments.plain);
    warn_without_kernels(device);
    let config = arguments.model.config();
    let kind = number_kind(device);
    let most = arguments.episodes.iter().copied().max().unwrap_or(1);
    let whole = MadeTurns::new(&config, arguments.model.grid(), arguments.behind + 1, 0, true).tokens.len();
    let page_tokens = 64;
    let pages = (whole + arguments.tokens).div_ceil(page_tokens) * most;
    let options = EngineOptions {
        fixed_vision: false,
        cache_bytes: pages as u64 * token_bytes(&config, kind) * page_tokens as u64,
        feature_bytes: 0,
        page_tokens,
        most_running: most,
        prompt_tokens: 16_384,
        forbidden: vec![config.image_token, config.video_token],
    };
    let weights = Weights::random(&config, kind, device);
    let mut engine =
        Engine::new(Model::new(config, weights), ImageProcessor::published(), options, PolicyVersion(0));
    // once to warm up: kernels are compiled, memory is taken
    for (episodes, behind) in [(most, 1), (1, arguments.behind)] {
        measure(arguments, &mut engine, episodes, behind, false)?;
    }
    let mut reports = Vec::new();
    for &episodes in &arguments.episodes {
        let report = measure(arguments, &mut engine, episodes, arguments.behind, !arguments.without_whole)?;
        if !arguments.json {
            print(&report, arguments.bandwidth, out)?;
        }
        reports.push(report);
    }
    if arguments.json { write_json(&reports, out) } else { Ok(()) }
}

fn measure(
    arguments: &RolloutArguments,
    engine: &mut Engine,
    episodes: usize,
    behind: usize,
    with_whole: bool,
) -> Result<Report, Failure> {
    let (config, grid) = (engine.model().config().clone(), arguments.model.grid());
    let prompt =
        |episode: usize, turns: usize| MadeTurns::new(&config, grid, turns, episode as u32, true).tokens;
    let requests = |turns: usize, tokens: usize, said: &[(Vec<u32>, Vec<f32>)]| -> Vec<Request> {
        let request = |episode: usize| Request {
            tokens: prompt(episode, turns),
            screenshots: (0..turns).map(|turn| screenshot(arguments.model, episode, turn)).collect(),
            sampling: Sampling {
                temperature: 1.0,
                top_k: None,
                top_p: None,
                max_tokens: tokens,
                stop: vec![],
                seed: episode as u64,
                turn: turns as u64,
            },
            dictated: said.get(episode).map(|(tokens, _)| tokens.clone()).unwrap_or_default(),
        };
        (0..episodes).map(request).collect()
    };
    let now = behind + 1;
    let tokens_behind = prompt(0, behind).len();
    let new_tokens = prompt(0, now).len() - tokens_behind;
    forget(engine)?;
    if behind > 0 {
        answer(engine, requests(behind, 1, &[]), episodes)?;
    }
    let step = answer(engine, requests(now, arguments.tokens, &[]), episodes)?;
    let again = if with_whole {
        forget(engine)?;
        // the same words, or after the first other one there would be nothing to compare
        Some(answer(engine, requests(now, arguments.tokens, &step.logp), episodes)?)
    } else {
        None
    };
    let kind = engine.model().weights().kind();
    let text = &engine.model().config().text;
    // every number of the language model but its embedding, and the keys and values half way through the answer
    let layer = 2 * text.hidden * text.heads * text.head_width()
        + 2 * text.hidden * text.key_value_heads * text.head_width()
        + 3 * text.hidden * text.intermediate;
    let weights = (text.layers as i64 * layer + text.hidden * text.vocabulary) as f64;
    let length = (tokens_behind + new_tokens + arguments.tokens / 2) as f64;
    let cached = length * token_bytes(engine.model().config(), kind) as f64 * episodes as f64;
    let gigabytes = (weights * kind.elt_size_in_bytes() as f64 + cached) / 1e9;
    let mean_difference = again.as_ref().map(|again| mean_difference(&step.logp, &again.logp));
    Ok(Report {
        episodes,
        tokens_behind,
        new_tokens,
        answer_tokens: arguments.tokens,
        first_token_seconds: step.first_token,
        decode_seconds: step.decode,
        decode_tokens_per_second: episodes as f64 / step.decode,
        decode_gigabytes: gigabytes,
        decode_bandwidth_share: gigabytes / step.decode / arguments.bandwidth,
        step_seconds: step.seconds,
        whole_seconds: again.as_ref().map(|again| again.seconds),
        times_faster: again.as_ref().map(|again| again.seconds / step.seconds),
        mean_difference,
        device_memory_gib: device_memory_gib(engine.model().device()),
        resident_mib: resident_mib(),
    })
}

/// Bytes of a token's keys and values.
fn token_bytes(config: &ModelConfig, kind: Kind) -> u64 {
    let text = &config.text;
    let numbers = 2 * text.layers as i64 * text.key_value_heads * text.head_width();
    numbers as u64 * kind.elt_size_in_bytes() as u64
}

fn screenshot(model: ModelName, episode: usize, turn: usize) -> Screenshot {
    let number = (episode * 1000 + turn) as u32;
    Screenshot { digest: number.to_string().into(), image: Arc::new(model.screenshot(number)) }
}

/// The same weights as new ones: the cache is empty after it.
fn forget(engine: &mut Engine) -> Result<(), Failure> {
    let weights = engine.model().weights().share();
    engine.update(&weights, PolicyVersion(0)).map_err(Failure::failed)
}

struct Answered {
    seconds: f64,
    first_token: f64,
    /// Median over the passes that only decoded.
    decode: f64,
    /// Each episode's tokens and log-probabilities.
    logp: Vec<(Vec<u32>, Vec<f32>)>,
}

fn answer(engine: &mut Engine, requests: Vec<Request>, episodes: usize) -> Result<Answered, Failure> {
    let started = Instant::now();
    let mut ids = Vec::new();
    for request in requests {
        ids.push(engine.submit(request).map_err(Failure::failed)?);
    }
    let (mut passes, mut first_token, mut answers) = (Vec::new(), None, Vec::new());
    while engine.unanswered() > 0 {
        let (begun, before) = (Instant::now(), engine.counts());
        answers.extend(engine.pass().map_err(Failure::failed)?);
        let new = engine.counts();
        // a pass ends with reading the tokens it drew, so the device is done
        if new.computed - before.computed == episodes as u64 {
            passes.push(begun.elapsed().as_secs_f64());
        }
        if new.drawn - before.drawn == episodes as u64 {
            first_token.get_or_insert(started.elapsed().as_secs_f64());
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    passes.sort_by(f64::total_cmp);
    answers.sort_by_key(|(id, _)| *id);
    Ok(Answered {
        seconds,
        first_token: first_token.unwrap_or(seconds),
        decode: passes.get(passes.len() / 2).copied().unwrap_or(f64::NAN),
        logp: answers.into_iter().map(|(_, answer)| (answer.tokens, answer.logp)).collect(),
    })
}

/// Of the log-probabilities of the same tokens.
fn mean_difference(one: &[(Vec<u32>, Vec<f32>)], other: &[(Vec<u32>, Vec<f32>)]) -> f64 {
    let pairs = one.iter().zip(other).flat_map(|((_, one), (_, other))| one.iter().zip(other));
    let differences: Vec<f64> = pairs.map(|(a, b)| f64::from((a - b).abs())).collect();
    differences.iter().sum::<f64>() / differences.len() as f64
}

fn print(report: &Report, bandwidth: f64, out: &mut impl Write) -> Result<(), Failure> {
    let Report { episodes, tokens_behind, new_tokens, answer_tokens, .. } = report;
    writeln!(
        out,
        "{episodes} episodes, {tokens_behind} tokens behind each; {new_tokens} new, {answer_tokens} drawn"
    )?;
    writeln!(out, "  {:<18} {:9.4} s", "first token", report.first_token_seconds)?;
    writeln!(
        out,
        "  {:<18} {:9.5} s, {:.0} tokens/s, {:.3} GB read, {:.0} % of {bandwidth} GB/s",
        "a token for each",
        report.decode_seconds,
        report.decode_tokens_per_second,
        report.decode_gigabytes,
        100.0 * report.decode_bandwidth_share
    )?;
    writeln!(out, "  {:<18} {:9.4} s", "whole step", report.step_seconds)?;
    if let (Some(whole), Some(times)) = (report.whole_seconds, report.times_faster) {
        writeln!(out, "  {:<18} {whole:9.4} s, {times:.1} times as long", "without the cache")?;
    }
    if let Some(difference) = report.mean_difference {
        writeln!(out, "  {:<18} {difference:9.6} mean difference of log-probabilities", "with and without")?;
    }
    if let Some(gib) = report.device_memory_gib {
        writeln!(out, "  {:<18} {gib:9.1} GiB", "device memory")?;
    }
    if let Some(mib) = report.resident_mib {
        writeln!(out, "  {:<18} {mib:9.1} MiB", "resident")?;
    }
    Ok(())
}
