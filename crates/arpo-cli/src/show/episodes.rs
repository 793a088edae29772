//! Progress of episodes that are played without learning from them: a bar on a terminal, elsewhere a line for every tenth of
//! them. Failures of desktops are told as they come, tasks that cannot be played once.

use super::{bars, failure_line};
use arpo_core::task::TaskId;
use arpo_train::collect::{CollectEvent, FailureKind};
use arpo_train::run::events::CollectProgress;
use indicatif::ProgressBar;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};

/// Lines for a whole command, where there is no terminal.
const LINES: usize = 10;

/// How far a command's episodes are.
pub(crate) struct EpisodeProgress {
    progress: CollectProgress,
    success_above: f64,
    /// Tenths that were told of.
    told: usize,
    unplayable: BTreeSet<TaskId>,
    quiet: bool,
    bar: Option<ProgressBar>,
}

impl EpisodeProgress {
    /// Of so many episodes; a score above the threshold is a success.
    pub(crate) fn new(total: usize, success_above: f64, quiet: bool) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| bars::alone("episodes".into(), total));
        let progress = CollectProgress { total, ..CollectProgress::default() };
        Self { progress, success_above, told: 0, unplayable: BTreeSet::new(), quiet, bar }
    }

    /// Takes in what happened.
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
                    self.say(&failure_line(failure));
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
        if !self.quiet && tenths > self.told {
            self.told = tenths;
            self.say(&format!("{finished}/{total} episodes, {message}"));
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            // without anybody who reads it the work goes on
            None => drop(writeln!(io::stderr(), "{line}")),
        }
    }
}

/// How far the updates of an epoch are; on a terminal only, where its line is not there yet.
pub(crate) struct UpdateProgress(Option<ProgressBar>);

impl UpdateProgress {
    /// The `number`-th epoch of all.
    pub(crate) fn new(number: usize, of: usize, quiet: bool) -> Self {
        Self((!quiet && io::stderr().is_terminal()).then(|| bars::alone(format!("epoch {number}/{of}"), 0)))
    }

    /// So many updates are made.
    pub(crate) fn moved(&self, made: usize, of: usize) {
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
