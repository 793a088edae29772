//! `arpo cluster`: the workers of a running trainer.

use crate::{Failure, write_json};
use arpo_cluster::contact::{status_at, status_of_run};
use arpo_cluster::protocol::status::{ClusterStatus, DesktopStatus, HostStatus, WorkerStatus};
use arpo_cluster::protocol::token;
use clap::{Args, Subcommand};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

/// The arguments of `arpo cluster`.
#[derive(Args)]
pub(crate) struct ClusterArguments {
    #[command(subcommand)]
    topic: Topic,
}

#[derive(Subcommand)]
enum Topic {
    /// Show the hosts, workers and desktops of a running trainer, what each does, and failures
    Status(StatusArguments),
}

#[derive(Args)]
struct StatusArguments {
    /// The folder of the run
    #[arg(value_name = "FOLDER", required_unless_present = "connect")]
    folder: Option<PathBuf>,
    /// The trainer's address, from another machine; its token is read from the environment variable `ARPO_CLUSTER_TOKEN`
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "folder")]
    connect: Option<String>,
    /// List every desktop
    #[arg(long)]
    desktops: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ClusterArguments, out: &mut impl Write) -> Result<(), Failure> {
    let Topic::Status(arguments) = &arguments.topic;
    let status = match (&arguments.connect, &arguments.folder) {
        (Some(address), _) => status_at(address, &token::from_environment()),
        (None, Some(folder)) => status_of_run(folder),
        (None, None) => Err("expected the folder of a run, or --connect".into()),
    };
    let status = status.map_err(Failure::failed)?;
    if arguments.json {
        return write_json(&status, out);
    }
    print(&status, arguments.desktops, out)
}

fn print(status: &ClusterStatus, desktops: bool, out: &mut impl Write) -> Result<(), Failure> {
    let ClusterStatus { seconds, wanted, lost_workers, hosts, workers } = status;
    let connected: Vec<_> = workers.iter().filter(|worker| worker.lost_seconds.is_none()).collect();
    let room: usize = connected.iter().map(|worker| worker.capacity).sum();
    let running: usize = workers.iter().map(|worker| worker.desktops.len()).sum();
    writeln!(
        out,
        "{running} of {wanted} desktops on {} workers with room for {room}; {lost_workers} workers lost in {seconds:.0} s",
        connected.len()
    )?;
    for host in hosts {
        let ours: Vec<_> = workers.iter().filter(|worker| worker.host == host.host).collect();
        writeln!(out, "{}", host_line(host, &ours))?;
        for worker in ours {
            writeln!(out, "  {}", worker_line(worker))?;
            for desktop in worker.desktops.iter().filter(|_| desktops) {
                writeln!(out, "    {}", desktop_line(desktop))?;
            }
        }
    }
    Ok(())
}

fn host_line(status: &HostStatus, workers: &[&WorkerStatus]) -> String {
    let HostStatus { host, utilisation, failures, received, last_failure, quarantines, .. } = status;
    let count: usize = workers.iter().map(|worker| worker.desktops.len()).sum();
    let mut line = format!(
        "{host}: {} workers, {count} desktops, {:.0} % utilised, {:.0} MB of screens, {failures} failures",
        workers.len(),
        utilisation * 100.0,
        *received as f64 / 1e6
    );
    if let Some(seconds) = status.quarantined_seconds {
        let _ = write!(line, ", gets no desktops for {seconds:.0} s (quarantine {quarantines})");
    }
    if let Some(failure) = last_failure {
        let _ = write!(line, "; the last: {failure}");
    }
    line
}

/// What a worker's desktops are doing, by call.
fn worker_line(worker: &WorkerStatus) -> String {
    let WorkerStatus { process, capacity, lost_seconds, desktops, .. } = worker;
    let mut doing = BTreeMap::<&str, usize>::new();
    for desktop in desktops {
        let call = desktop.call.as_ref().map_or("waiting for the policy", |(call, _)| call.as_str());
        *doing.entry(call).or_default() += 1;
    }
    let doing: Vec<String> = doing.iter().map(|(call, count)| format!("{call} {count}")).collect();
    let doing = if doing.is_empty() { String::new() } else { format!(": {}", doing.join(", ")) };
    let lost = lost_seconds.map_or_else(String::new, |seconds| format!(", away for {seconds:.0} s"));
    format!("worker {process}: {} of {capacity} desktops{lost}{doing}", desktops.len())
}

fn desktop_line(DesktopStatus { slot, task, call }: &DesktopStatus) -> String {
    let task = task.as_deref().unwrap_or("no task yet");
    match call {
        Some((call, seconds)) => format!("desktop {slot}: {call} for {seconds:.1} s, {task}"),
        None => format!("desktop {slot}: waiting for the policy, {task}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_what_each_host_does() {
        let desktop = |slot, call: Option<&str>| DesktopStatus {
            slot,
            task: Some("open".into()),
            call: call.map(|call| (call.to_owned(), 1.25)),
        };
        let worker = |host: &str, lost_seconds, desktops| WorkerStatus {
            host: host.into(),
            process: 7,
            capacity: 4,
            lost_seconds,
            desktops,
        };
        let host = |host: &str, failures, quarantined_seconds| HostStatus {
            host: host.into(),
            utilisation: 0.5,
            failures,
            received: 3_000_000,
            last_failure: (failures > 0).then(|| "no image".into()),
            quarantines: 1,
            quarantined_seconds,
        };
        let status = ClusterStatus {
            seconds: 60.0,
            wanted: 6,
            lost_workers: 1,
            hosts: vec![host("a", 0, None), host("b", 2, Some(30.0))],
            workers: vec![
                worker("a", None, vec![desktop(0, Some("step")), desktop(1, None)]),
                worker("b", Some(3.0), vec![]),
            ],
        };
        let mut out = vec![];
        assert!(print(&status, true, &mut out).is_ok());
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "2 of 6 desktops on 1 workers with room for 4; 1 workers lost in 60 s\n\
             a: 1 workers, 2 desktops, 50 % utilised, 3 MB of screens, 0 failures\n  \
               worker 7: 2 of 4 desktops: step 1, waiting for the policy 1\n    \
                 desktop 0: step for 1.2 s, open\n    \
                 desktop 1: waiting for the policy, open\n\
             b: 1 workers, 0 desktops, 50 % utilised, 3 MB of screens, 2 failures, gets no desktops for 30 s (quarantine 1); the last: no image\n  \
               worker 7: 0 of 4 desktops, away for 3 s\n"
        );
    }
}
