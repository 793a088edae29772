//! `arpo env play`: a task played by hand, one line at a time, with a screenshot of every step.

use super::input::{self, Input};
use super::show::write_screenshot;
use super::tasks::{EpisodeArguments, StartedEpisode};
use super::{deadline, widgets};
use crate::Failure;
use arpo_agent::render;
use arpo_core::action::Action;
use arpo_env::environment::Environment;
use clap::Args;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

/// The arguments of `arpo env play`.
#[derive(Args)]
pub(crate) struct PlayArguments {
    #[command(flatten)]
    episode: EpisodeArguments,
    /// The folder for the screenshots, one per step
    #[arg(long, value_name = "FOLDER", default_value = "play")]
    out: PathBuf,
}

pub(crate) fn run(
    arguments: &PlayArguments,
    input: &mut impl BufRead,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let episode = arguments.episode.start()?;
    let folder = arguments.out.clone();
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::failed(format!("--out {}: {error}", folder.display())))?;
    write!(out, "{}", episode.introduction(arguments.episode.seed))?;
    let mut session = Session { episode, folder, steps: 0, ended: false };
    let screenshot = session.write_screenshot()?;
    writeln!(out, "{}; `help` lists the commands", screenshot.display())?;
    while !session.ended {
        let Some(line) = next_line(input, out)? else {
            if io::stdin().is_terminal() {
                // ends the line of the prompt
                writeln!(out)?;
            }
            break;
        };
        match input::parse_line(&line, session.episode.screen.size()) {
            Ok(Input::Act(action)) => session.act(&action, out)?,
            Ok(Input::Look) => write!(out, "{}", widgets::table(&session.episode.environment.widgets()))?,
            Ok(Input::Help) => write!(out, "{}", input::help())?,
            Ok(Input::Quit) => break,
            Ok(Input::Empty) => {}
            Err(problem) => writeln!(out, "not understood: {problem}")?,
        }
    }
    let score = session.episode.environment.evaluate(deadline()).map_err(Failure::failed)?;
    let ending = if session.ended { "" } else { " (not ended with finished or call_user)" };
    writeln!(out, "score {score} after {}{ending}", actions(session.steps))?;
    Ok(())
}

/// The next line of input, with a prompt on a terminal; `None` at the end.
fn next_line(input: &mut impl BufRead, out: &mut impl Write) -> Result<Option<String>, Failure> {
    if io::stdin().is_terminal() {
        write!(out, "> ")?;
    }
    out.flush()?;
    let mut line = Vec::new();
    let read = input.read_until(b'\n', &mut line);
    let read = read.map_err(|error| Failure::failed(format!("cannot read stdin: {error}")))?;
    Ok((read > 0).then(|| String::from_utf8_lossy(&line).into_owned()))
}

fn actions(count: usize) -> String {
    format!("{count} {}", if count == 1 { "action" } else { "actions" })
}

struct Session {
    episode: StartedEpisode,
    folder: PathBuf,
    steps: usize,
    ended: bool,
}

impl Session {
    fn write_screenshot(&self) -> Result<PathBuf, Failure> {
        let path = self.folder.join(format!("step_{:03}.png", self.steps));
        write_screenshot(&self.episode.screen, &path)?;
        Ok(path)
    }

    /// Executes an action and prints its effects.
    fn act(&mut self, action: &Action, out: &mut impl Write) -> Result<(), Failure> {
        let environment = &mut self.episode.environment;
        let before = environment.widgets();
        let stepped = environment.step(action, deadline()).map_err(Failure::failed)?;
        let changes = widgets::changes(&before, &environment.widgets());
        let same_screen = stepped.screen == self.episode.screen;
        self.episode.screen = stepped.screen;
        self.ended = stepped.terminated || stepped.truncated;
        self.steps += 1;
        let screenshot = self.write_screenshot()?;
        writeln!(out, "{}: {}", screenshot.display(), render::action(action))?;
        if changes.is_empty() && !self.ended {
            let what = if same_screen { "nothing changed" } else { "only pixels changed" };
            writeln!(out, "  {what}")?;
        }
        for line in changes {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    }
}
