//! Progress bars on a terminal: iterations with the time left, and episodes of the current iteration.

use super::COLUMNS;
use super::lines::format_duration;
use super::paint::Paint;
use arpo_train::run::events::{CollectProgress, RunEvent};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use terminal_size::{Width, terminal_size_of};

/// Maximum number of redraws per second.
const FRAMES: u8 = 10;

/// Maximum width of an iteration's line, however wide the terminal is.
const MAX_COLUMNS: usize = 120;

/// The bars of a run.
pub(super) struct Bars {
    all: MultiProgress,
    iterations: ProgressBar,
    episodes: ProgressBar,
    started: Instant,
    /// Iterations done by this process.
    done_here: u64,
    columns: usize,
}

impl Bars {
    /// Bars on stderr, which must be a terminal.
    pub(super) fn on_stderr() -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(FRAMES);
        let size = terminal_size_of(io::stderr());
        let columns = size.map_or(COLUMNS, |(Width(width), _)| usize::from(width)).clamp(40, MAX_COLUMNS);
        let all = MultiProgress::with_draw_target(target);
        let add = |name: &'static str| all.add(styled(ProgressBar::new(0).with_prefix(name)));
        let (iterations, episodes) = (add("iterations"), add("episodes  "));
        // the clock keeps running between iterations
        iterations.enable_steady_tick(Duration::from_millis(500));
        Self { all, iterations, episodes, started: Instant::now(), done_here: 0, columns }
    }

    /// Columns of the terminal, within limits.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Prints a permanent line above the bars.
    pub(super) fn print_above(&self, line: &str) -> io::Result<()> {
        self.all.println(line)
    }

    /// Updates the bars.
    pub(super) fn follow(&mut self, event: &RunEvent) {
        match event {
            RunEvent::RunStarted(started) => {
                (self.started, self.done_here) = (Instant::now(), 0);
                self.iterations.set_length(started.iterations);
                self.iterations.set_position(started.resumed_at.unwrap_or(0));
            }
            RunEvent::CollectProgress(progress) => {
                self.episodes.set_length(progress.total as u64);
                self.episodes.set_position(progress.finished as u64);
                self.episodes.set_message(episodes_message(progress));
            }
            RunEvent::IterationDone(done) => {
                self.done_here += 1;
                let seconds = self.started.elapsed().as_secs_f64();
                let left = done.of.saturating_sub(done.iteration);
                self.iterations.set_length(done.of);
                self.iterations.set_position(done.iteration);
                self.iterations.set_message(time_left(seconds, self.done_here, left));
                self.episodes.set_position(0);
                self.episodes.set_message("");
            }
            RunEvent::DesktopFailed(_) | RunEvent::Notice(_) | RunEvent::RunEnded(_) => {}
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.iterations.finish_and_clear();
        self.episodes.finish_and_clear();
    }
}

/// A single bar on stderr, which must be a terminal.
pub(super) fn single(name: String, total: usize) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(FRAMES);
    styled(ProgressBar::with_draw_target(Some(total as u64), target).with_prefix(name))
}

fn styled(bar: ProgressBar) -> ProgressBar {
    let colour = if Paint::for_stream(io::stderr().is_terminal()).is_coloured() { ".cyan/dim" } else { "" };
    let template = format!("{{prefix}} {{pos:>4}}/{{len:4}} {{bar:20{colour}}} {{wide_msg}}");
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style.progress_chars("━━─")),
        Err(_) => bar,
    }
}

/// The message after the bar of episodes.
pub(super) fn episodes_message(progress: &CollectProgress) -> String {
    let CollectProgress { running, finished, successes, ref failures, .. } = *progress;
    let share = if finished > 0 {
        format!(", success {:.2}", successes as f64 / finished as f64)
    } else {
        String::new()
    };
    let mut message = format!("{running} running{share}");
    for (kind, count) in failures {
        let _ = write!(message, ", {count} {kind}");
    }
    message
}

/// The message after the bar of iterations: the time left at the current pace.
pub(super) fn time_left(seconds: f64, done: u64, left: u64) -> String {
    if done == 0 {
        return String::new();
    }
    format!("{} left", format_duration(seconds / done as f64 * left as f64))
}
