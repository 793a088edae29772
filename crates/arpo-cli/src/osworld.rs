//! `arpo osworld`: which OSWorld tasks can be evaluated, their files, the score of a metric on given values, the check of a
//! task file, the score of a task on a running desktop, and what killed runs left behind.

use crate::choices::one_of;
use crate::dry_run::{self, CheckArguments};
use crate::judge::{self, JudgeArguments};
use crate::{Failure, write_json};
use arpo_core::generation::Generation;
use arpo_osworld::coverage;
use arpo_osworld::download::{Cache, Sources};
use arpo_osworld::fetch;
use arpo_osworld::google::Accounts;
use arpo_osworld::metrics::Settings;
use arpo_osworld::provider::{CleanScope, Leftovers, remove_leftovers};
use arpo_osworld::score::{parse_cases, score_case, score_values};
use arpo_osworld::task::suite;
use clap::{Args, Subcommand};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Topic `arpo osworld` takes.
#[derive(Args)]
pub(crate) struct OsworldArguments {
    #[command(subcommand)]
    topic: Topic,
}

#[derive(Subcommand)]
enum Topic {
    /// Count the tasks whose metrics, getters and set-up steps are implemented, by domain, and say what each task needs
    Coverage(CoverageArguments),
    /// Download the files of tasks ahead of a run, those of their evaluators too; what is there is not fetched again
    Fetch(FetchArguments),
    /// Print the score of one metric on given values
    Score(ScoreArguments),
    /// Check a task file: its fields, its files, then its set-up and its evaluator on a desktop on which nothing is done
    Check(CheckArguments),
    /// Print the score of a task on a desktop that is already running, as it is now
    Judge(JudgeArguments),
    /// Remove containers, networks and images that killed runs left behind
    Clean(CleanArguments),
}

#[derive(Args)]
struct CleanArguments {
    /// Also what runs on other machines or in other containers left on this engine; they may still be running
    #[arg(long)]
    unseen: bool,
}

