//! The output of a run as its threads share it: events come from one of them, notices from any.

use super::{Show, ShowArguments};
use arpo_train::run::events::{Notice, RunEvent};
use arpo_train::run::notices::Notices;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Prints what a run has to say, one thing after the other.
#[derive(Clone)]
pub(crate) struct SharedShow(Arc<Mutex<Show>>);

impl SharedShow {
    /// Prints results to this process's stdout, and the rest to its stderr.
    pub(crate) fn new(arguments: ShowArguments) -> Self {
        Self::of(Show::new(arguments))
    }

    pub(super) fn of(show: Show) -> Self {
        Self(Arc::new(Mutex::new(show)))
    }

    fn lock(&self) -> MutexGuard<'_, Show> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints an event.
    pub(crate) fn event(&self, event: &RunEvent) {
        self.lock().event(event);
    }

    /// Prints a message for the user.
    pub(crate) fn notice(&self, message: String) {
        self.event(&RunEvent::Notice(Notice { message }));
    }

    /// Prints lines of any thread as the notices that they are.
    pub(crate) fn notices(&self) -> Notices {
        let show = self.clone();
        Notices::shown_by(move |line| show.notice(line.to_owned()))
    }

    /// Prints lines about Ctrl-C: to stderr also with `--json`, because somebody sits there, and without a wait.
    pub(crate) fn signals(&self) -> Notices {
        let show = self.clone();
        Notices::shown_by(move |line| match show.0.try_lock() {
            Ok(mut show) => show.line(line),
            // something is being printed, perhaps to a reader who has stopped reading
            Err(_) => Notices::default().say(line),
        })
    }

    /// Clears the bars and returns the first write error.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.lock().finish()
    }
}
