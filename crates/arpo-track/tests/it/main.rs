//! Trackers follow a run folder that grows, through servers that do not answer, and end when the run does.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod mlflow;
mod sidecar;
mod tensorboard;

use std::fs;
use std::io::Write;
use std::path::Path;

/// A run with a configuration.
fn new_run(run: &Path) {
    fs::write(run.join("config.toml"), "seed = 7\n[loss]\nclip_low = 0.2\n").unwrap();
}

/// Appends a line of metrics.
fn append(run: &Path, iteration: u64, score: f64) {
    let mut file = fs::File::options().create(true).append(true).open(run.join("metrics.jsonl")).unwrap();
    let time = 1_700_000_000.5 + iteration as f64;
    writeln!(file, r#"{{"iteration":{iteration},"reward/score":{score},"tasks":{{}},"time/wall":{time}}}"#)
        .unwrap();
}
