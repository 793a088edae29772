//! `arpo eval`: evaluates an agent, by task and by application.
//!
//! | to change | look in |
//! |---|---|
//! | the embedded desktop's tasks, the report | `embedded` |
//! | which tasks are evaluated | `task_sets` |
//! | OSWorld's tasks, trials and result folders | `osworld` |
//! | the options of OSWorld's own script | `compat` |
//! | scores saved during an evaluation | `scores` |
//! | the table of a result folder | `show` |

mod compat;
mod embedded;
mod osworld;
mod scores;
mod show;
mod task_sets;

use crate::Failure;
use crate::config::Layers;
use crate::resume::{say, settle_style};
use arpo_agent::geometry::PixelLimits;
use arpo_core::config::{Config, StyleChoice, SuiteChoice};
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_env::policies::{CLUMSINESS, Scripted};
use arpo_suite::embedded as embedded_environment;
use arpo_suite::osworld::is_embedded_list;
use arpo_train::policy::chat::{ChatOptions, ChatPolicy};
use arpo_train::policy::script_file::ScriptFile;
use arpo_train::policy::{Policy, ScriptedPolicy};
use arpo_train::style_choice;
use arpo_train::trainer::setup;
use clap::{Args, ValueEnum, value_parser};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use task_sets::Part;

/// The arguments of `arpo eval`.
#[derive(Args)]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    layers: Layers,
    /// The policy; `checkpoint` is the model of `model.base`
    #[arg(long, value_enum)]
    policy: Option<PolicyName>,
    /// The checkpoint: a Hugging Face folder, or `pocket`; the same as `--set model.base=...`. With `--policy chat`: the
    /// model's name on the server
    #[arg(long)]
    model: Option<String>,
    /// The suite of tasks; the same as `--set tasks.suite=...`
    #[arg(long, value_enum)]
    suite: Option<SuiteName>,
    /// Only this task, by `id` or `application/id`; may be repeated. The same as `--set tasks.only=...`
    #[arg(long, value_name = "ID")]
    task: Vec<String>,
    /// Scripted responses for each task, as JSON: `{"task id": ["response", ...]}`; without --task and `tasks.list`, the tasks
    /// that it names are played
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Print the table of a result folder, without evaluating
    #[arg(long, value_name = "DIR")]
    show: Option<PathBuf>,
    #[command(flatten)]
    osworld: osworld::OsworldArguments,
    #[command(flatten)]
    compat: compat::CompatArguments,
    /// The set of tasks
    #[arg(long, value_enum, default_value = "train")]
    part: Part,
    /// Rollouts per task; for OSWorld, trials [default: 4, for OSWorld 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=10_000))]
    samples: Option<u16>,
    /// Greedy decoding: always take the most likely token
    #[arg(long)]
    greedy: bool,
    /// Print the score of every task
    #[arg(long)]
    tasks: bool,
    #[command(flatten)]
    output: OutputArguments,
}

