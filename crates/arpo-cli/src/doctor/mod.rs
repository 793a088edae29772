//! `arpo doctor`: what this machine has, what is missing, and the command that installs it.
//!
//! Everything is tested, not just located: libtorch multiplies matrices, the Docker engine responds, programs print their
//! version. Every check has a deadline.

mod cluster;
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

/// A check that takes longer counts as broken. Ray needs seconds to import itself.
const DEADLINE: Duration = Duration::from_secs(20);

/// The arguments of `arpo doctor`.
#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// With any of these: also print the memory plan of the configuration, and whether it fits; with --cluster: start its
    /// workers, ask every host for its version, Docker and image, and end them
    #[command(flatten)]
    layers: Layers,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The status of a requirement.
#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// Present, and tested.
    Usable,
    /// Not present; not everybody needs it.
    Missing,
    /// Present, but does not work.
    Broken,
}

/// One requirement that a run may have.
#[derive(Serialize)]
struct Finding {
    name: &'static str,
    status: Status,
    /// What was found, or the problem.
    detail: String,
    /// What it is for, where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    needed_for: Option<&'static str>,
    /// The command that installs or repairs it.
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
    /// The default preset can run.
    ready: bool,
    findings: Vec<Finding>,
    /// The memory plan of a preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
}

pub(crate) fn run(arguments: &DoctorArguments, out: &mut impl Write) -> Result<(), Failure> {
    let layers = &arguments.layers;
    let config = if layers.is_empty() { None } else { Some(layers.resolve()?) };
    let mut report = inspect();
    let clustered = config.as_ref().map(cluster::check).unwrap_or_default();
    let hosts_work = clustered.iter().all(|finding| finding.status == Status::Usable);
    report.findings.extend(clustered);
    let memory = config.as_ref().filter(|_| report.ready).map(memory::of);
    report.memory = config.as_ref().filter(|_| report.ready).map(memory::report);
    let fits = memory.is_none_or(|memory| memory.problem.is_none());
    if arguments.json {
        write_json(&report, out)?;
    } else {
        print(&report, out)?;
    }
    if report.ready && fits && hosts_work { Ok(()) } else { Err(Failure::Reported) }
}

fn inspect() -> Report {
    let (torch, ready) = torch::libtorch();
    let findings = vec![
        torch,
        programs::processor(),
        within_deadline(torch::CUDA, torch::cuda),
        within_deadline(docker::NAME, docker::engine),
        within_deadline(programs::RAY, programs::ray),
        within_deadline(programs::TESSERACT, programs::tesseract),
    ];
    Report { version: env!("CARGO_PKG_VERSION"), ready, findings, memory: None }
}

/// Runs a check on its own thread, which is abandoned after the deadline: drivers, sockets and name servers can hang in
/// ways that no timeout of theirs covers.
fn within_deadline(name: &'static str, check: impl FnOnce() -> Finding + Send + 'static) -> Finding {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(check()));
    receiver.recv_timeout(DEADLINE).unwrap_or_else(|_| Finding {
        name,
        status: Status::Broken,
        detail: format!("no response after {} s", DEADLINE.as_secs()),
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
            writeln!(out, "  {:<19} to install it: {command}", "")?;
        }
    }
    let verdict = if report.ready {
        "ready: this machine can run the default preset"
    } else {
        "not ready: the default preset needs libtorch"
    };
    writeln!(out, "{verdict}")?;
    for line in report.memory.iter().flat_map(|memory| memory.lines()) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
