//! A desktop whose episodes are recorded in the folder of a trial, wherever the desktop is.
//!
//! Responses and screens pass through here anyway; what only the desktop knows, such as the code of an action, it says as
//! [`RecordEntry`].

use super::record::{Record, StepRecord, Trial};
use arpo_core::action::Action;
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError, RecordEntry, Screen, StepResult, check_deadline};
use jiff::Zoned;
use serde_json::{Value, json};
use std::io;
use std::time::Instant;

/// The desktop.
pub struct RecordedDesktop<E> {
    desktop: E,
    trial: Trial,
    record: Option<Record>,
    /// Responses so far.
    turn: usize,
    response: String,
}

impl<E: Environment> RecordedDesktop<E> {
    /// Records the episodes of a desktop.
    pub fn new(desktop: E, trial: Trial) -> Self {
        Self { desktop, trial, record: None, turn: 0, response: String::new() }
    }

    /// Writes an error to the record, as OSWorld's runner does; a call without an episode is none of the episode's. A failure to
    /// write it must not hide it.
    fn log_error<T>(&self, result: Result<T, EnvironmentError>) -> Result<T, EnvironmentError> {
        if let (Err(error), Some(record)) = (&result, &self.record)
            && *error != EnvironmentError::NoEpisode
        {
            let _ = record.error(&error.to_string());
        }
        result
    }

    /// Writes what the desktop has to say.
    fn write_entries(&mut self, stepped: Option<&StepResult>) -> Result<(), EnvironmentError> {
        let entries = self.desktop.take_record();
        let Some(record) = &self.record else { return Ok(()) };
        for entry in entries {
            match (entry, stepped) {
                (RecordEntry::Action(action), Some(stepped)) => {
                    let png = stepped.screen.to_png()?;
                    let step = StepRecord {
                        turn: self.turn,
                        action: &action,
                        response: &self.response,
                        done: stepped.terminated,
                        info: info(&action),
                        screenshot: &png,
                    };
                    record.step(&step, &Zoned::now()).map_err(|error| broken(&error))?;
                }
                // outside a step nothing is carried out
                (RecordEntry::Action(_), None) => {}
                // failures to write these must not end an episode
                (RecordEntry::Note(note), _) => drop(record.note(&note, &Zoned::now())),
                (RecordEntry::Video(video), _) => {
                    if let Err(error) = record.recording(&video) {
                        let _ = record.note(&error.to_string(), &Zoned::now());
                    }
                }
            }
        }
        Ok(())
    }
}

fn info(action: &str) -> Value {
    match action {
        "DONE" => json!({"done": true}),
        "FAIL" => json!({"fail": true}),
        _ => json!({}),
    }
}

fn broken(error: &io::Error) -> EnvironmentError {
    EnvironmentError::Broken { reason: format!("the episode cannot be recorded: {error}") }
}

impl<E: Environment> Environment for RecordedDesktop<E> {
    fn reset(&mut self, task: &Task, seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError> {
        (self.turn, self.response) = (0, String::new());
        let record = self.trial.begin(&task.application, task.id.as_str());
        self.record = Some(record.map_err(|error| broken(&error))?);
        let screen = self.desktop.reset(task, seed, deadline);
        let screen = self.log_error(screen)?;
        self.write_entries(None)?;
        Ok(screen)
    }

    fn record_response(&mut self, response: &str) {
        self.turn += 1;
        response.clone_into(&mut self.response);
        self.desktop.record_response(response);
    }

    fn step(&mut self, action: &Action, deadline: Instant) -> Result<StepResult, EnvironmentError> {
        let stepped = self.desktop.step(action, deadline);
        let stepped = self.log_error(stepped)?;
        self.write_entries(Some(&stepped))?;
        Ok(stepped)
    }

    /// Writes the score last: the task is finished.
    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError> {
        let score = self.desktop.evaluate(deadline);
        let score = self.log_error(score)?;
        // a call that was abandoned must not overwrite the record of the next attempt
        check_deadline(deadline, "evaluate")?;
        self.write_entries(None)?;
        if let Some(record) = &self.record {
            record.score(score).map_err(|error| broken(&error))?;
        }
        Ok(score)
    }

    fn is_deterministic(&self) -> bool {
        self.desktop.is_deterministic()
    }

    fn screen_size(&self) -> Option<(u32, u32)> {
        self.desktop.screen_size()
    }
}
