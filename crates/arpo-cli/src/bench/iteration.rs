//! `arpo bench iteration`: whole iterations of training, from collecting to the update, with a model of any size that
//! knows nothing.
//!
//! What it says is dictated by actors who know the desktop, and computed and scored token by token as if it had been
//! drawn. So episodes have their full length, half of each group can succeed, and everything takes the time it would
//! take with a trained model.

use super::{ModelName, number_kind, timed, warn_without_kernels, write_json};
use crate::Failure;
use crate::device::DeviceName;
use arpo_agent::geometry::{Size, smart_resize};
use arpo_agent::render;
use arpo_core::action::Action;
use arpo_core::config::{Config, Moments, OptimiserConfig};
use arpo_core::replay::ReplayBuffer;
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, ends_episode};
use arpo_env::look::ScreenOptions;
use arpo_env::policies::Scripted;
use arpo_env::tasks::{Part, Suite};
use arpo_model::checkpoint::Weights;
use arpo_model::learner::adamw::AdamW;
use arpo_model::learner::step::Updater;
use arpo_tokenizer::Tokenizer;
use arpo_torch::shim::cuda_peak_bytes;
use arpo_train::agent::Agent;
use arpo_train::base_model;
use arpo_train::collect::{CollectOptions, CollectReport, Collected, Collector, GroupPlan, PlanOptions};
use arpo_train::episode::History;
use arpo_train::layout::Layout;
use arpo_train::learn::{Place, Updates, learn};
use arpo_train::lesson::{Rollouts, lesson};
use arpo_train::memory_plan::{MemoryPlan, Work, fitting};
use arpo_train::policy::EnginePolicy;
use arpo_train::policy::scripted::{Script, following};
use arpo_train::run::stop::StopSwitch;
use arpo_train::screens::Screens;
use arpo_train::trainer::setup;
use clap::{Args, value_parser};
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// Chance of a mistake before each action of those who solve the task.
const MISTAKES: f64 = 0.25;

/// What `arpo bench iteration` takes.
#[derive(Args)]
pub(crate) struct IterationArguments {
    /// Where to compute
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// Whose shapes, and whose screens: 1920x1080 for the published 7B, 168x140 for the quick preset's
    #[arg(long, value_enum, default_value = "pocket")]
    model: ModelName,
    /// Iterations
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u64).range(1..))]
    iterations: u64,
    /// Groups in an iteration
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=128))]
    tasks: u16,
    /// Episodes in a group
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u16).range(2..=64))]
    group_size: u16,
    /// Turns of every episode
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = value_parser!(u16).range(1..=100))]
    turns: u16,
    /// Tokens of a thought before every action
    #[arg(long, value_name = "N", default_value_t = 100)]
    thought: usize,
    /// Train only the language model
    #[arg(long)]
    freeze_vision: bool,
    /// GiB for keys and values: what the device has for the 7B, if not given, else 1
    #[arg(long)]
    cache_gib: Option<f64>,
    /// GiB that may be kept between the learner's passes: what the device has for the 7B, if not given, else 2
    #[arg(long)]
    activation_gib: Option<f64>,
    /// GiB of the device that may be used; without it all
    #[arg(long, default_value_t = 0.0)]
    memory_gib: f64,
    /// Screenshots seen at once; without it all of an episode
    #[arg(long)]
    screenshots: Option<usize>,
    /// The optimiser's moments in the machine's memory
    #[arg(long)]
    moments_on_host: bool,
    /// Episodes under way at once at most; without it as many as the cache holds
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
    /// Prompt tokens, those of screenshots included, that the engine computed and that it found in its cache.
    prompt_computed: u64,
    prompt_found: u64,
    /// Of what a cache without limit would have found.
    found_share: f64,
    /// Episodes that were learnt from, and their tokens.
    learnt_episodes: usize,
    learnt_tokens: usize,
    updates: usize,
    /// Mean difference between the sampler's log-probabilities and the learner's.
    mismatch: f64,
    /// The most in use, and taken, so far: until the end of collecting, and of learning.
    collecting_memory: Option<Peak>,
    learning_memory: Option<Peak>,
    collected: CollectReport,
}

