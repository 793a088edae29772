//! The output of a run: progress, a line for each iteration, a table at the end. Scripts get the same as JSON, one object
//! per line.
//!
//! Results (the table, JSON) go to stdout, everything else to stderr. Bars and colours are for terminals only; otherwise
//! plain lines are printed.

mod bars;
mod episodes;
mod lines;
mod paint;
mod shared;
mod table;

use arpo_train::collect::DesktopFailure;
use arpo_train::run::events::RunEvent;
use bars::Bars;
use clap::Args;
pub(crate) use episodes::{EpisodeProgress, UpdateProgress};
use paint::Paint;
pub(crate) use shared::SharedShow;
use std::io::{self, IsTerminal, Write};

/// Columns of a line without a terminal.
const COLUMNS: usize = 80;

/// The output options of a run.
#[derive(Args, Clone, Copy, Default)]
pub(crate) struct ShowArguments {
    /// Print only problems and the result, no progress
    #[arg(long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print events as JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A desktop failure in one line, for commands with their own output.
pub(crate) fn failure_line(failure: &DesktopFailure) -> String {
    lines::failure(failure, Paint::for_stream(io::stderr().is_terminal()))
}

/// The output mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// JSON, for scripts.
    Json,
    /// The result only.
    Quiet,
    /// Plain lines, for a file or a pipe.
    Lines,
    /// Bars and colours, for a terminal.
    Terminal,
}

/// Prints the events of a run.
struct Show {
    mode: Mode,
    /// Results.
    out: Box<dyn Write + Send>,
    /// Everything else.
    log: Box<dyn Write + Send>,
    result_paint: Paint,
    log_paint: Paint,
    columns: usize,
    bars: Option<Bars>,
    /// The first write error. The run continues without output.
    failed: Option<io::Error>,
}

impl Show {
    /// Prints results to this process's stdout, and the rest to its stderr.
    fn new(arguments: ShowArguments) -> Self {
        let terminal = io::stderr().is_terminal();
        let mode = match arguments {
            ShowArguments { json: true, .. } => Mode::Json,
            ShowArguments { quiet: true, .. } => Mode::Quiet,
            _ if terminal => Mode::Terminal,
            _ => Mode::Lines,
        };
        let bars = (mode == Mode::Terminal).then(Bars::on_stderr);
        let columns = bars.as_ref().map_or(COLUMNS, Bars::columns);
        Self {
            mode,
            out: Box::new(io::stdout()),
            log: Box::new(io::stderr()),
            result_paint: Paint::for_stream(io::stdout().is_terminal()),
            log_paint: Paint::for_stream(terminal),
            columns,
            bars,
            failed: None,
        }
    }

    /// Prints an event.
    fn event(&mut self, event: &RunEvent) {
        if let Err(error) = self.try_event(event) {
            self.failed.get_or_insert(error);
        }
    }

    fn try_event(&mut self, event: &RunEvent) -> io::Result<()> {
        if self.mode == Mode::Json {
            return match event {
                // many per second, and summarised in the iterations' lines
                RunEvent::CollectProgress(_) => Ok(()),
                event => {
                    serde_json::to_writer(&mut *self.out, event)?;
                    writeln!(self.out)?;
                    self.out.flush()
                }
            };
        }
        let quiet = self.mode == Mode::Quiet;
        if let Some(bars) = &mut self.bars {
            bars.follow(event);
        }
        match event {
            RunEvent::RunStarted(started) if !quiet => {
                self.log_lines(&lines::started(started, self.log_paint))
            }
            RunEvent::IterationDone(done) if !quiet => {
                self.log_lines(&[lines::iteration(done, self.columns, self.log_paint)])
            }
            RunEvent::DesktopFailed(failure) => self.log_lines(&[lines::failure(failure, self.log_paint)]),
            RunEvent::Notice(notice) => self.log_lines(&[lines::notice(notice, self.log_paint)]),
            RunEvent::RunEnded(ended) => {
                self.bars = None;
                for line in table::ended(ended, self.result_paint) {
                    writeln!(self.out, "{line}")?;
                }
                self.out.flush()
            }
            _ => Ok(()),
        }
    }

    /// Prints a line to stderr, whatever the mode. A terminal that has been closed is no reason for a run to fail.
    fn line(&mut self, line: &str) {
        let _ = self.log_lines(&[line.to_owned()]);
    }

    fn log_lines(&mut self, lines: &[String]) -> io::Result<()> {
        match &self.bars {
            // above the bars
            Some(bars) => lines.iter().try_for_each(|line| bars.print_above(line)),
            None => lines.iter().try_for_each(|line| writeln!(self.log, "{line}")),
        }
    }

    /// Clears the bars and returns the first write error.
    fn finish(&mut self) -> io::Result<()> {
        self.bars = None;
        self.failed.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
