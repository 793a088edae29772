//! Lines for the user that arise on any thread while a run goes on: a server that is lost, a worker that comes back.
//!
//! They cannot wait for the run's next event, which may be minutes away; so every thread has where they go.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

/// Where lines for the user go: to stderr, unless a front end shows them. Clones lead to the same place.
#[derive(Clone)]
pub struct Notices(Arc<dyn Fn(&str) + Send + Sync>);

impl Notices {
    /// Lines go to this function, at once and on the thread that has them.
    pub fn shown_by(show: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(show))
    }

    /// Shows a line.
    pub fn say(&self, line: &str) {
        (self.0)(line);
    }
}

impl Default for Notices {
    fn default() -> Self {
        // the terminal may have been closed
        Self::shown_by(|line| drop(writeln!(std::io::stderr(), "{line}")))
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").finish_non_exhaustive()
    }
}
