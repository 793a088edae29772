//! `arpo log`: a run is sent to trackers from outside, once it has ended or while it goes on without them.
//!
//! Trackers continue where they were, so that sending a run again adds nothing. Only two processes that send the same run at
//! the same time would each send all of it.

use crate::{Ending, TrackError, follow};
use arpo_core::config::LoggingConfig;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Whether a run may be sent to these trackers: an error if it is running and sends to one of them itself.
pub fn check(run: &Path, to: &[String], its_own: &[String], is_running: bool) -> Result<(), TrackError> {
    match to.iter().find(|name| is_running && its_own.contains(name)) {
        None => Ok(()),
        Some(name) => Err(TrackError::Refused(format!(
            "{}: is running and logs to {name} itself: expected a run that has ended, or another tracker",
            run.display()
        ))),
    }
}

/// Sends a run to the trackers of `logging.to`, as far as it has come; returns the problems, each in a line.
pub fn export(run: &Path, config: &LoggingConfig, is_running: bool) -> Vec<String> {
    follow(run, config).end(ending(run, is_running))
}

/// How a run has ended, as `run.json` says.
fn ending(run: &Path, is_running: bool) -> Ending {
    let about = fs::read(run.join("run.json")).unwrap_or_default();
    let about: Value = serde_json::from_slice(&about).unwrap_or_default();
    match about["ending"].as_str() {
        // there is more to come, as after a stop
        _ if is_running => Ending::Stopped,
        Some("finished") => Ending::Finished,
        Some("stopped") => Ending::Stopped,
        // an older version did not say
        None if about["started"].as_f64().unwrap_or(0.0) <= 0.0 => Ending::Finished,
        // without an ending it was killed
        Some(_) | None => Ending::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_at_its_trackers_as_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        assert_eq!(ending(run, false), Ending::Finished, "an older version wrote no run.json");
        for (about, expected) in [
            (r#"{"started": 5.0, "ending": "finished"}"#, Ending::Finished),
            (r#"{"started": 5.0, "ending": "stopped"}"#, Ending::Stopped),
            (r#"{"started": 5.0, "ending": "failed: no memory"}"#, Ending::Failed),
            (r#"{"started": 5.0, "ending": null}"#, Ending::Failed),
            (r#"{"started": 0.0, "ending": null}"#, Ending::Finished),
            ("half a fi", Ending::Finished),
        ] {
            fs::write(run.join("run.json"), about).unwrap();
            assert_eq!(ending(run, false), expected, "{about}");
            assert_eq!(ending(run, true), Ending::Stopped, "{about}");
        }
    }

    #[test]
    fn a_running_run_is_not_sent_where_it_logs_itself() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let own = names(&["wandb", "mlflow"]);
        let checked = |to: &[&str], is_running| check(Path::new("runs/a"), &names(to), &own, is_running);
        let refused = checked(&["tensorboard", "mlflow"], true).unwrap_err().to_string();
        assert_eq!(
            refused,
            "runs/a: is running and logs to mlflow itself: expected a run that has ended, or another tracker"
        );
        assert!(checked(&["tensorboard"], true).is_ok());
        assert!(checked(&["mlflow"], false).is_ok(), "what a server has missed is sent later");
    }
}
