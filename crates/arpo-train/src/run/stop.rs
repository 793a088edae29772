//! Stopping on request. The first Ctrl-C makes the run end within seconds: running episodes and the current update are
//! abandoned, the last complete state is saved. The second prints what would be lost by ending at once, the third ends
//! at once.

use super::RunError;
use super::notices::Notices;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The exit code of a program that was ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Whether a stop has been requested.
#[derive(Debug, Clone, Default)]
pub struct StopSwitch {
    requested: Arc<AtomicBool>,
    /// The flags of the switches that this one was derived from.
    parents: Vec<Arc<AtomicBool>>,
    at_stake: Arc<Mutex<String>>,
    notices: Arc<Mutex<Notices>>,
}

impl StopSwitch {
    /// A switch that `SIGINT` (Ctrl-C) and `SIGTERM` turn on from now on.
    pub fn listening() -> Result<Self, RunError> {
        let switch = Self::default();
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(RunError::Signal)?;
        let handler = switch.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for (before, _) in signals.forever().enumerate() {
                    handler.on_signal(before);
                }
            })
            .map_err(RunError::Signal)?;
        Ok(switch)
    }

    /// Another switch that is on whenever this one is, and can be turned on by itself.
    #[must_use]
    pub fn within(&self) -> Self {
        let parents = self.parents.iter().chain([&self.requested]).map(Arc::clone).collect();
        Self { parents, ..Self::default() }
    }

    /// Whether the run should end as soon as possible.
    pub fn requested(&self) -> bool {
        self.parents.iter().chain([&self.requested]).any(|flag| flag.load(Ordering::Relaxed))
    }

    /// Requests a stop from within the program: a time limit, a test.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Sets what would be lost if the program ended now; empty for nothing.
    pub fn at_stake(&self, what: impl Into<String>) {
        *self.at_stake.lock().unwrap_or_else(PoisonError::into_inner) = what.into();
    }

    /// Sets where the lines about signals go, at first to stderr. It must not wait: the third signal ends the program.
    pub fn tell(&self, notices: Notices) {
        *self.notices.lock().unwrap_or_else(PoisonError::into_inner) = notices;
    }

    /// Handles a signal; `before` is the number of earlier ones.
    fn on_signal(&self, before: usize) {
        let notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        notices.say(&self.message(before));
        if before >= 2 {
            std::process::exit(INTERRUPTED);
        }
        self.request();
    }

    fn message(&self, before: usize) -> String {
        let stake = self.at_stake.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lost =
            if stake.is_empty() { "nothing would be lost".into() } else { format!("{stake} would be lost") };
        match before {
            0 => "stopping: running episodes are abandoned, the last complete state is saved".into(),
            1 => format!("still stopping; if it ended now, {lost}: press Ctrl-C again to end it at once"),
            _ => "ended".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_signal_would_cost_is_said_where_it_is_seen() {
        let said = Arc::new(Mutex::new(vec![]));
        let (seen, switch) = (Arc::clone(&said), StopSwitch::default());
        switch.clone().tell(Notices::shown_by(move |line| seen.lock().unwrap().push(line.to_owned())));
        switch.on_signal(0);
        assert!(switch.requested());
        switch.at_stake("everything");
        switch.on_signal(1);
        let said = said.lock().unwrap();
        assert!(said.len() == 2 && said[0].starts_with("stopping: "), "{said:?}");
        assert!(said[1].contains("if it ended now, everything would be lost"), "{said:?}");
    }
}