#[derive(Args)]
struct CoverageArguments {
    /// The folder of task files, in OSWorld's layout
    #[arg(long, value_name = "DIR")]
    tasks: PathBuf,
    /// Only the tasks of this list, in OSWorld's format (a JSON object of domains)
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// The folder of settings files with the user's own accounts, as `osworld.settings` [default: beside `examples`]
    #[arg(long, value_name = "DIR")]
    settings: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct FetchArguments {
    /// The folder of task files, in OSWorld's layout
    #[arg(long, value_name = "DIR")]
    tasks: PathBuf,
    /// Only the tasks of this list
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// Where to keep the files, as `osworld.cache`
    #[arg(long, value_name = "DIR", default_value = "cache")]
    cache: PathBuf,
    /// A mirror that replaces `https://huggingface.co`, as `osworld.mirror`
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    /// Download nothing: only check what is there, and list what is missing
    #[arg(long)]
    offline: bool,
    /// Print what is missing as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ScoreArguments {
    /// The metric
    #[arg(long, value_name = "NAME", required_unless_present = "cases")]
    func: Option<String>,
    /// The result: a path or a JSON literal
    #[arg(long, value_name = "VALUE", required_unless_present = "cases")]
    result: Option<String>,
    /// The expected value: a path or a JSON literal
    #[arg(long, value_name = "VALUE")]
    expected: Option<String>,
    /// Options of the metric, as JSON
    #[arg(long, value_name = "JSON", default_value = "{}")]
    options: String,
    /// A JSON list of cases {id, func, result, expected, options}, with files as {"file": "relative/path"}; prints a JSON
    /// line for each
    #[arg(long, value_name = "FILE", conflicts_with_all = ["func", "result", "expected", "options"])]
    cases: Option<PathBuf>,
    /// The OSWorld version whose metrics are used: as ARPO used it, or OSWorld-Verified
    #[arg(long, value_parser = one_of(&Generation::ALL, Generation::key), default_value = "arpo-era")]
    generation: Generation,
}

pub(crate) fn run(arguments: &OsworldArguments, out: &mut impl Write) -> Result<(), Failure> {
    match &arguments.topic {
        Topic::Coverage(arguments) => covered(arguments, out),
        Topic::Fetch(arguments) => fetched(arguments, out),
        Topic::Score(arguments) => score(arguments, out),
        Topic::Check(arguments) => dry_run::run(arguments, out),
        Topic::Judge(arguments) => judge::run(arguments, out),
        Topic::Clean(arguments) => clean(arguments, out),
    }
}

fn clean(arguments: &CleanArguments, out: &mut impl Write) -> Result<(), Failure> {
    let scope = if arguments.unseen { CleanScope::UnseenProcesses } else { CleanScope::EndedProcesses };
    let Leftovers { containers, networks, images } = remove_leftovers(scope).map_err(Failure::failed)?;
    for (kind, names) in [("container", &containers), ("network", &networks), ("image", &images)] {
        for name in names {
            writeln!(out, "removed {kind} {name}")?;
        }
    }
    if containers.is_empty() && networks.is_empty() && images.is_empty() {
        writeln!(out, "nothing was left behind")?;
    }
    Ok(())
}

fn covered(arguments: &CoverageArguments, out: &mut impl Write) -> Result<(), Failure> {
    let CoverageArguments { tasks, list, settings, json } = arguments;
    let accounts = settings.as_ref().map_or_else(|| Accounts::beside(tasks), Accounts::new);
    let coverage = coverage::of_folder(tasks, list.as_deref(), &accounts).map_err(Failure::failed)?;
    if *json {
        return write_json(&coverage, out);
    }
    writeln!(out, "{coverage}")?;
    Ok(())
}

/// Seconds that one file may take.
const FILE_LIMIT: Duration = Duration::from_mins(15);

fn fetched(arguments: &FetchArguments, out: &mut impl Write) -> Result<(), Failure> {
    let tasks = suite::load(&arguments.tasks, arguments.list.as_deref()).map_err(Failure::usage)?;
    let sources =
        Sources { offline: arguments.offline, mirror: arguments.mirror.clone(), ..Sources::default() };
    let cache = Cache::new(&arguments.cache, sources).map_err(Failure::failed)?;
    let missing = fetch::obtain_all(&cache, &tasks, FILE_LIMIT, |number, all, file, is_there| {
        let word = if is_there { "ok" } else { "missing" };
        let _ = writeln!(std::io::stderr(), "{number}/{all} {word} {}", file.name);
    });
    if arguments.json {
        write_json(&missing, out)?;
    } else {
        for file in &missing {
            writeln!(out, "{}\n  {}\n  {}", file.task, file.url, file.problem)?;
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    out.flush()?;
    Err(Failure::failed(format!("{} files are missing; the same command tries them again", missing.len())))
}

fn score(arguments: &ScoreArguments, out: &mut impl Write) -> Result<(), Failure> {
    let settings = Settings { generation: arguments.generation, sandbox: None };
    if let Some(path) = &arguments.cases {
        return score_cases(path, &settings, out);
    }
    let (func, result) =
        (arguments.func.as_deref().unwrap_or_default(), arguments.result.as_deref().unwrap_or_default());
    let score = score_values(func, result, arguments.expected.as_deref(), &arguments.options, &settings)
        .map_err(Failure::failed)?;
    writeln!(out, "{score}")?;
    Ok(())
}

fn score_cases(path: &Path, settings: &Settings<'_>, out: &mut impl Write) -> Result<(), Failure> {
    let wrong = |problem: String| Failure::failed(format!("--cases {}: {problem}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    for case in parse_cases(&text).map_err(wrong)? {
        let score = score_case(&case, folder, settings);
        serde_json::to_writer(&mut *out, &score).map_err(std::io::Error::from)?;
        writeln!(out)?;
    }
    Ok(())
}
