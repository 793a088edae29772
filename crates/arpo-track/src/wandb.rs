//! W&B: its own Python package does the work, in a process of its own (the side-car), which follows the run folder. It ends
//! when its standard input is closed: after the run, and also if this program is killed.

use crate::{Ending, TrackError};
use arpo_core::config::LoggingConfig;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The side-car, so that it is there wherever the program is.
const SIDECAR: &str = include_str!("../../../tools/wandb_sidecar.py");

/// A running side-car.
pub struct Wandb {
    child: Child,
    /// `None` once it is told to end.
    input: Option<ChildStdin>,
    log: PathBuf,
}

impl Wandb {
    /// Starts the side-car; what it prints goes to `wandb.log` in the run folder.
    pub fn start(run: &Path, config: &LoggingConfig) -> Result<Self, TrackError> {
        let log = run.join("wandb.log");
        let file = File::create(&log).map_err(TrackError::io(log.display()))?;
        let copy = file.try_clone().map_err(TrackError::io(log.display()))?;
        let mut command = Command::new(&config.python);
        command.args(["-c", SIDECAR]).arg(run).args(["--project", &config.project]);
        if !config.name.is_empty() {
            command.args(["--name", &config.name]);
        }
        let mut child = command
            // Ctrl-C is for the run, which tells the side-car how it ended
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(file)
            .stderr(copy)
            .spawn()
            .map_err(TrackError::io(format!("`logging.python` = {:?}", config.python)))?;
        let input = child.stdin.take();
        Ok(Self { child, input, log })
    }

    /// An error if it has ended.
    pub fn check(&mut self) -> Result<(), TrackError> {
        match self.child.try_wait().map_err(TrackError::io("the side-car"))? {
            None => Ok(()),
            Some(status) => Err(self.ended(status)),
        }
    }

    /// Tells it how the run ended, and waits until it has sent everything, at most so long.
    pub fn end(&mut self, ending: Ending, limit: Duration) -> Result<(), TrackError> {
        if let Some(mut input) = self.input.take() {
            let code = i32::from(ending != Ending::Finished);
            // one that has ended says so by its status
            let _ = writeln!(input, "{code}");
        }
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait().map_err(TrackError::io("the side-car"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.ended(status)),
                None if Instant::now() > deadline => {
                    let seconds = limit.as_secs();
                    return Err(TrackError::Refused(format!(
                        "has not ended within {seconds} s and is ended; `wandb sync` may send the rest"
                    )));
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Why it ended: the last line that it printed.
    fn ended(&self, status: ExitStatus) -> TrackError {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        TrackError::Refused(last.map_or_else(|| status.to_string(), str::to_owned))
    }
}

impl Drop for Wandb {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
