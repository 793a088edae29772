//! Progress of commands that collect episodes without training: a bar on a terminal, elsewhere a line for every tenth of the
//! episodes. Desktop failures are printed as they happen; tasks that cannot be set up are named once.

use super::{bars, failure_line};
use arpo_core::task::TaskId;
use arpo_train::collect::{CollectEvent, FailureKind};
use arpo_train::run::events::CollectProgress;
use indicatif::ProgressBar;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};

/// Progress lines of a command without a terminal.
const LINES: usize = 10;

/// Progress of a command's episodes.
pub(crate) struct EpisodeProgress {
    progress: CollectProgress,
    success_above: f64,
    /// Tenths reported so far.
    reported: usize,
    unplayable: BTreeSet<TaskId>,
    quiet: bool,
    bar: Option<ProgressBar>,
}

impl EpisodeProgress {
    /// Progress over `total` episodes; a score above the threshold is a success.
    pub(crate) fn new(total: usize, success_above: f64, quiet: bool) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| bars::single("episodes".into(), total));
        let progress = CollectProgress { total, ..CollectProgress::default() };
        Self { progress, success_above, reported: 0, unplayable: BTreeSet::new(), quiet, bar }
    }

    /// Handles an event.
    pub(crate) fn event(&mut self, event: &CollectEvent) {
        match event {
            CollectEvent::Ended { score, running, .. } => {
                self.progress.running = *running;
                self.progress.finished += usize::from(score.is_some());
                self.progress.successes += usize::from(score.is_some_and(|score| score > self.success_above));
            }
            CollectEvent::Failed(failure) => {
                *self.progress.failures.entry(failure.kind).or_default() += 1;
                let task = failure.task.as_ref().filter(|_| failure.kind == FailureKind::BadTask);
                if task.is_none_or(|task| self.unplayable.insert(task.clone())) {
                    self.print_line(&failure_line(failure));
                }
            }
        }
        self.show();
    }

    fn show(&mut self) {
        let CollectProgress { finished, total, .. } = self.progress;
        let message = bars::episodes_message(&self.progress);
        if let Some(bar) = &self.bar {
            bar.set_position(finished as u64);
            bar.set_message(message);
            return;
        }
        let tenths = finished * LINES / total.max(1);
        if !self.quiet && tenths > self.reported {
            self.reported = tenths;
            self.print_line(&format!("{finished}/{total} episodes, {message}"));
        }
    }

    fn print_line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            // a closed stderr does not stop the work
            None => drop(writeln!(io::stderr(), "{line}")),
        }
    }
}

/// Progress of an epoch's updates, on a terminal only.
pub(crate) struct UpdateProgress(Option<ProgressBar>);

impl UpdateProgress {
    /// For the `number`-th of `of` epochs.
    pub(crate) fn new(number: usize, of: usize, quiet: bool) -> Self {
        Self((!quiet && io::stderr().is_terminal()).then(|| bars::single(format!("epoch {number}/{of}"), 0)))
    }

    /// Shows the number of updates made.
    pub(crate) fn set(&self, made: usize, of: usize) {
        if let Self(Some(bar)) = self {
            bar.set_length(of as u64);
            bar.set_position(made as u64);
        }
    }
}

impl Drop for UpdateProgress {
    fn drop(&mut self) {
        if let Self(Some(bar)) = self {
            bar.finish_and_clear();
        }
    }
}

impl Drop for EpisodeProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
