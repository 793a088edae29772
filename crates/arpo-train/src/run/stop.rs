//! Stopping from outside. The first Ctrl-C asks the run to end within seconds: episodes and the update under way are
//! given up, the last whole state is saved. The second says what ending at once would lose, the third ends at once.

use super::RunError;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a shell reports of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// Whether the run has been asked to stop.
#[derive(Debug, Clone, Default)]
pub struct StopSwitch {
    asked: Arc<AtomicBool>,
    /// Of whoever this one belongs to.
    above: Vec<Arc<AtomicBool>>,
    at_stake: Arc<Mutex<String>>,
}

impl StopSwitch {
    /// Listens to Ctrl-C and to the system's request to end (`SIGINT`, `SIGTERM`) from now on.
    pub fn listening() -> Result<Self, RunError> {
        let switch = Self::default();
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(RunError::Signal)?;
        let heard = switch.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for (before, _) in signals.forever().enumerate() {
                    heard.hear(before);
                }
            })
            .map_err(RunError::Signal)?;
        Ok(switch)
    }

    /// Another switch that is on whenever this one is, and can be turned on by itself.
    #[must_use]
    pub fn within(&self) -> Self {
        let above = self.above.iter().chain([&self.asked]).map(Arc::clone).collect();
        Self { above, ..Self::default() }
    }

    /// The run should end as soon as it can.
    pub fn asked(&self) -> bool {
        self.above.iter().chain([&self.asked]).any(|flag| flag.load(Ordering::Relaxed))
    }

    /// Asks from within: a limit of time, a test.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Remembers what would be lost if the program ended now; empty for nothing.
    pub fn at_stake(&self, what: impl Into<String>) {
        *self.at_stake.lock().unwrap_or_else(PoisonError::into_inner) = what.into();
    }

    /// A signal, and how many came before it.
    fn hear(&self, before: usize) {
        let line = self.answer(before);
        // whoever sent the signal may have closed the terminal
        let _ = writeln!(std::io::stderr(), "{line}");
        if before >= 2 {
            std::process::exit(INTERRUPTED);
        }
        self.ask();
    }

    fn answer(&self, before: usize) -> String {
        let stake = self.at_stake.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lost =
            if stake.is_empty() { "nothing would be lost".into() } else { format!("{stake} would be lost") };
        match before {
            0 => "stopping: what is under way is given up, the last whole state is saved".into(),
            1 => format!("still stopping; if it ended now, {lost}: Ctrl-C once more ends it at once"),
            _ => "ended".into(),
        }
    }
}
