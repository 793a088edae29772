//! `run.json`: when and where a run was started and resumed, and how it ended.

use super::durable::write_file;
use super::{RunError, RunFolder};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The contents of `run.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunAbout {
    /// The version of the program.
    pub arpo: String,
    /// When the run was started, in Unix seconds.
    pub started: f64,
    /// When it was resumed.
    pub resumed: Vec<f64>,
    /// When it ended; `None` while it runs, and if it was killed.
    pub ended: Option<f64>,
    /// How it ended: `finished`, `stopped` on request, or `failed: ` and the error.
    pub ending: Option<String>,
    /// Iterations in all.
    pub iterations: u64,
    /// The method, as text.
    pub method: String,
    /// Parameters of the model.
    pub parameters: u64,
    /// Where the model computes.
    pub device: String,
    /// The machine it was started on last.
    pub machine: Machine,
    /// Random seed.
    pub seed: u64,
    /// The process that runs it, or ran it last.
    pub pid: u32,
    /// Where that process serves the viewer, if it does.
    pub view: Option<String>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// Its processor.
    pub cpu: String,
    /// Cores that the program may use.
    pub cores: usize,
    /// Its memory.
    pub memory_gib: f64,
    /// The GPU that computes, if one does.
    pub gpu: Option<String>,
}

impl Machine {
    /// This machine. What the system does not tell stays empty.
    pub fn this(gpu: Option<String>) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.split_once(':'));
            line.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal");
        let kib: f64 = memory.trim_end_matches("kB").trim().parse().unwrap_or(0.0);
        Self {
            host: read("/proc/sys/kernel/hostname").trim().to_owned(),
            cpu: value(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_gib: (kib / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            gpu,
        }
    }
}

impl RunAbout {
    /// What a run folder says about its run; the default if it says nothing, or nothing that can be read.
    pub fn read(run: &Path) -> Self {
        let text = fs::read(file(run)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes it.
    pub fn write(&self, folder: &RunFolder) -> Result<(), RunError> {
        self.write_into(folder.path())
    }

    pub(super) fn write_into(&self, run: &Path) -> Result<(), RunError> {
        let path = file(run);
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| RunError::file(&path, format!("cannot be written: {error}")))?;
        text.push(b'\n');
        write_file(&path, &text)
    }

    /// The run starts now, or resumes if it was started before. The address of a viewer of this process stays.
    #[must_use]
    pub fn begun(self, before: &Self, now: f64) -> Self {
        let pid = std::process::id();
        let view = before.view.clone().filter(|_| before.pid == pid);
        let is_new = before.started <= 0.0;
        let resumed = if is_new { vec![] } else { [before.resumed.as_slice(), &[now]].concat() };
        let started = if is_new { now } else { before.started };
        Self { started, resumed, ended: None, ending: None, pid, view, ..self }
    }
}

/// Says where this process serves the viewer for a run, before the run is begun or while it is running.
pub fn set_view(folder: &RunFolder, address: &str) -> Result<(), RunError> {
    let about = RunAbout::read(folder.path());
    RunAbout { view: Some(address.to_owned()), pid: std::process::id(), ..about }.write(folder)
}

/// Now, in Unix seconds.
pub fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn file(run: &Path) -> PathBuf {
    run.join("run.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_started_once_and_resumed_later() {
        let about = RunAbout { method: "ARPO".into(), ..RunAbout::default() };
        let first = about.clone().begun(&RunAbout::default(), 10.0);
        assert_eq!((first.started, first.resumed.len(), first.pid), (10.0, 0, std::process::id()));
        let ended = RunAbout { ended: Some(20.0), ending: Some("stopped".into()), ..first };
        let mut second = about.clone().begun(&ended, 30.0);
        assert_eq!((second.started, second.resumed.as_slice(), second.ended), (10.0, &[30.0][..], None));
        // a viewer of this process is still there, one of another process is not
        second.view = Some("http://127.0.0.1:1/".into());
        assert!(about.clone().begun(&second, 40.0).view.is_some());
        second.pid += 1;
        assert_eq!(about.begun(&second, 40.0).view, None);
    }

    #[test]
    fn this_machine_has_a_name_and_memory() {
        let machine = Machine::this(Some("a GPU".into()));
        assert!(machine.cores > 0 && !machine.host.is_empty() && machine.memory_gib > 0.1, "{machine:?}");
    }
}
