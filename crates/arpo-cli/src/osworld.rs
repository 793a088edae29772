//! `arpo osworld`: which OSWorld tasks can be evaluated, the score of a metric on given values, the check of a task file,
//! and what killed runs left behind.

use crate::dry_run::{self, CheckArguments};
use crate::{Failure, write_json};
use arpo_osworld::coverage;
use arpo_osworld::metrics::Settings;
use arpo_osworld::provider::{Leftovers, Strays, remove_leftovers};
use arpo_osworld::score::{parse_cases, score_case, score_values};
use arpo_osworld::task::Generation;
use clap::{Args, Subcommand, ValueEnum};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Topic `arpo osworld` takes.
#[derive(Args)]
pub(crate) struct OsworldArguments {
    #[command(subcommand)]
    topic: Topic,
}

#[derive(Subcommand)]
enum Topic {
    /// Count the tasks whose metrics, getters and set-up steps are implemented, by domain, and list what is missing
    Coverage(CoverageArguments),
    /// Print the score of one metric on given values
    Score(ScoreArguments),
    /// Check a task file: its fields, its files, then its set-up and its evaluator on a desktop on which nothing is done
    Check(CheckArguments),
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
    /// Print JSON
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
    /// The OSWorld version whose metrics are used
    #[arg(long, value_enum, default_value = "arpo-era")]
    generation: GenerationName,
    /// A Python interpreter for metrics that run the files they check; without it those metrics are an error
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GenerationName {
    /// OSWorld as ARPO used it
    ArpoEra,
    /// OSWorld-Verified
    Verified,
}

pub(crate) fn run(arguments: &OsworldArguments, out: &mut impl Write) -> Result<(), Failure> {
    match &arguments.topic {
        Topic::Coverage(arguments) => covered(arguments, out),
        Topic::Score(arguments) => score(arguments, out),
        Topic::Check(arguments) => dry_run::run(arguments, out),
        Topic::Clean(arguments) => clean(arguments, out),
    }
}

fn clean(arguments: &CleanArguments, out: &mut impl Write) -> Result<(), Failure> {
    let whose = if arguments.unseen { Leftovers::OfUnseenProcesses } else { Leftovers::OfEndedProcesses };
    let Strays { containers, networks, images } = remove_leftovers(whose).map_err(Failure::failed)?;
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
    let CoverageArguments { tasks, list, json } = arguments;
    let coverage = coverage::of_folder(tasks, list.as_deref()).map_err(Failure::failed)?;
    if *json {
        return write_json(&coverage, out);
    }
    writeln!(out, "{coverage}")?;
    Ok(())
}

fn score(arguments: &ScoreArguments, out: &mut impl Write) -> Result<(), Failure> {
    let generation = match arguments.generation {
        GenerationName::ArpoEra => Generation::ArpoEra,
        GenerationName::Verified => Generation::Verified,
    };
    let settings = Settings { generation, python: arguments.python.clone() };
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

fn score_cases(path: &Path, settings: &Settings, out: &mut impl Write) -> Result<(), Failure> {
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
