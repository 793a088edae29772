//! Workers as child processes: started here, started again when they die, ended with this process.
//!
//! A child's standard input is a pipe that only this process holds open. When it closes, because the run is over or because
//! this process was killed, the child removes its desktops and ends.

use super::{Placed, Placement};
use crate::hub::HubHandle;
use crate::protocol::token::TOKEN_VARIABLE;
use arpo_suite::SuiteError;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often children are looked at.
const WATCH: Duration = Duration::from_millis(50);

/// Wait before a child that died is started again; doubled each time it dies soon after.
const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(10);

/// A child that has lived for so long has not died soon after its start.
const SETTLED: Duration = Duration::from_mins(1);

/// After so many deaths in a row before any of them settled, children cannot work here.
const HOPELESS: u32 = 5;

/// Time for a child to remove its desktops in; then it is killed, and the next worker on this host removes them.
const END: Duration = Duration::from_secs(30);

/// Worker processes on this machine.
#[derive(Debug, Clone)]
pub struct Local {
    /// How many.
    pub workers: usize,
    /// Most desktops of each.
    pub desktops: usize,
    /// The program `arpo-worker`.
    pub program: PathBuf,
    /// The shared token.
    pub token: String,
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

    fn start(&self, address: SocketAddr) -> std::io::Result<Child> {
        Command::new(&self.program)
            .arg("--connect")
            .arg(address.to_string())
            .arg("--desktops")
            .arg(self.desktops.to_string())
            .arg("--until-input-ends")
            .env(TOKEN_VARIABLE, &self.token)
            .stdin(Stdio::piped())
            // results of this program go to its own output; what a worker says, it says to its trainer
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal is for the trainer, which ends its children when it is ready
            .process_group(0)
            .spawn()
    }
}

impl Placement for Local {
    fn place(&self, address: SocketAddr, hub: &HubHandle) -> Result<Box<dyn Placed>, SuiteError> {
        let failed = |error| SuiteError::Service(format!("{}: {error}", self.program.display()));
        let mut children = Children(vec![]);
        for _ in 0..self.workers {
            children.0.push(Slot::new(self.start(address).map_err(failed)?));
        }
        let state = Arc::new(State::default());
        let (local, hub, shared) = (self.clone(), hub.clone(), Arc::clone(&state));
        let watch = move || watch(children, &local, address, &hub, &shared);
        let thread = Builder::new().name("local workers".into()).spawn(watch).map_err(failed)?;
        Ok(Box::new(PlacedChildren { state, thread: Some(thread) }))
    }
}

#[derive(Default)]
struct State {
    ending: AtomicBool,
    problem: Mutex<Option<String>>,
}

struct PlacedChildren {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Placed for PlacedChildren {
    fn problem(&self) -> Option<String> {
        self.state.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for PlacedChildren {
    fn drop(&mut self) {
        self.state.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A child, or the time at which the next one is started in its place.
struct Slot {
    child: Option<Child>,
    since: Instant,
    deaths: u32,
}

impl Slot {
    fn new(child: Child) -> Self {
        Self { child: Some(child), since: Instant::now(), deaths: 0 }
    }

    /// The child is gone, or could not be started.
    fn died(&mut self) {
        self.deaths = if self.since.elapsed() > SETTLED { 1 } else { self.deaths + 1 };
        (self.child, self.since) = (None, Instant::now());
    }

    fn rest(&self) -> Duration {
        (FIRST_REST * (1 << self.deaths.min(10).saturating_sub(1))).min(LONGEST_REST)
    }
}

/// The children; none outlives this.
struct Children(Vec<Slot>);

fn watch(mut children: Children, local: &Local, address: SocketAddr, hub: &HubHandle, state: &State) {
    while !state.ending.load(Ordering::Relaxed) {
        for slot in &mut children.0 {
            let rest = slot.rest();
            match &mut slot.child {
                Some(child) => {
                    if let Ok(Some(status)) = child.try_wait() {
                        hub.process_ended(child.id());
                        slot.died();
                        if slot.deaths >= HOPELESS {
                            let program = local.program.display();
                            let problem = format!("{program} ends as soon as it is started: {status}");
                            *state.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
                        }
                    }
                }
                None if slot.since.elapsed() >= rest => match local.start(address) {
                    Ok(child) => (slot.child, slot.since) = (Some(child), Instant::now()),
                    Err(_) => slot.died(),
                },
                None => {}
            }
        }
        std::thread::sleep(WATCH);
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let mut left: Vec<Child> = self.0.iter_mut().filter_map(|slot| slot.child.take()).collect();
        for child in &mut left {
            drop(child.stdin.take());
        }
        let deadline = Instant::now() + END;
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