/// The most memory of the device so far, in GiB.
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
    let device = arguments.device.device()?;
    warn_without_kernels(device);
    let mut bench = Bench::new(arguments, device)?;
    let mut report = Report {
        parameters: bench.updater.learner().model().weights().count(),
        screen: [bench.screen.width, bench.screen.height],
        rows: vec![],
    };
    if !arguments.json {
        let Report { parameters, screen: [width, height], .. } = report;
        writeln!(
            out,
            "{parameters} parameters, episodes of {} screens of {width}x{height}\n{}",
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

/// What a run is made of, without its folder.
struct Bench {
    config: Config,
    agent: Arc<Agent>,
    screen: ScreenOptions,
    tasks: Vec<Arc<Task>>,
    device: Device,
    plan: MemoryPlan,
    /// Memory that is not to be used.
    held_back: Option<Tensor>,
    policy: EnginePolicy,
    updater: Updater,
    collector: Collector,
    replay: ReplayBuffer,
    screens: Screens,
}

impl Bench {
    fn new(arguments: &IterationArguments, device: Device) -> Result<Self, Failure> {
        let config = config(arguments);
        // the words of the small model that the program carries serve any
        let carried =
            base_model::load(base_model::POCKET, Kind::Float, Device::Cpu).map_err(Failure::failed)?;
        let mut dimensions = arguments.model.config();
        dimensions.image_token = carried.config.image_token;
        dimensions.video_token = carried.config.video_token;
        dimensions.vision_start_token = carried.config.vision_start_token;
        dimensions.vision_end_token = carried.config.vision_end_token;
        let agent = setup::agent(&config, &dimensions, &carried.side_files).map_err(Failure::failed)?;
        let agent = Arc::new(agent);
        let (suite, screen) = match arguments.model {
            ModelName::Pocket => (Suite::Pocket, ScreenOptions::pocket()),
            ModelName::SevenBillion => (Suite::Desktop, ScreenOptions::desktop(1920, 1080)),
        };
        let freeze = arguments.freeze_vision;
        let weights = Weights::random(&dimensions, number_kind(device), device)
            .with_gradients(|layout| !(freeze && layout.is_vision()));
        let size = Size { width: screen.width, height: screen.height };
        let place = setup::memory_place(device);
        let plan = fitting(&dimensions, &config, size, place, Work::Training).map_err(Failure::failed)?;
        let held_back = setup::held_back(&config, device).map_err(Failure::failed)?;
        let policy = setup::policy_within(&plan, &config, &dimensions, &weights, &agent, PolicyVersion(0))
            .dictated(script(arguments, &screen, &agent)?);
        let moments = plan.moments;
        let optimiser = AdamW::new(&weights, OptimiserConfig { moments, ..config.optimiser.clone() });
        let learner = setup::learner(&config, &dimensions, weights, &agent);
        let of_factory = screen.clone();
        let factory =
            move |_| Ok(Box::new(EmbeddedDesktop::new(of_factory.clone())?) as Box<dyn Environment>);
        let options = CollectOptions::from(&config);
        Ok(Self {
            tasks: suite.tasks(Part::Train).iter().map(|task| Arc::new(task.clone())).collect(),
            collector: Collector::new(Arc::new(factory), config.collect.desktops, options),
            updater: Updater::new(learner, optimiser, None),
            replay: ReplayBuffer::default(),
            screens: Screens::default(),
            config,
            agent,
            screen,
            device,
            plan,
            held_back,
            policy,
        })
    }

    fn iterate(&mut self, iteration: u64) -> Result<Row, Failure> {
        let version = PolicyVersion(iteration);
        self.policy.refresh(version).map_err(Failure::failed)?;
        let before = self.policy.engine().counts();
        let plans = self.plans(iteration);
        let (collected, collect_seconds) =
            timed(self.device, || self.collector.collect(&mut self.policy, plans, &mut |_| {}));
        let Collected { groups, report } = collected.map_err(Failure::failed)?;
        self.policy.rest().map_err(Failure::failed)?;
        let held = self.held_back.as_ref().map_or(0.0, |held| held.numel() as f64 / f64::from(1 << 30));
        let peak =
            |device| Peak::of(device).map(|peak| Peak { used: peak.used - held, taken: peak.taken - held });
        let collecting_memory = peak(self.device);
        let after = self.policy.engine().counts();
        let groups = groups
            .into_iter()
            .map(|group| {
                let keep = |episode: arpo_train::episode::PlayedEpisode| {
                    self.screens.add(&episode.trajectory, &episode.screens);
                    Arc::new(episode.trajectory)
                };
                Rollouts { task: group.task, trajectories: group.episodes.into_iter().map(keep).collect() }
            })
            .collect();
        let lesson = lesson(groups, &mut self.replay, version, iteration, &self.config);
        let features = self.config.model.freeze_vision.then(|| self.policy.engine().features());
        let layout = Layout {
            screens: &self.screens,
            processor: &self.agent.processor,
            features: features.as_ref(),
            micro_batch_tokens: self.config.model.micro_batch_tokens,
            stop: &StopSwitch::default(),
        };
        let place = Place { iteration, updates_before: iteration };
        let (learnt, learn_seconds) = timed(self.device, || {
            let updates = &mut Updates::default();
            learn(&mut self.updater, None, &lesson.samples, updates, &layout, place, &self.config)
        });
        let learnt = learnt.map_err(Failure::failed)?;
        self.screens.keep_only(self.replay.iter().map(Arc::as_ref)).map_err(Failure::failed)?;
        let drawn = after.drawn - before.drawn;
        Ok(Row {
            collect_seconds,
            learn_seconds,
            score: lesson.report.score,
            prompt_computed: (after.computed - before.computed).saturating_sub(drawn),
            prompt_found: after.found - before.found,
            found_share: report.found_share(),
            learnt_episodes: lesson.samples.len(),
            learnt_tokens: learnt.tokens,
            updates: learnt.updates,
            mismatch: learnt.mismatch.mean(),
            collecting_memory,
            learning_memory: peak(self.device),
            collected: report,
        })
    }

    /// Groups of tasks in turn, in which the one half solves the task and the other does anything.
    fn plans(&self, iteration: u64) -> Vec<GroupPlan> {
        let collect = &self.config.collect;
        let options = PlanOptions {
            seed: 0,
            iteration,
            group_size: collect.group_size,
            refills: 0,
            max_steps: collect.max_steps,
        };
        let group = |number: usize| {
            let place = (iteration as usize * collect.tasks + number) % self.tasks.len();
            let mut group = GroupPlan::new(Arc::clone(&self.tasks[place]), number, &options);
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
        ModelName::SevenBillion => (0.0, 0.0),
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

/// What everybody says: even seeds solve the task with mistakes, odd ones do anything; nobody ends early.
fn script(arguments: &IterationArguments, screen: &ScreenOptions, agent: &Agent) -> Result<Script, Failure> {
    let whole = Size { width: screen.width, height: screen.height };
    let seen = smart_resize(whole, agent.processor.limits).map_err(Failure::failed)?;
    let thought = filler(&agent.tokenizer, arguments.thought)?;
    let make = |seed: u64| {
        if seed.is_multiple_of(2) { Scripted::clumsy(seed, MISTAKES) } else { Scripted::random(seed) }
    };
    let say = move |history: &History, action: Action| {
        let last = history.answers.len() + 1 == history.plan.max_steps;
        let action = if ends_episode(&action) && !last { Action::Wait {} } else { action };
        render::response((!thought.is_empty()).then_some(thought.as_str()), &[action])
    };
    Ok(following(screen.clone(), seen, make, say))
}

/// Words of about so many tokens.
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
        "  collect {:8.1} s  {} episodes, {} steps, {} tokens said; prompts: {} tokens computed, {} found, {:.1} % of what could be",
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
                "  memory  {used:8.1} GiB used, {taken:.1} GiB taken at most until the end of {phase}"
            )?;
        }
    }
    out.flush()?;
    Ok(())
}