/// Output options.
#[derive(Args)]
struct OutputArguments {
    /// Write scores and the report to this folder; OSWorld's results always go to `--result_dir`
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Resume the evaluation in --out; OSWorld evaluations always resume
    #[arg(long)]
    resume: bool,
    /// Print only problems and the result, no progress
    #[arg(long)]
    quiet: bool,
    /// Print JSON
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
enum PolicyName {
    Checkpoint,
    /// An OpenAI-compatible server: `[chat]` of the configuration
    Chat,
    /// The responses of `--script`
    Script,
    Oracle,
    Clumsy,
    Random,
}

pub(crate) fn run(arguments: &EvalArguments, out: &mut impl Write) -> Result<(), Failure> {
    if let Some(folder) = &arguments.show {
        return show::run(folder, arguments.output.json, out);
    }
    let config = configuration(arguments)?;
    if config.tasks.suite == SuiteChoice::Osworld {
        if arguments.part == Part::Unseen {
            return Err(Failure::usage(
                "--part unseen: OSWorld's tasks have no templates to generate others from",
            ));
        }
        return osworld::run(arguments, &config, out);
    }
    embedded::run(arguments, &config, out)
}

/// The policy: as given, or inferred from other options.
fn policy_name(arguments: &EvalArguments) -> PolicyName {
    let inferred = if arguments.compat.uses_chat() {
        PolicyName::Chat
    } else if arguments.script.is_some() {
        PolicyName::Script
    } else {
        PolicyName::Checkpoint
    };
    arguments.policy.unwrap_or(inferred)
}

fn configuration(arguments: &EvalArguments) -> Result<Config, Failure> {
    let layers = arguments.layers.with_last(arguments.compat.layers()?);
    let osworld = arguments.suite == Some(SuiteName::Osworld)
        || !arguments.osworld.vm.is_empty()
        || arguments.compat.is_osworld()
        || layers.resolve()?.tasks.suite == SuiteChoice::Osworld;
    let mut config = if osworld {
        layers.resolve_after("osworld", Some(("arpo eval", osworld::SETTINGS)))?
    } else {
        layers.resolve()?
    };
    match arguments.suite {
        // it is OSWorld's, whatever --suite says
        _ if arguments.compat.is_osworld() => {}
        Some(SuiteName::Pocket) => config.tasks.use_suite(SuiteChoice::Pocket),
        Some(SuiteName::Desktop) => config.tasks.use_suite(SuiteChoice::Desktop),
        Some(SuiteName::Osworld) => config.tasks.use_suite(SuiteChoice::Osworld),
        None => {}
    }
    if let Some(model) = &arguments.model {
        let name = if policy_name(arguments) == PolicyName::Chat {
            &mut config.chat.model
        } else {
            &mut config.model.base
        };
        name.clone_from(model);
    }
    arguments.compat.apply(&mut config)?;
    arguments.osworld.apply(&mut config);
    if !arguments.task.is_empty() {
        config.tasks.only.clone_from(&arguments.task);
    }
    let names_tasks = config.tasks.suite == SuiteChoice::Osworld && is_embedded_list(&config.tasks.list);
    if let Some(script) = arguments.script.as_ref().filter(|_| names_tasks && config.tasks.only.is_empty()) {
        config.tasks.only = ScriptFile::read(script).map_err(Failure::usage)?.tasks();
    }
    match policy_name(arguments) {
        PolicyName::Checkpoint => say(settle_style(&mut config)?),
        PolicyName::Chat => say(style_choice::settle_served(&mut config)),
        // scripts are written in UI-TARS's grammar
        PolicyName::Script | PolicyName::Oracle | PolicyName::Clumsy | PolicyName::Random => {
            config.agent.style = StyleChoice::Uitars;
        }
    }
    Ok(config)
}

fn key(config: &Config) -> Option<String> {
    std::env::var(&config.chat.key_variable).ok().filter(|key| !key.is_empty())
}

fn chat(config: &Config, greedy: bool) -> ChatPolicy {
    let chat = &config.chat;
    let options = ChatOptions {
        servers: chat.servers.iter().map(|url| url.trim_end_matches('/').to_owned()).collect(),
        model: chat.model.clone(),
        key: key(config),
        key_variable: chat.key_variable.clone(),
        temperature: if greedy { 0.0 } else { config.evaluation.temperature },
        top_p: (chat.top_p < 1.0).then_some(chat.top_p),
        max_tokens: config.agent.max_tokens,
        frequency_penalty: chat.frequency_penalty,
        limit: Duration::from_secs_f64(chat.limit_seconds),
        tries: chat.tries,
        seeded: chat.seeded,
        retry_unparsable: chat.retry_unparsable,
        // the same sizes as in training, also behind a server
        pixels: PixelLimits {
            min: config.agent.min_pixels,
            // 0 leaves it to the server
            max: if config.agent.max_pixels > 0 { config.agent.max_pixels } else { u64::MAX },
        },
        max_screenshots: config.agent.max_screenshots,
    };
    ChatPolicy::new(options, style_choice::style(&config.agent, config.agent.style))
}

fn policy(
    arguments: &EvalArguments,
    config: &Config,
    tasks: &[Arc<Task>],
) -> Result<Box<dyn Policy>, Failure> {
    let scripted = |make: fn(u64) -> Scripted| -> Result<Box<dyn Policy>, Failure> {
        let screen = embedded_environment::suite(config)
            .and_then(|suite| embedded_environment::screen(config, suite))
            .map_err(Failure::usage)?;
        Ok(Box::new(ScriptedPolicy::following(screen, Duration::ZERO, make)))
    };
    Ok(match policy_name(arguments) {
        PolicyName::Oracle => scripted(|_| Scripted::oracle())?,
        PolicyName::Clumsy => scripted(|seed| Scripted::clumsy(seed, CLUMSINESS))?,
        PolicyName::Random => scripted(Scripted::random)?,
        PolicyName::Chat if config.chat.servers.is_empty() => {
            return Err(Failure::usage("`chat.servers` is empty: expected http://host:port/v1"));
        }
        PolicyName::Chat => Box::new(chat(config, arguments.greedy)),
        PolicyName::Script => {
            let file = arguments.script.as_ref().ok_or_else(|| {
                Failure::usage("--policy script: expected --script FILE with its responses")
            })?;
            Box::new(ScriptFile::read(file).and_then(|file| file.policy(tasks)).map_err(Failure::usage)?)
        }
        PolicyName::Checkpoint => {
            let model = setup::load(config).map_err(Failure::failed)?;
            let mut policy =
                setup::policy(config, &model.config, &model.weights, &model.agent, PolicyVersion(0));
            policy.responses.temperature = if arguments.greedy { 0.0 } else { config.evaluation.temperature };
            Box::new(policy)
        }
    })
}
