//! Questions to the machine and to programs that may be installed.

use super::Finding;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// A program that has not told its version by then is broken. Ray needs seconds to import itself.
const DEADLINE: Duration = Duration::from_secs(20);

/// Under these names Chromium is installed.
const CHROMIUM: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// Cores and memory.
pub(super) fn processor() -> Finding {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let plural = if cores == 1 { "" } else { "s" };
    let memory = memory_gib().map(|gib| format!(", {gib:.0} GiB of memory")).unwrap_or_default();
    Finding::usable("processor", format!("{cores} core{plural}{memory}"))
}

/// The browser that MiniWoB++ runs in.
pub(super) fn chromium() -> Finding {
    let (name, needed_for) = ("Chromium", "the browser environments (MiniWoB++)");
    let command = "apt-get install chromium";
    for program in CHROMIUM {
        match version(program) {
            Answer::Absent => {}
            Answer::Version(version) => return Finding::usable(name, version),
            Answer::Broken(problem) => return Finding::broken(name, problem, needed_for, command),
        }
    }
    Finding::missing(name, "no chromium or google-chrome on the PATH", needed_for, command)
}

/// The cluster engine.
pub(super) fn ray() -> Finding {
    let (name, needed_for, command) =
        ("Ray", "spreading a run over several machines", "pip install 'ray[default]'");
    match version("ray") {
        Answer::Absent => Finding::missing(name, "no ray on the PATH", needed_for, command),
        Answer::Version(version) => Finding::usable(name, version),
        Answer::Broken(problem) => Finding::broken(name, problem, needed_for, command),
    }
}

fn memory_gib() -> Option<f64> {
    let table = fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / f64::from(1 << 20))
}

enum Answer {
    Absent,
    Version(String),
    Broken(String),
}

/// The first line of `program --version`.
fn version(program: &str) -> Answer {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Answer::Absent,
        Err(error) => return Answer::Broken(format!("{program} does not start: {error}")),
    };
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() < DEADLINE => thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Answer::Broken(format!(
                    "{program} --version has no answer after {} s",
                    DEADLINE.as_secs()
                ));
            }
            Err(error) => return Answer::Broken(format!("{program}: {error}")),
        }
    };
    // a version fits into the pipe's buffer, so it can be read after the end
    let mut words = String::new();
    let _ = child.stdout.take().map(|out| out.take(4096).read_to_string(&mut words));
    match words.lines().next() {
        Some(line) if status.success() => Answer::Version(line.trim().to_owned()),
        _ => Answer::Broken(format!("{program} --version ends with {status}")),
    }
}
