//! `arpo bench rollout`: one agent step with earlier screenshots in the context (encode a new one, generate a response),
//! with the KV cache of the earlier steps and without.

use super::episode::SyntheticTurns;
use super::{ModelName, compute_kind, device_memory_gib, warn_without_kernels, write_json};
use crate::Failure;
use crate::device::DeviceName;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Engine, EngineOptions, Penalties, Request, Sampling, Screenshot};
use arpo_model::checkpoint::Weights;
use arpo_model::config::ModelConfig;
use arpo_model::model::Model;
use arpo_torch::kernels::Kernels;
use arpo_train::memory::resident_mib;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;
use tch::Kind;

/// The arguments of `arpo bench rollout`.
#[derive(Args)]
pub(crate) struct RolloutArguments {
    /// The device
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// The model's shapes
    #[arg(long, value_enum, default_value = "pocket")]
    model: ModelName,
    /// Concurrent episodes
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32])]
    episodes: Vec<usize>,
    /// Earlier screenshots in the context
    #[arg(long, default_value_t = 14)]
    behind: usize,
    /// Tokens of a response
    #[arg(long, default_value_t = 100)]
    tokens: usize,
    /// Skip the comparison without the cache
    #[arg(long)]
    without_whole: bool,
    /// Do not use our own CUDA kernels
    #[arg(long)]
    plain: bool,
    /// Memory bandwidth of the device in GB/s, for the reported share
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
    let kernels = if arguments.plain { Kernels::none() } else { Kernels::of(device) };
    warn_without_kernels(&kernels);
    let config = arguments.model.config();
    let kind = compute_kind(device);
    let max_episodes = arguments.episodes.iter().copied().max().unwrap_or(1);
    let whole =
        SyntheticTurns::new(&config, arguments.model.grid(), arguments.behind + 1, 0, true).tokens.len();
    let page_tokens = 64;
    let pages = (whole + arguments.tokens).div_ceil(page_tokens) * max_episodes;
    let options = EngineOptions {
        frozen_vision: false,
        cache_bytes: pages as u64 * token_bytes(&config, kind) * page_tokens as u64,
        feature_bytes: 0,
        page_tokens,
        max_running: max_episodes,
        max_prefill_tokens: 16_384,
        forbidden: vec![config.image_token, config.video_token],
    };
    let weights = Weights::random(&config, kind, device).with_kernels(kernels);
    let mut engine =
        Engine::new(Model::new(config, weights), arguments.model.processor(), options, PolicyVersion(0));
    // warm-up: compiles kernels and reserves memory
    for (episodes, behind) in [(max_episodes, 1), (1, arguments.behind)] {
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
        |episode: usize, turns: usize| SyntheticTurns::new(&config, grid, turns, episode as u32, true).tokens;
    let requests = |turns: usize, tokens: usize, forced: &[(Vec<u32>, Vec<f32>)]| -> Vec<Request> {
        let request = |episode: usize| Request {
            tokens: prompt(episode, turns),
            screenshots: (0..turns).map(|turn| screenshot(arguments.model, episode, turn)).collect(),
            sampling: Sampling {
                temperature: 1.0,
                top_k: None,
                top_p: None,
                max_tokens: tokens,
                stop: vec![],
                penalties: Penalties::default(),
                alternatives: 0,
                seed: episode as u64,
                turn: turns as u64,
            },
            forced: forced.get(episode).map(|(tokens, _)| tokens.clone()).unwrap_or_default(),
        };
        (0..episodes).map(request).collect()
    };
    let now = behind + 1;
    let tokens_behind = prompt(0, behind).len();
    let new_tokens = prompt(0, now).len() - tokens_behind;
    clear_cache(engine)?;
    if behind > 0 {
        generate(engine, requests(behind, 1, &[]), episodes)?;
    }
    let step = generate(engine, requests(now, arguments.tokens, &[]), episodes)?;
    let again = if with_whole {
        clear_cache(engine)?;
        // force the same tokens, or after the first difference there would be nothing to compare
        Some(generate(engine, requests(now, arguments.tokens, &step.logp), episodes)?)
    } else {
        None
    };
    let kind = engine.model().weights().kind();
    let text = &engine.model().config().text;
    // all weights of the language model but its embedding, and the KV cache half way through the response
    let layer = 2 * text.hidden * text.heads * text.head_width
        + 2 * text.hidden * text.kv_heads * text.head_width
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

/// Bytes of a token in the KV cache.
fn token_bytes(config: &ModelConfig, kind: Kind) -> u64 {
    let text = &config.text;
    let values = 2 * text.layers as i64 * text.kv_heads * text.head_width;
    values as u64 * kind.elt_size_in_bytes() as u64
}

fn screenshot(model: ModelName, episode: usize, turn: usize) -> Screenshot {
    let number = (episode * 1000 + turn) as u32;
    Screenshot::new(number.to_string(), Arc::new(model.screenshot(number)))
}

/// Empties the cache by updating to the same weights.
fn clear_cache(engine: &mut Engine) -> Result<(), Failure> {
    let weights = engine.model().weights().share();
    engine.update(&weights, PolicyVersion(0)).map_err(Failure::failed)
}

struct Generated {
    seconds: f64,
    first_token: f64,
    /// Median over the passes that only decode.
    decode: f64,
    /// Each episode's tokens and log-probabilities.
    logp: Vec<(Vec<u32>, Vec<f32>)>,
}

fn generate(engine: &mut Engine, requests: Vec<Request>, episodes: usize) -> Result<Generated, Failure> {
    let started = Instant::now();
    let mut ids = Vec::new();
    for request in requests {
        ids.push(engine.submit(request).map_err(Failure::failed)?);
    }
    let (mut passes, mut first_token, mut responses) = (Vec::new(), None, Vec::new());
    while engine.pending() > 0 {
        let (begun, before) = (Instant::now(), engine.counts());
        responses.extend(engine.pass().map_err(Failure::failed)?);
        let new = engine.counts();
        // a pass ends with reading its sampled tokens, so the device is done
        if new.computed - before.computed == episodes as u64 {
            passes.push(begun.elapsed().as_secs_f64());
        }
        if new.sampled - before.sampled == episodes as u64 {
            first_token.get_or_insert(started.elapsed().as_secs_f64());
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    passes.sort_by(f64::total_cmp);
    responses.sort_by_key(|(id, _)| *id);
    Ok(Generated {
        seconds,
        first_token: first_token.unwrap_or(seconds),
        decode: passes.get(passes.len() / 2).copied().unwrap_or(f64::NAN),
        logp: responses.into_iter().map(|(_, response)| (response.tokens, response.logp)).collect(),
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
        "{episodes} episodes, {tokens_behind} tokens in the context of each; {new_tokens} new, {answer_tokens} generated"
    )?;
    writeln!(out, "  {:<18} {:9.4} s", "first token", report.first_token_seconds)?;
    writeln!(
        out,
        "  {:<18} {:9.5} s, {:.0} tokens/s, {:.3} GB read, {:.0} % of {bandwidth} GB/s",
        "one decode step",
        report.decode_seconds,
        report.decode_tokens_per_second,
        report.decode_gigabytes,
        100.0 * report.decode_bandwidth_share
    )?;
    writeln!(out, "  {:<18} {:9.4} s", "complete step", report.step_seconds)?;
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
