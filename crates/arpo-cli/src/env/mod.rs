//! `arpo env`: the tasks of the embedded desktop, and a person's way into them.

mod chosen;
mod lines;
mod list;
mod play;
mod scores;
mod show;
mod widgets;

use crate::{Failure, write_json};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// What `arpo env` takes.
#[derive(Args)]
pub(crate) struct EnvArguments {
    #[command(subcommand)]
    topic: Topic,
}

#[derive(Subcommand)]
enum Topic {
    /// List tasks, a line each: name, application, instruction
    List(list::ListArguments),
    /// Write the picture of a task, and say what is on it
    Show(show::ShowArguments),
    /// Play a task by hand: lines like `click 120 80` from stdin, a picture per step
    Play(play::PlayArguments),
    /// Scores of the scripted policies over all listed tasks
    Scores(scores::ScoresArguments),
}

pub(crate) fn run(arguments: &EnvArguments, out: &mut impl Write) -> Result<(), Failure> {
    match &arguments.topic {
        Topic::List(arguments) => list::run(arguments, out),
        Topic::Show(arguments) => show::run(arguments, out),
        Topic::Play(arguments) => play::run(arguments, &mut io::stdin().lock(), out),
        Topic::Scores(arguments) => scores::run(arguments, out),
    }
}

/// Reads one of a library's choices by the name the library gives it.
fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [T],
    key: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(move |choice| key(*choice));
    PossibleValuesParser::new(names).map(move |name| {
        let named = choices.iter().copied().find(|choice| key(*choice) == name);
        named.expect("only these names get here")
    })
}

/// Calls of the embedded desktop take thousandths of a second; one that does not return by then is broken.
fn deadline() -> Instant {
    Instant::now() + Duration::from_mins(1)
}
