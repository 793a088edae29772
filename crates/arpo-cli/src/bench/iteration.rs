//! `arpo bench iteration`: complete training iterations, from collection to update, with a model of any size and random
//! weights.
//!
//! Its responses are forced to those of scripted policies, and computed token by token as if they had been sampled. So
//! episodes have their full length, half of each group can succeed, and everything takes as long as with a trained model.

use super::{ModelName, compute_kind, timed, warn_without_kernels, write_json};
use crate::Failure;
use crate::device::DeviceName;
use arpo_agent::geometry::Size;
use arpo_core::action::Action;
use arpo_core::config::{Config, Moments, OptimiserConfig};
use arpo_core::replay::ReplayBuffer;
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, ends_episode};
use arpo_env::look::ScreenOptions;
use arpo_env::policies::Scripted;
use arpo_env::tasks::{Split, Suite};
use arpo_model::checkpoint::Weights;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::step::Updater;
use arpo_tokenizer::Tokenizer;
use arpo_torch::shim::cuda_peak_bytes;
use arpo_train::agent::Agent;
use arpo_train::base_model;
use arpo_train::batch::{RolloutGroup, assemble};
use arpo_train::collect::{
    CollectOptions, CollectReport, Collected, Collector, GroupPlan, GroupSize, Planner, Worlds,
};
use arpo_train::episode::History;
use arpo_train::learner::LocalLearner;
use arpo_train::memory_plan::{MemoryPlan, Work, fitting};
use arpo_train::policy::scripted::{Script, following};
use arpo_train::policy::{EnginePolicy, RolloutPolicy, WeightUpdate};
use arpo_train::screens::Screens;
use arpo_train::trainer::setup;
use arpo_train::updates::{RunPosition, Updates, learn};
use clap::{Args, value_parser};
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// Probability of a mistake before each action of the policy that solves the task.
const MISTAKES: f64 = 0.25;

/// The arguments of `arpo bench iteration`.
#[derive(Args)]
pub(crate) struct IterationArguments {
    /// The device
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// The model's shapes and screens: 1920x1080 for the published 7B, 168x140 for the pocket model
    #[arg(long, value_enum, default_value = "pocket")]
    model: ModelName,
    /// Iterations
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u64).range(1..))]
    iterations: u64,
    /// Groups per iteration
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=128))]
    tasks: u16,
    /// Episodes per group
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u16).range(2..=64))]
    group_size: u16,
    /// Turns per episode
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = value_parser!(u16).range(1..=100))]
    turns: u16,
    /// Tokens of the thought before every action
    #[arg(long, value_name = "N", default_value_t = 100)]
    thought: usize,
    /// Train only the language model
    #[arg(long)]
    freeze_vision: bool,
    /// GiB for the KV cache [default: what is free for the 7B, else 1]
    #[arg(long)]
    cache_gib: Option<f64>,
    /// GiB for activations kept between the passes [default: what is free for the 7B, else 2]
    #[arg(long)]
    activation_gib: Option<f64>,
    /// Limit for the memory used on the device, in GiB; 0 for all of it
    #[arg(long, default_value_t = 0.0)]
    memory_gib: f64,
    /// Maximum number of screenshots in the context [default: all of an episode]
    #[arg(long)]
    screenshots: Option<usize>,
    /// Keep the optimiser's moments in host memory
    #[arg(long)]
    moments_on_host: bool,
    /// Maximum number of concurrent episodes; 0 for as many as the cache holds
    #[arg(long, default_value_t = 0)]
    running: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One iteration.
#[derive(Serialize)]
struct Row {
    collect_seconds: f64,
    learn_seconds: f64,
    score: f64,
    /// Prompt tokens, including those of screenshots, that the engine computed and that it found in its cache.
    prompt_computed: u64,
    prompt_found: u64,
    /// Share of the tokens that an unlimited cache would have found.
    found_share: f64,
    /// Episodes that were trained on, and their tokens.
    learnt_episodes: usize,
    learnt_tokens: usize,
    updates: usize,
    /// Mean difference between the sampler's log-probabilities and the learner's.
    mismatch: f64,
    /// Peak memory so far: at the end of collection, and of training.
    collecting_memory: Option<Peak>,
    learning_memory: Option<Peak>,
    collected: CollectReport,
}

