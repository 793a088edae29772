//! Workers as child processes: started here, started again when they die, ended with this process.
//!
//! A child's standard input is a pipe that only this process holds open. When it closes, because the run is over or because
//! this process was killed, the child removes its desktops and ends. What it says goes to a log file.

use super::supervision::{Outlook, Supervised, SupervisorThread};
use super::{Placed, Placement};
use crate::hub::HubHandle;
use crate::protocol::token::TOKEN_VARIABLE;
use arpo_suite::SuiteError;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often children are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Wait before a child that died is started again; doubled each time it dies soon after.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// A child that has lived for so long has not died soon after its start.
const SETTLED: Duration = Duration::from_mins(1);

/// After so many deaths in a row before any of them settled, children cannot work here.
const HOPELESS: u32 = 5;

/// Time for a child to remove its desktops in; then it is killed, and the next worker on this host removes them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Worker processes on this machine.
#[derive(Debug, Clone)]
pub struct Local {
    /// How many.
    pub workers: usize,
    /// Most desktops of each.
    pub desktops: usize,
    /// The program `arpo-worker`, or one with the same options.
    pub program: PathBuf,
    /// Arguments before those options.
    pub arguments: Vec<String>,
    /// The shared token.
    pub token: String,
    /// The folder for the files `worker-0.log` and so on; `None`: what workers say is lost.
    pub logs: Option<PathBuf>,
}

impl Local {
    /// The program `arpo-worker` in the folder of this program.
    pub fn program_beside_this() -> Result<PathBuf, SuiteError> {
        let this = std::env::current_exe().map_err(|error| SuiteError::Service(error.to_string()))?;
        let program = this.parent().unwrap_or(Path::new(".")).join("arpo-worker");
        if program.is_file() {
            return Ok(program);
        }
        Err(SuiteError::Service(format!(
            "`cluster.workers` needs the program {}, which does not exist: `./x build` builds it",
            program.display()
        )))
    }

    fn start(&self, number: usize, address: SocketAddr) -> io::Result<Child> {
        Command::new(&self.program)
            .args(&self.arguments)
            .arg("--connect")
            .arg(address.to_string())
            .arg("--desktops")
            .arg(self.desktops.to_string())
            .arg("--until-input-ends")
            .env(TOKEN_VARIABLE, &self.token)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(self.log(number)?)
            // Ctrl-C in a terminal is for the trainer, which ends its children when it is ready
            .process_group(0)
            .spawn()
    }

    /// Where a worker writes to: after what those before it wrote.
    fn log(&self, number: usize) -> io::Result<Stdio> {
        let Some(folder) = &self.logs else { return Ok(Stdio::null()) };
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("worker-{number}.log"));
        Ok(OpenOptions::new().create(true).append(true).open(path)?.into())
    }
}

impl Placement for Local {
    fn place(&self, address: SocketAddr, hub: &HubHandle) -> Result<Box<dyn Placed>, SuiteError> {
        let failed = |error| SuiteError::Service(format!("{}: {error}", self.program.display()));
        let mut children = Children { slots: vec![], local: self.clone(), address, hub: hub.clone() };
        for number in 0..self.workers {
            children.slots.push(Slot::new(self.start(number, address).map_err(failed)?));
        }
        Ok(Box::new(SupervisorThread::start("local workers", POLL_INTERVAL, children).map_err(failed)?))
    }
}

/// A child, or the time at which the next one is started in its place.
struct Slot {
    child: Option<Child>,
    since: Instant,
    deaths: u32,
    /// Why the last one died.
    why: String,
}

impl Slot {
    fn new(child: Child) -> Self {
        Self { child: Some(child), since: Instant::now(), deaths: 0, why: String::new() }
    }

    /// The child is gone, or could not be started.
    fn died(&mut self, why: String) {
        self.why = why;
        self.deaths = if self.since.elapsed() > SETTLED { 1 } else { self.deaths + 1 };
        (self.child, self.since) = (None, Instant::now());
    }

    fn backoff(&self) -> Duration {
        (INITIAL_BACKOFF * (1 << self.deaths.min(10).saturating_sub(1))).min(MAX_BACKOFF)
    }
}

/// The children; none outlives this.
struct Children {
    slots: Vec<Slot>,
    local: Local,
    address: SocketAddr,
    hub: HubHandle,
}

impl Supervised for Children {
    fn supervise(&mut self) -> Outlook {
        let Self { slots, local, address, hub } = self;
        let mut problem = None;
        for (number, slot) in slots.iter_mut().enumerate() {
            let backoff = slot.backoff();
            match &mut slot.child {
                Some(child) => {
                    if let Ok(Some(status)) = child.try_wait() {
                        hub.process_ended(child.id());
                        slot.died(status.to_string());
                    }
                }
                None if slot.since.elapsed() >= backoff => match local.start(number, *address) {
                    Ok(child) => (slot.child, slot.since) = (Some(child), Instant::now()),
                    Err(error) => slot.died(error.to_string()),
                },
                None => {}
            }
            if slot.deaths >= HOPELESS {
                let (program, why) = (local.program.display(), &slot.why);
                problem = Some(format!("{program} ends as soon as it is started: {why}"));
            }
        }
        Outlook { workers: slots.len(), problem }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let mut left: Vec<Child> = self.slots.iter_mut().filter_map(|slot| slot.child.take()).collect();
        for child in &mut left {
            drop(child.stdin.take());
        }
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while !left.is_empty() && Instant::now() < deadline {
            left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            std::thread::sleep(Duration::from_millis(5));
        }
        for child in &mut left {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
