//! Checks of the machine and of programs that may be installed.

use super::Finding;
use std::io::ErrorKind;
use std::process::{Command, Output, Stdio};
use std::{fs, thread};

/// Names of the findings.
pub(super) const RAY: &str = "Ray";
pub(super) const TESSERACT: &str = "tesseract";

/// Cores and memory.
pub(super) fn processor() -> Finding {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let plural = if cores == 1 { "" } else { "s" };
    let memory = memory_gib().map(|gib| format!(", {gib:.0} GiB of memory")).unwrap_or_default();
    Finding::usable("processor", format!("{cores} core{plural}{memory}"))
}

/// The cluster engine.
pub(super) fn ray() -> Finding {
    let (name, needed_for) = (RAY, "spreading a run over several machines");
    // on Debian, pip installs only into virtual environments
    let command = "python3 -m venv ~/ray && ~/ray/bin/pip install 'ray[default]' && PATH=~/ray/bin:$PATH";
    match version("ray") {
        VersionCheck::Absent => Finding::missing(name, "no ray on the PATH", needed_for, command),
        VersionCheck::Version(version) => Finding::usable(name, version),
        VersionCheck::Broken(problem) => Finding::broken(name, problem, needed_for, command),
    }
}

/// The reader of images.
pub(super) fn tesseract() -> Finding {
    let needed_for = "judging the OSWorld task that reads the text of an image";
    let command = format!("sudo apt-get install {}", arpo_osworld::host::TESSERACT.package);
    match version(arpo_osworld::host::TESSERACT.name) {
        VersionCheck::Absent => Finding::missing(TESSERACT, "no tesseract on the PATH", needed_for, &command),
        VersionCheck::Version(_) if !arpo_osworld::host::TESSERACT.is_installed() => {
            let problem = "no English: `tesseract --list-langs` does not print eng";
            Finding::broken(TESSERACT, problem, needed_for, &command)
        }
        VersionCheck::Version(version) => Finding::usable(TESSERACT, version),
        VersionCheck::Broken(problem) => Finding::broken(TESSERACT, problem, needed_for, &command),
    }
}

fn memory_gib() -> Option<f64> {
    let table = fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / f64::from(1 << 20))
}

enum VersionCheck {
    Absent,
    Version(String),
    Broken(String),
}

/// Runs `program --version` and returns the first line.
fn version(program: &str) -> VersionCheck {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null());
    // the caller's deadline covers a program that does not end
    match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => VersionCheck::Absent,
        Err(error) => VersionCheck::Broken(format!("{program} does not start: {error}")),
        Ok(Output { status, stdout, .. }) => match String::from_utf8_lossy(&stdout).lines().next() {
            Some(line) if status.success() => VersionCheck::Version(line.trim().to_owned()),
            _ => VersionCheck::Broken(format!("{program} --version ends with {status}")),
        },
    }
}