/// Peak memory of the device so far, in GiB.
#[derive(Clone, Copy, Serialize)]
struct Peak {
    used: f64,
    taken: f64,
}

impl Peak {
    fn of(device: Device) -> Option<Self> {
        let Device::Cuda(number) = device else { return None };
        let (used, taken) = cuda_peak_bytes(number).ok()?;
        let [used, taken] = [used, taken].map(|bytes| bytes as f64 / f64::from(1 << 30));
        Some(Self { used, taken })
    }
}

#[derive(Serialize)]
struct Report {
    parameters: i64,
    screen: [u32; 2],
    rows: Vec<Row>,
}

pub(crate) fn run(arguments: &IterationArguments, out: &mut impl Write) -> Result<(), Failure> {
    if arguments.model == ModelName::Qwen3EightBillion {
        return Err(Failure::usage(
            "--model qwen3-8b: expected pocket or 7b, whose images the built-in agent can read",
        ));
    }
    let device = arguments.device.device()?;
    let mut bench = Bench::new(arguments, device)?;
    warn_without_kernels(bench.learner.updater().trainable().model().weights().kernels());
    let mut report = Report {
        parameters: bench.learner.updater().trainable().model().weights().count(),
        screen: [bench.screen.width, bench.screen.height],
        rows: vec![],
    };
    if !arguments.json {
        let Report { parameters, screen: [width, height], .. } = report;
        writeln!(
            out,
            "{parameters} parameters, episodes of {} screenshots of {width}x{height}\n{}",
            arguments.turns, bench.plan
        )?;
    }
    for iteration in 0..arguments.iterations {
        let row = bench.iterate(iteration)?;
        if !arguments.json {
            print(iteration + 1, &row, out)?;
        }
        report.rows.push(row);
    }
    if arguments.json { write_json(&report, out) } else { Ok(()) }
}

/// The components of a run, without its folder.
struct Bench {
    config: Config,
    screen: ScreenOptions,
    tasks: Vec<Arc<Task>>,
    device: Device,
    plan: MemoryPlan,
    /// Memory held back from use.
    reserved: Option<Tensor>,
    policy: EnginePolicy,
    learner: LocalLearner,
    collector: Collector,
    replay: ReplayBuffer,
    screens: Screens,
}

impl Bench {
    fn new(arguments: &IterationArguments, device: Device) -> Result<Self, Failure> {
        let config = config(arguments);
        // the tokenizer of the built-in model works for any size
        let built_in =
            base_model::load(base_model::POCKET, Kind::Float, Device::Cpu).map_err(Failure::failed)?;
        let mut dimensions = arguments.model.config();
        dimensions.image_token = built_in.config.image_token;
        dimensions.video_token = built_in.config.video_token;
        dimensions.vision_start_token = built_in.config.vision_start_token;
        dimensions.vision_end_token = built_in.config.vision_end_token;
        let agent = setup::agent(&config, &dimensions, &built_in.side_files).map_err(Failure::failed)?;
        let agent = Arc::new(agent);
        let (suite, screen) = match arguments.model {
            ModelName::Pocket => (Suite::Pocket, ScreenOptions::pocket()),
            ModelName::SevenBillion | ModelName::Qwen3EightBillion => {
                (Suite::Desktop, ScreenOptions::desktop(1920, 1080))
            }
        };
        let freeze = arguments.freeze_vision;
        let weights = Weights::random(&dimensions, compute_kind(device), device)
            .with_gradients(|layout| !(freeze && layout.is_vision()));
        let size = Size { width: screen.width, height: screen.height };
        let memory = setup::device_memory(device);
        let plan = fitting(&dimensions, &config, size, memory, Work::Training).map_err(Failure::failed)?;
        let reserved = setup::reserved_memory(&config, device).map_err(Failure::failed)?;
        let policy = setup::policy_within(&plan, &config, &dimensions, &weights, &agent, PolicyVersion(0))
            .with_forced_responses(script(arguments, &screen, &agent)?);
        let moments = plan.moments;
        let optimiser = AdamW::new(&weights, OptimiserConfig { moments, ..config.optimiser.clone() });
        let features = config.model.freeze_vision.then(|| policy.engine().features());
        let model = setup::trainable_model(&config, &dimensions, weights, &agent);
        let of_factory = screen.clone();
        let factory =
            move |_| Ok(Box::new(EmbeddedDesktop::new(of_factory.clone())?) as Box<dyn Environment>);
        let options = CollectOptions::from(&config);
        Ok(Self {
            tasks: suite.tasks(Split::Train).iter().map(|task| Arc::new(task.clone())).collect(),
            collector: Collector::new(Arc::new(factory), config.collect.desktops, options),
            learner: LocalLearner::new(
                Updater::new(model, optimiser, None),
                agent.processor.clone(),
                config.model.micro_batch_tokens,
            )
            .with_features(features),
            replay: ReplayBuffer::default(),
            screens: Screens::default(),
            config,
            screen,
            device,
            plan,
            reserved,
            policy,
        })
    }

