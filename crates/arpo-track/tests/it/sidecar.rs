//! How the side-car for W&B is started and ended; Python stands in for the real package. That one: `tests/trackers/run.sh`.

use crate::{append, new_run};
use arpo_core::config::LoggingConfig;
use arpo_track::{Ending, follow};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program that stands in for Python; it is given `-c`, the side-car, the run folder and options.
fn python(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("python");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn notices(run: &Path, python: &Path, ending: Ending) -> Vec<String> {
    let config = LoggingConfig {
        to: vec!["wandb".into()],
        python: python.display().to_string(),
        ..LoggingConfig::default()
    };
    follow(run, &config).end(ending)
}

#[test]
fn the_side_car_is_told_how_the_run_ended() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    new_run(run);
    append(run, 0, 0.5);
    let script = r#"[ "$1" = -c ] && [ "$4 $5" = "--project arpo" ] || exit 9
read -r code; echo "$code" >"$3/told"; read -r more; [ -z "$more" ]"#;
    let stand_in = python(run, script);
    assert!(notices(run, &stand_in, Ending::Finished).is_empty());
    assert_eq!(fs::read_to_string(run.join("told")).unwrap(), "0\n");
    assert!(notices(run, &stand_in, Ending::Failed).is_empty());
    assert_eq!(fs::read_to_string(run.join("told")).unwrap(), "1\n");
}

#[test]
fn a_side_car_that_cannot_work_is_one_notice() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    new_run(run);
    let stand_in = python(run, "echo first; echo 'no wandb here' >&2; exit 1");
    let found = notices(run, &stand_in, Ending::Finished);
    assert_eq!(found, ["wandb: no wandb here; nothing more is logged there"]);
    let missing = notices(run, Path::new("/no/such/python"), Ending::Finished);
    assert!(
        missing.len() == 1 && missing[0].contains("`logging.python` = \"/no/such/python\""),
        "{missing:?}"
    );
}
