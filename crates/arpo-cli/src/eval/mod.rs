//! `arpo eval`: how well an agent does, by task and by application.
//!
//! | to change | look in |
//! |---|---|
//! | OSWorld's tasks, trials and result folders | `osworld` |
//! | the options of OSWorld's own script | `original` |
//! | what is printed of result folders | `show` |

mod original;
mod osworld;
mod show;

use crate::config::Layers;
use crate::{Failure, write_json};
use arpo_core::config::{Config, SuiteChoice};
use arpo_core::statistics::Success;
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_env::policies::{CLUMSINESS, Scripted};
use arpo_train::collect::CollectReport;
use arpo_train::policy::chat::{ChatOptions, ChatPolicy};
use arpo_train::policy::script_file::ScriptFile;
use arpo_train::policy::{Policy, ScriptedPolicy};
use arpo_train::trainer::evaluation::{
    Examination, Examined, TaskScores, by_application, examine, histogram, mean_pass_at, overall,
};
use arpo_train::trainer::setup;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What `arpo eval` takes.
#[derive(Args)]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    layers: Layers,
    /// Who acts; `checkpoint` is the model of `model.base`
    #[arg(long, value_enum)]
    policy: Option<Who>,
    /// The checkpoint: a Hugging Face folder, or `pocket`; the same as `--set model.base=...`. With a chat server: the
    /// model's name there
    #[arg(long)]
    model: Option<String>,
    /// Whose tasks; the same as `--set tasks.suite=...`
    #[arg(long, value_enum)]
    suite: Option<SuiteName>,
    /// What a script says in each task: JSON, `{"task id": ["response", ...]}`
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Print the table of a folder of results, and play nothing
    #[arg(long, value_name = "DIR")]
    show: Option<PathBuf>,
    #[command(flatten)]
    osworld: osworld::OsworldArguments,
    #[command(flatten)]
    original: original::OriginalArguments,
    /// On which tasks
    #[arg(long, value_enum, default_value = "train")]
    part: Which,
    /// Rollouts of each task; for OSWorld, trials [default: 4, OSWorld 1]
    #[arg(long)]
    samples: Option<usize>,
    /// Always take the likeliest token
    #[arg(long)]
    greedy: bool,
    /// Name every task
    #[arg(long)]
    tasks: bool,
    /// For scripts
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SuiteName {
    Pocket,
    Desktop,
    Osworld,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Who {
    Checkpoint,
    /// An OpenAI-compatible server: `[chat]` of the configuration
    Chat,
    /// What `--script` says
    Script,
    Oracle,
    Clumsy,
    Random,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// The tasks the configuration trains on
    Train,
    /// The tasks that are never trained on
    HeldOut,
    /// Both
    All,
}

#[derive(Serialize)]
struct Report {
    success: Success,
    pass_at: BTreeMap<usize, f64>,
    applications: BTreeMap<String, Success>,
    histogram: Vec<(&'static str, usize)>,
    tasks: Vec<TaskScores>,
    seconds: f64,
    collecting: CollectReport,
}

pub(crate) fn run(arguments: &EvalArguments, out: &mut impl Write) -> Result<(), Failure> {
    if let Some(folder) = &arguments.show {
        return show::run(folder, arguments.json, out);
    }
    if arguments.samples == Some(0) {
        return Err(Failure::usage("--samples 0: expected at least 1"));
    }
    let config = configuration(arguments)?;
    if config.tasks.suite == SuiteChoice::Osworld {
        return osworld::run(arguments, &config, out);
    }
    let samples = arguments.samples.unwrap_or(4);
    let tasks = tasks(arguments.part, &config)?;
    let mut policy = policy(arguments, &config, &tasks)?;
    let examination = Examination::of(&config, 0, samples);
    let began = Instant::now();
    let mut collector = setup::collector(&config, &Arc::default()).map_err(Failure::failed)?;
    let Examined { tasks, report, .. } =
        examine(&mut collector, policy.as_mut(), &tasks, &examination, &mut |_| {})
            .map_err(Failure::failed)?;
    let ks = std::iter::successors(Some(1), |k| Some(k * 2)).take_while(|&k| k <= samples);
    let report = Report {
        success: overall(&tasks),
        pass_at: ks
            .filter_map(|k| Some((k, mean_pass_at(k, &tasks, config.selection.success_above)?)))
            .collect(),
        applications: by_application(&tasks),
        histogram: histogram(&tasks).to_vec(),
        tasks,
        seconds: began.elapsed().as_secs_f64(),
        collecting: report,
    };
    if arguments.json { write_json(&report, out) } else { print(&report, arguments.tasks, out) }
}

fn tasks(which: Which, config: &Config) -> Result<Vec<Arc<Task>>, Failure> {
    let mut tasks = match which {
        Which::HeldOut => vec![],
        Which::Train | Which::All => setup::training_tasks(config).map_err(Failure::usage)?,
    };
    if which != Which::Train {
        tasks.extend(setup::held_out_tasks(config));
    }
    Ok(tasks)
}

/// Who acts: as said, or as other options let guess.
fn who(arguments: &EvalArguments) -> Who {
    let guessed = if arguments.original.by_chat() {
        Who::Chat
    } else if arguments.script.is_some() {
        Who::Script
    } else {
        Who::Checkpoint
    };
    arguments.policy.unwrap_or(guessed)
}

fn configuration(arguments: &EvalArguments) -> Result<Config, Failure> {
    let osworld = arguments.suite == Some(SuiteName::Osworld)
        || !arguments.osworld.vm.is_empty()
        || arguments.original.is_osworld()
        || arguments.layers.resolve()?.tasks.suite == SuiteChoice::Osworld;
    let mut config = if osworld {
        arguments.layers.resolve_after("osworld", Some(("arpo eval", osworld::SETTINGS)))?
    } else {
        arguments.layers.resolve()?
    };
    match arguments.suite {
        Some(SuiteName::Pocket) => config.tasks.suite = SuiteChoice::Pocket,
        Some(SuiteName::Desktop) => config.tasks.suite = SuiteChoice::Desktop,
        Some(SuiteName::Osworld) => config.tasks.suite = SuiteChoice::Osworld,
        None => {}
    }
    if let Some(model) = &arguments.model {
        let name = if who(arguments) == Who::Chat { &mut config.chat.model } else { &mut config.model.base };
        name.clone_from(model);
    }
    arguments.original.apply(&mut config)?;
    arguments.osworld.apply(&mut config);
    Ok(config)
}

fn key(config: &Config) -> Option<String> {
    std::env::var(&config.chat.key_variable).ok().filter(|key| !key.is_empty())
}

fn chat(config: &Config) -> ChatPolicy {
    let chat = &config.chat;
    let options = ChatOptions {
        servers: chat.servers.split_whitespace().map(|url| url.trim_end_matches('/').to_owned()).collect(),
        model: chat.model.clone(),
        key: key(config),
        temperature: config.evaluation.temperature,
        top_p: (chat.top_p < 1.0).then_some(chat.top_p),
        max_tokens: config.agent.max_tokens,
        frequency_penalty: chat.frequency_penalty,
        limit: Duration::from_secs_f64(chat.limit_seconds),
        tries: chat.tries,
    };
    ChatPolicy::new(options, setup::style(config))
}

fn policy(
    arguments: &EvalArguments,
    config: &Config,
    tasks: &[Arc<Task>],
) -> Result<Box<dyn Policy>, Failure> {
    let scripted = |make: fn(u64) -> Scripted| -> Result<Box<dyn Policy>, Failure> {
        let screen = setup::screen(config).map_err(Failure::usage)?;
        Ok(Box::new(ScriptedPolicy::following(screen, Duration::ZERO, make)))
    };
    Ok(match who(arguments) {
        Who::Oracle => scripted(|_| Scripted::oracle())?,
        Who::Clumsy => scripted(|seed| Scripted::clumsy(seed, CLUMSINESS))?,
        Who::Random => scripted(Scripted::random)?,
        Who::Chat if config.chat.servers.trim().is_empty() => {
            return Err(Failure::usage("`chat.servers` is empty: expected http://host:port/v1"));
        }
        Who::Chat => Box::new(chat(config)),
        Who::Script => {
            let file = arguments
                .script
                .as_ref()
                .ok_or_else(|| Failure::usage("--policy script: expected --script FILE with what it says"))?;
            Box::new(ScriptFile::read(file).and_then(|file| file.policy(tasks)).map_err(Failure::usage)?)
        }
        Who::Checkpoint => {
            let model = setup::load(config).map_err(Failure::failed)?;
            let mut policy =
                setup::policy(config, &model.config, &model.weights, &model.agent, PolicyVersion(0));
            policy.responses.temperature = if arguments.greedy { 0.0 } else { config.evaluation.temperature };
            Box::new(policy)
        }
    })
}

fn print(report: &Report, with_tasks: bool, out: &mut impl Write) -> Result<(), Failure> {
    let row = |name: &str, Success { rollouts, mean, low, high }: Success| {
        format!("{name:<12} {mean:.3}  [{low:.3}, {high:.3}]  {rollouts:6} rollouts")
    };
    for (application, &success) in &report.applications {
        writeln!(out, "{}", row(application, success))?;
    }
    writeln!(out, "{}", row("all", report.success))?;
    let passes: Vec<String> =
        report.pass_at.iter().map(|(k, share)| format!("pass@{k} {share:.3}")).collect();
    writeln!(out, "{}", passes.join("  "))?;
    let bins: Vec<String> = report.histogram.iter().map(|(bin, count)| format!("{bin}: {count}")).collect();
    writeln!(out, "tasks by success  {}", bins.join("  "))?;
    if report.collecting.lost > 0 {
        writeln!(out, "{} rollouts were lost to failures of desktops", report.collecting.lost)?;
    }
    if with_tasks {
        for TaskScores { task, scores, .. } in &report.tasks {
            let mean = scores.iter().sum::<f64>() / scores.len().max(1) as f64;
            writeln!(out, "{:<40} {mean:.3}", task.as_str())?;
        }
    }
    writeln!(out, "{:.1} s", report.seconds)?;
    Ok(())
}
