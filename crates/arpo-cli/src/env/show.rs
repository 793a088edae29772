//! `arpo env show`: the picture of a task, at its start or some oracle actions later, and what is on it in words.

use super::chosen::{Begun, EpisodeArguments};
use super::{deadline, widgets, write_json};
use crate::Failure;
use arpo_agent::render;
use arpo_env::environment::{Environment, Screen};
use arpo_env::layout::Widget;
use arpo_env::oracle::Oracle;
use clap::Args;
use image::ImageFormat;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What `arpo env show` takes.
#[derive(Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    episode: EpisodeArguments,
    /// Show the screen after this many actions of the oracle
    #[arg(long, value_name = "N", default_value_t = 0)]
    oracle_steps: usize,
    /// Where to write the picture; the task's name and .png, if not given
    #[arg(long, value_name = "FILE.png")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    id: &'a str,
    seed: u64,
    instruction: &'a str,
    width: u32,
    height: u32,
    actions: &'a [String],
    score: f64,
    picture: &'a Path,
    widgets: &'a [Widget],
}

pub(crate) fn run(arguments: &ShowArguments, out: &mut impl Write) -> Result<(), Failure> {
    let mut begun = arguments.episode.begin()?;
    let actions = oracle_actions(&mut begun, arguments.oracle_steps)?;
    let score = begun.environment.evaluate(deadline()).map_err(Failure::failed)?;
    let picture = arguments.out.clone().unwrap_or_else(|| file_name(begun.task.id.as_str()));
    write_picture(&begun.screen, &picture)?;
    let (seed, seen) = (arguments.episode.seed, begun.environment.widgets());
    if arguments.json {
        let (width, height) = begun.screen.image.dimensions();
        let (id, instruction) = (begun.task.id.as_str(), begun.task.instruction.as_str());
        let (actions, picture, widgets) = (&actions, &picture, &seen);
        let report = Report { id, seed, instruction, width, height, actions, score, picture, widgets };
        return write_json(&report, out);
    }
    write!(out, "{}", begun.introduction(seed))?;
    if !actions.is_empty() {
        writeln!(out, "\nactions of the oracle")?;
    }
    for (number, action) in (1..).zip(&actions) {
        writeln!(out, "  {number:2}  {action}")?;
    }
    writeln!(out, "\n{}", widgets::table(&seen))?;
    writeln!(out, "score now: {score}\npicture: {}", picture.display())?;
    Ok(())
}

/// Lets the oracle act, until it ends the episode at the latest.
fn oracle_actions(begun: &mut Begun, steps: usize) -> Result<Vec<String>, Failure> {
    let mut oracle = Oracle::new();
    let mut actions = Vec::new();
    for _ in 0..steps {
        let action = oracle.next_action(&begun.environment);
        let stepped = begun.environment.step(&action, deadline()).map_err(Failure::failed)?;
        begun.screen = stepped.screen;
        actions.push(render::action(&action));
        if stepped.terminated || stepped.truncated {
            break;
        }
    }
    Ok(actions)
}

/// A file in this folder, whatever the task's name holds.
fn file_name(id: &str) -> PathBuf {
    let plain = |c: char| if c.is_alphanumeric() || c == '-' { c } else { '_' };
    PathBuf::from(format!("{}.png", id.chars().map(plain).collect::<String>()))
}

/// Writes a screen as PNG.
pub(super) fn write_picture(screen: &Screen, path: &Path) -> Result<(), Failure> {
    let written = screen.image.save_with_format(path, ImageFormat::Png);
    written.map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}
