//! `arpo env show`: a screenshot of a task, at its start or after some oracle actions, and a table of its widgets.

use super::tasks::{EpisodeArguments, StartedEpisode};
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

/// The arguments of `arpo env show`.
#[derive(Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    episode: EpisodeArguments,
    /// Show the screen after this many oracle actions
    #[arg(long, value_name = "N", default_value_t = 0)]
    oracle_steps: usize,
    /// The file for the screenshot [default: the task's id and .png]
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
    let mut episode = arguments.episode.start()?;
    let actions = oracle_actions(&mut episode, arguments.oracle_steps)?;
    let score = episode.environment.evaluate(deadline()).map_err(Failure::failed)?;
    let picture = arguments.out.clone().unwrap_or_else(|| file_name(episode.task.id.as_str()));
    write_screenshot(&episode.screen, &picture)?;
    let (seed, seen) = (arguments.episode.seed, episode.environment.widgets());
    if arguments.json {
        let (width, height) = episode.screen.size();
        let (id, instruction) = (episode.task.id.as_str(), episode.task.instruction.as_str());
        let (actions, picture, widgets) = (&actions, &picture, &seen);
        let report = Report { id, seed, instruction, width, height, actions, score, picture, widgets };
        return write_json(&report, out);
    }
    write!(out, "{}", episode.introduction(seed))?;
    if !actions.is_empty() {
        writeln!(out, "\noracle actions")?;
    }
    for (number, action) in (1..).zip(&actions) {
        writeln!(out, "  {number:2}  {action}")?;
    }
    writeln!(out, "\n{}", widgets::table(&seen))?;
    writeln!(out, "score now: {score}\nscreenshot: {}", picture.display())?;
    Ok(())
}

/// Executes oracle actions, at most until the episode ends.
fn oracle_actions(episode: &mut StartedEpisode, steps: usize) -> Result<Vec<String>, Failure> {
    let mut oracle = Oracle::new();
    let mut actions = Vec::new();
    for _ in 0..steps {
        let action = oracle.next_action(&episode.environment);
        let stepped = episode.environment.step(&action, deadline()).map_err(Failure::failed)?;
        episode.screen = stepped.screen;
        actions.push(render::action(&action));
        if stepped.terminated || stepped.truncated {
            break;
        }
    }
    Ok(actions)
}

/// A file name in the current folder, whatever the task's id contains.
fn file_name(id: &str) -> PathBuf {
    let plain = |c: char| if c.is_alphanumeric() || c == '-' { c } else { '_' };
    PathBuf::from(format!("{}.png", id.chars().map(plain).collect::<String>()))
}

/// Writes a screenshot as PNG.
pub(super) fn write_screenshot(screen: &Screen, path: &Path) -> Result<(), Failure> {
    let pixels = screen.image().map_err(Failure::failed)?;
    let written = pixels.save_with_format(path, ImageFormat::Png);
    written.map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}
