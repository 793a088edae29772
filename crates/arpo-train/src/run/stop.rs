//! Stopping from outside: the first Ctrl-C asks the run to finish its step, save and end; the second ends it at once.

use super::RunError;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a shell reports of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// Whether the run has been asked to stop.
#[derive(Debug, Clone, Default)]
pub struct StopSwitch {
    asked: Arc<AtomicBool>,
}

impl StopSwitch {
    /// Listens to Ctrl-C and to the system's request to end (`SIGINT`, `SIGTERM`) from now on.
    pub fn listening() -> Result<Self, RunError> {
        let switch = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // in this order: what was asked before ends the program, and only then it is remembered
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&switch.asked))
                .map_err(RunError::Signal)?;
            flag::register(signal, Arc::clone(&switch.asked)).map_err(RunError::Signal)?;
        }
        Ok(switch)
    }

    /// The run should end after the step it is in.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Asks from within: a limit of time, a test.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }
}
