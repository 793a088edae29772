//! `arpo env play`: a task played by hand, a line at a time, with a picture of every step.

use super::chosen::{Begun, EpisodeArguments};
use super::lines::{self, Wish};
use super::show::write_picture;
use super::{deadline, widgets};
use crate::Failure;
use arpo_agent::render;
use arpo_core::action::Action;
use arpo_env::environment::Environment;
use clap::Args;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

/// What `arpo env play` takes.
#[derive(Args)]
pub(crate) struct PlayArguments {
    #[command(flatten)]
    episode: EpisodeArguments,
    /// Where to write the pictures, one per step
    #[arg(long, value_name = "FOLDER", default_value = "play")]
    out: PathBuf,
}

pub(crate) fn run(
    arguments: &PlayArguments,
    input: &mut impl BufRead,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let begun = arguments.episode.begin()?;
    let folder = arguments.out.clone();
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::failed(format!("--out {}: {error}", folder.display())))?;
    write!(out, "{}", begun.introduction(arguments.episode.seed))?;
    let mut game = Game { begun, folder, steps: 0, ended: false };
    let picture = game.write_picture()?;
    writeln!(out, "{}; `help` lists what you can write", picture.display())?;
    while !game.ended {
        let Some(line) = next_line(input, out)? else {
            if io::stdin().is_terminal() {
                // the prompt is still waiting on its line
                writeln!(out)?;
            }
            break;
        };
        match lines::wish(&line, game.begun.screen.image.dimensions()) {
            Ok(Wish::Act(action)) => game.act(&action, out)?,
            Ok(Wish::Look) => write!(out, "{}", widgets::table(&game.begun.environment.widgets()))?,
            Ok(Wish::Help) => write!(out, "{}", lines::help())?,
            Ok(Wish::Quit) => break,
            Ok(Wish::Nothing) => {}
            Err(problem) => writeln!(out, "not understood: {problem}")?,
        }
    }
    let score = game.begun.environment.evaluate(deadline()).map_err(Failure::failed)?;
    let ending = if game.ended { "" } else { " (as it stands: no finished, no call_user)" };
    writeln!(out, "score {score} after {}{ending}", actions(game.steps))?;
    Ok(())
}

/// The next line, asked for where a person sits there; none at the end of the input.
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

struct Game {
    begun: Begun,
    folder: PathBuf,
    steps: usize,
    ended: bool,
}

impl Game {
    fn write_picture(&self) -> Result<PathBuf, Failure> {
        let path = self.folder.join(format!("step_{:03}.png", self.steps));
        write_picture(&self.begun.screen, &path)?;
        Ok(path)
    }

    /// Carries an action out and says what came of it.
    fn act(&mut self, action: &Action, out: &mut impl Write) -> Result<(), Failure> {
        let environment = &mut self.begun.environment;
        let before = environment.widgets();
        let stepped = environment.step(action, deadline()).map_err(Failure::failed)?;
        let changes = widgets::changes(&before, &environment.widgets());
        let same_picture = stepped.screen == self.begun.screen;
        self.begun.screen = stepped.screen;
        self.ended = stepped.terminated || stepped.truncated;
        self.steps += 1;
        let picture = self.write_picture()?;
        writeln!(out, "{}: {}", picture.display(), render::action(action))?;
        if changes.is_empty() && !self.ended {
            let what = if same_picture { "nothing changed" } else { "only the picture changed" };
            writeln!(out, "  {what}")?;
        }
        for line in changes {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    }
}