    fn iterate(&mut self, iteration: u64) -> Result<Row, Failure> {
        let version = PolicyVersion(iteration);
        self.policy.publish(WeightUpdate::InPlace, version).map_err(Failure::failed)?;
        let before = self.policy.engine().counts();
        let plans = self.plans(iteration);
        let (collected, collect_seconds) =
            timed(self.device, || self.collector.collect(&mut self.policy, plans, &mut |_| {}));
        let Collected { groups, report } = collected.map_err(Failure::failed)?;
        self.policy.release_memory().map_err(Failure::failed)?;
        let held = self.reserved.as_ref().map_or(0.0, |held| held.numel() as f64 / f64::from(1 << 30));
        let peak =
            |device| Peak::of(device).map(|peak| Peak { used: peak.used - held, taken: peak.taken - held });
        let collecting_memory = peak(self.device);
        let after = self.policy.engine().counts();
        let groups = groups
            .into_iter()
            .map(|group| {
                let keep = |episode: arpo_train::episode::CompletedEpisode| {
                    self.screens.add(&episode.trajectory, &episode.screens);
                    Arc::new(episode.trajectory)
                };
                RolloutGroup {
                    task: group.task,
                    trajectories: group.episodes.into_iter().map(keep).collect(),
                }
            })
            .collect();
        let batch = assemble(groups, &mut self.replay, version, iteration, &self.config);
        let position = RunPosition { iteration, updates_before: iteration };
        let (learnt, learn_seconds) = timed(self.device, || {
            let updates = &mut Updates::default();
            learn(&mut self.learner, &batch.samples, updates, &self.screens, position, &self.config)
        });
        let learnt = learnt.map_err(Failure::failed)?;
        self.screens.keep_only(self.replay.iter().map(Arc::as_ref)).map_err(Failure::failed)?;
        let drawn = after.sampled - before.sampled;
        Ok(Row {
            collect_seconds,
            learn_seconds,
            score: batch.report.score,
            prompt_computed: (after.computed - before.computed).saturating_sub(drawn),
            prompt_found: after.cache_hits - before.cache_hits,
            found_share: report.cache_hit_rate(),
            learnt_episodes: batch.samples.len(),
            learnt_tokens: learnt.tokens,
            updates: learnt.updates,
            mismatch: learnt.mismatch.mean(),
            collecting_memory,
            learning_memory: peak(self.device),
            collected: report,
        })
    }

    /// Groups of consecutive tasks, in which one half solves the task and the other acts randomly.
    fn plans(&self, iteration: u64) -> Vec<GroupPlan> {
        let collect = &self.config.collect;
        let planner = Planner { seed: 0, step: iteration, worlds: Worlds::Own, faulty: false };
        let size = GroupSize::new(collect.group_size, 0, collect.max_steps);
        let group = |number: usize| {
            let task = &self.tasks[(iteration as usize * collect.tasks + number) % self.tasks.len()];
            let mut group = planner.group(task, number as u64, size);
            for (index, episode) in group.episodes.iter_mut().enumerate() {
                episode.sampling_seed = episode.sampling_seed & !1 | index as u64 & 1;
            }
            group
        };
        (0..collect.tasks).map(group).collect()
    }
}

