//! `arpo doctor`: what this machine has, in plain words; what is missing, and the command that adds it.
//!
//! Nothing is believed from its mere presence: libtorch multiplies matrices, the Docker engine answers, programs
//! tell their version. Every question has a deadline.

mod docker;
mod programs;
mod torch;

use crate::config::Layers;
use crate::{Failure, memory, write_json};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What has not answered by then is broken. Ray needs seconds to import itself.
const DEADLINE: Duration = Duration::from_secs(20);

/// What `arpo doctor` takes.
#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// With any of these: also what memory the configuration needs, and whether the device has it
    #[command(flatten)]
    layers: Layers,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How it stands with one thing.
#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// There, and tried.
    Usable,
    /// Not there; not everybody needs it.
    Missing,
    /// There, and does not work.
    Broken,
}

/// One thing a run may need.
#[derive(Serialize)]
struct Finding {
    name: &'static str,
    status: Status,
    /// What is there, or why not.
    detail: String,
    /// What it is for, where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    needed_for: Option<&'static str>,
    /// What would add or mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

impl Finding {
    fn usable(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, status: Status::Usable, detail: detail.into(), needed_for: None, command: None }
    }

    fn missing(
        name: &'static str,
        detail: impl Into<String>,
        needed_for: &'static str,
        command: &str,
    ) -> Self {
        let (needed_for, command) = (Some(needed_for), Some(command.to_owned()));
        Self { name, status: Status::Missing, detail: detail.into(), needed_for, command }
    }

    fn broken(
        name: &'static str,
        detail: impl Into<String>,
        needed_for: &'static str,
        command: &str,
    ) -> Self {
        Self { status: Status::Broken, ..Self::missing(name, detail, needed_for, command) }
    }
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    /// The embedded default can run.
    ready: bool,
    findings: Vec<Finding>,
    /// What a preset needs of the device, in lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
}

pub(crate) fn run(arguments: &DoctorArguments, out: &mut impl Write) -> Result<(), Failure> {
    let layers = &arguments.layers;
    let config = if layers.is_empty() { None } else { Some(layers.resolve()?) };
    let mut report = examine();
    let memory = config.as_ref().filter(|_| report.ready).map(memory::of);
    report.memory = config.as_ref().filter(|_| report.ready).map(memory::report);
    let fits = memory.is_none_or(|memory| memory.problem.is_none());
    if arguments.json {
        write_json(&report, out)?;
    } else {
        print(&report, out)?;
    }
    if report.ready && fits { Ok(()) } else { Err(Failure::Reported) }
}

fn examine() -> Report {
    let (torch, ready) = torch::libtorch();
    let findings = vec![
        torch,
        programs::processor(),
        within_deadline(torch::CUDA, torch::cuda),
        within_deadline(docker::NAME, docker::engine),
        within_deadline(programs::CHROMIUM, programs::chromium),
        within_deadline(programs::RAY, programs::ray),
    ];
    Report { version: env!("CARGO_PKG_VERSION"), ready, findings, memory: None }
}

/// Asks on a thread of its own, which is left behind if no answer comes: drivers, sockets and name servers can hang
/// in ways that no timeout of theirs covers.
fn within_deadline(name: &'static str, question: impl FnOnce() -> Finding + Send + 'static) -> Finding {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(question()));
    receiver.recv_timeout(DEADLINE).unwrap_or_else(|_| Finding {
        name,
        status: Status::Broken,
        detail: format!("no answer after {} s", DEADLINE.as_secs()),
        needed_for: None,
        command: None,
    })
}

fn print(report: &Report, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "arpo {}", report.version)?;
    for finding in &report.findings {
        let mark = match finding.status {
            Status::Usable => "ok",
            Status::Missing => "missing",
            Status::Broken => "broken",
        };
        writeln!(out, "  {mark:<8} {:<10} {}", finding.name, finding.detail)?;
        if let Some(needed_for) = finding.needed_for {
            writeln!(out, "  {:<19} needed for {needed_for}", "")?;
        }
        if let Some(command) = &finding.command {
            writeln!(out, "  {:<19} to add it: {command}", "")?;
        }
    }
    let verdict = if report.ready {
        "ready: this machine can run the embedded default"
    } else {
        "not ready: the embedded default needs libtorch"
    };
    writeln!(out, "{verdict}")?;
    for line in report.memory.iter().flat_map(|memory| memory.lines()) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
