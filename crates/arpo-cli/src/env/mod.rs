//! `arpo env`: lists, shows and plays the tasks of the embedded desktop.

mod input;
mod list;
mod play;
mod scores;
mod show;
mod tasks;
mod widgets;

use crate::{Failure, write_json};
use clap::{Args, Subcommand};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The arguments of `arpo env`.
#[derive(Args)]
pub(crate) struct EnvArguments {
    #[command(subcommand)]
    topic: Topic,
}

#[derive(Subcommand)]
enum Topic {
    /// List tasks, one per line: id, application, instruction
    List(list::ListArguments),
    /// Write a screenshot of a task, and print its widgets
    Show(show::ShowArguments),
    /// Play a task by hand: lines such as `click 120 80` on stdin, a screenshot per step
    Play(play::PlayArguments),
    /// Print the scores of the scripted policies over all listed tasks
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

/// The deadline of a call. Calls of the embedded desktop take milliseconds.
fn deadline() -> Instant {
    Instant::now() + Duration::from_mins(1)
}
