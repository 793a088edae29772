//! `arpo eval`: how well an agent does, by task and by application.
//!
//! | to change | look in |
//! |---|---|
//! | the embedded desktop's tasks, the report | `embedded` |
//! | which tasks are played | `parts` |
//! | OSWorld's tasks, trials and result folders | `osworld` |
//! | the options of OSWorld's own script | `original` |
//! | scores written down as they come | `scores` |
//! | what is printed of result folders | `show` |

mod embedded;
mod original;
mod osworld;
mod parts;
mod scores;
mod show;

use crate::Failure;
use crate::config::Layers;
use arpo_agent::geometry::PixelLimits;
use arpo_core::config::{Config, SuiteChoice};
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_env::policies::{CLUMSINESS, Scripted};
use arpo_train::policy::chat::{ChatOptions, ChatPolicy};
use arpo_train::policy::script_file::ScriptFile;
use arpo_train::policy::{Policy, ScriptedPolicy};
use arpo_train::trainer::setup;
use clap::{Args, ValueEnum};
use parts::Which;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    #[command(flatten)]
    output: OutputArguments,
}

/// What is shown, and written where.
#[derive(Args)]
struct OutputArguments {
    /// Write scores to this folder as they come, and the report; OSWorld's go to `--result_dir` anyway
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Go on with the evaluation in --out; OSWorld's always goes on
    #[arg(long)]
    resume: bool,
    /// Show no progress, only problems and the result
    #[arg(long)]
    quiet: bool,
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

pub(crate) fn run(arguments: &EvalArguments, out: &mut impl Write) -> Result<(), Failure> {
    if let Some(folder) = &arguments.show {
        return show::run(folder, arguments.output.json, out);
    }
    if arguments.samples == Some(0) {
        return Err(Failure::usage("--samples 0: expected at least 1"));
    }
    let config = configuration(arguments)?;
    if config.tasks.suite == SuiteChoice::Osworld {
        if arguments.part == Which::Unseen {
            return Err(Failure::usage(
                "--part unseen: OSWorld's tasks have no templates to make others with",
            ));
        }
        return osworld::run(arguments, &config, out);
    }
    embedded::run(arguments, &config, out)
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

fn chat(config: &Config, greedy: bool) -> ChatPolicy {
    let chat = &config.chat;
    let options = ChatOptions {
        servers: chat.servers.split_whitespace().map(|url| url.trim_end_matches('/').to_owned()).collect(),
        model: chat.model.clone(),
        key: key(config),
        temperature: if greedy { 0.0 } else { config.evaluation.temperature },
        top_p: (chat.top_p < 1.0).then_some(chat.top_p),
        max_tokens: config.agent.max_tokens,
        frequency_penalty: chat.frequency_penalty,
        limit: Duration::from_secs_f64(chat.limit_seconds),
        tries: chat.tries,
        retry_unparsable: chat.retry_unparsable,
        // what the model is trained and sampled with, also behind a server
        pixels: PixelLimits { min: config.agent.min_pixels, max: config.agent.max_pixels },
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
        Who::Chat => Box::new(chat(config, arguments.greedy)),
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