fn config(arguments: &IterationArguments) -> Config {
    let mut config = Config::default();
    config.collect.tasks = usize::from(arguments.tasks);
    config.collect.group_size = usize::from(arguments.group_size);
    config.collect.max_steps = usize::from(arguments.turns);
    config.collect.desktops = config.collect.tasks * config.collect.group_size;
    config.collect.running = arguments.running;
    config.agent.max_screenshots = arguments.screenshots.unwrap_or(config.collect.max_steps);
    config.model.memory_gib = arguments.memory_gib;
    if arguments.moments_on_host {
        config.optimiser.moments = Moments::Host;
    }
    config.agent.max_tokens = arguments.thought + 200;
    let (cache_gib, activation_gib) = match arguments.model {
        ModelName::SevenBillion | ModelName::Qwen3EightBillion => (0.0, 0.0),
        ModelName::Pocket => {
            config.agent.min_pixels = 784;
            (1.0, 2.0)
        }
    };
    config.model.cache_gib = arguments.cache_gib.unwrap_or(cache_gib);
    config.model.activation_gib = arguments.activation_gib.unwrap_or(activation_gib);
    config.model.freeze_vision = arguments.freeze_vision;
    config
}

/// The forced responses: even seeds solve the task with mistakes, odd ones act randomly; no episode ends early.
fn script(arguments: &IterationArguments, screen: &ScreenOptions, agent: &Agent) -> Result<Script, Failure> {
    let whole = Size { width: screen.width, height: screen.height };
    let seen = agent.processor.resized_size(whole).map_err(Failure::failed)?;
    let thought = filler(&agent.tokenizer, arguments.thought)?;
    let make = |seed: u64| {
        if seed.is_multiple_of(2) { Scripted::clumsy(seed, MISTAKES) } else { Scripted::random(seed) }
    };
    let format = agent.style.format;
    let respond = move |history: &History, action: Action| {
        let last = history.responses.len() + 1 == history.plan.max_steps;
        let action = if ends_episode(&action) && !last { Action::Wait {} } else { action };
        format.grammar.render((!thought.is_empty()).then_some(thought.as_str()), &[action])
    };
    Ok(following(screen.clone(), seen, format, make, respond))
}

/// Text of at least `tokens` tokens.
fn filler(tokenizer: &Tokenizer, tokens: usize) -> Result<String, Failure> {
    let mut text = String::new();
    while tokenizer.encode(&text).map_err(Failure::failed)?.len() < tokens {
        text.push_str(if text.is_empty() { "open" } else { " the file and then the next" });
    }
    Ok(text)
}

fn print(number: u64, row: &Row, out: &mut impl Write) -> Result<(), Failure> {
    let collected = &row.collected;
    let per = |count: usize, seconds: f64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    writeln!(out, "iteration {number}: {:.1} s", row.collect_seconds + row.learn_seconds)?;
    writeln!(
        out,
        "  collect {:8.1} s  {} episodes, {} steps, {} tokens generated; prompts: {} tokens computed, {} from the cache, {:.1} % of an unlimited cache",
        row.collect_seconds,
        collected.episodes,
        collected.steps,
        collected.tokens,
        row.prompt_computed,
        row.prompt_found,
        row.found_share * 100.0,
    )?;
    writeln!(
        out,
        "  {:18} policy busy {:.0} %, desktops busy {:.0} %; mean score {:.2}",
        "",
        collected.policy_utilisation * 100.0,
        collected.desktop_utilisation * 100.0,
        row.score
    )?;
    writeln!(
        out,
        "  learn   {:8.1} s  {} episodes, {} tokens, {} updates; {:.0} tokens/s; mismatch {:.4}",
        row.learn_seconds,
        row.learnt_episodes,
        row.learnt_tokens,
        row.updates,
        per(row.learnt_tokens, row.learn_seconds),
        row.mismatch
    )?;
    for (phase, peak) in [("collecting", row.collecting_memory), ("learning", row.learning_memory)] {
        if let Some(Peak { used, taken }) = peak {
            writeln!(
                out,
                "  memory  {used:8.1} GiB used, {taken:.1} GiB reserved at the peak until the end of {phase}"
            )?;
        }
    }
    out.flush()?;
    Ok(())
}
