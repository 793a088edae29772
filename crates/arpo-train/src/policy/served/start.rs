//! Servers that this program starts: one for each GPU, started again when they die, ended with the run.
//!
//! A server runs under a shell that holds a leash: its standard input, a pipe that only this program keeps open. When the
//! pipe closes, because the run is over or because this program was killed, the shell ends the server and everything that
//! the server has started.

use super::fleet::Fleet;
use crate::TrainError;
use crate::run::notices::Notices;
use arpo_core::config::{RolloutEngine, has_option};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often a server is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Wait before a server that died is started again.
const RESTART_DELAY: Duration = Duration::from_secs(2);

/// After so many deaths in a row without ever having had the weights, a server cannot run here.
const HOPELESS: u32 = 3;

/// Time for a server to end in, a second more than its shell gives it; then its whole process group is killed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(6);

/// Time for the killed processes to go; one that waits for a driver may take longer, and is left to the system.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The shell around a server; its process group is its own. `read` returns when the leash is let go.
const LEASH: &str = r#"exec 3<&0 </dev/null
(exec 3<&-; exec env COMMAND "$@") &
server=$!
(
    read -r _ <&3
    kill -s TERM "$server" 2>/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.25
    done
    kill -s KILL -- -$$
) &
wait "$server"
"#;

/// How servers are started.
#[derive(Debug, Clone)]
pub(super) struct StartOptions {
    pub(super) engine: RolloutEngine,
    /// The command, as the user gives it.
    pub(super) command: String,
    /// One server each; empty for one server without a GPU of its own.
    pub(super) gpus: Vec<String>,
    /// For the logs.
    pub(super) folder: PathBuf,
    /// Most images of a request.
    pub(super) images: usize,
    /// The type of the learner's weights, as the server's option names it.
    pub(super) dtype: &'static str,
}

/// Where the servers will be.
pub(super) fn addresses(options: &StartOptions) -> Result<Vec<String>, TrainError> {
    let count = options.gpus.len().max(1);
    // all at once, so that no two are the same
    let ports = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>();
    let ports =
        ports.and_then(|ports| ports.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>());
    let ports = ports.map_err(|error| TrainError::Io(format!("no port for a server: {error}")))?;
    Ok(ports.iter().map(|address| format!("http://{address}")).collect())
}

/// Started servers. Dropping it ends them; the fleet must have been closed before.
#[derive(Debug)]
pub(super) struct StartedServers(Vec<JoinHandle<()>>);

impl StartedServers {
    /// Starts the servers of a fleet, as soon as it has weights for them.
    pub(super) fn start(
        options: &StartOptions,
        fleet: &Arc<Fleet>,
        notices: &Notices,
    ) -> Result<Self, TrainError> {
        let mut started = Self(vec![]);
        for server in 0..fleet.len() {
            let (options, fleet, notices) = (options.clone(), Arc::clone(fleet), notices.clone());
            let watch = move || Watch { options, fleet, server, notices }.run();
            let thread = Builder::new().name(format!("server {server}")).spawn(watch);
            started
                .0
                .push(thread.map_err(|error| TrainError::Io(format!("no thread for a server: {error}")))?);
        }
        Ok(started)
    }
}

impl Drop for StartedServers {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Watch {
    options: StartOptions,
    fleet: Arc<Fleet>,
    server: usize,
    notices: Notices,
}

impl Watch {
    fn run(&self) {
        let address = self.fleet.address(self.server);
        let mut deaths = 0;
        while !self.fleet.is_closing() {
            let Some(target) = self.fleet.starts(self.server) else {
                std::thread::sleep(POLL_INTERVAL);
                continue;
            };
            let log = self.options.folder.join(format!("server-{}.log", self.server));
            let ended = match self.spawn(&address, &target.folder, &log) {
                Ok(child) => self.watch(child),
                Err(error) => Some(error.to_string()),
            };
            let Some(ended) = ended else { return };
            deaths = if self.fleet.has_been_ready(self.server) { 1 } else { deaths + 1 };
            let reason =
                format!("the started server ended ({ended}): {}; {}", last_line(&log), log.display());
            self.notices.say(&format!("server {address}: {reason}"));
            if deaths >= HOPELESS {
                self.fleet.give_up_on(self.server, reason);
                return;
            }
            let until = Instant::now() + RESTART_DELAY;
            while Instant::now() < until && !self.fleet.is_closing() {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    fn spawn(&self, address: &str, model: &Path, log: &Path) -> std::io::Result<Child> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(LEASH.replace("COMMAND", &self.options.command))
            .arg("server")
            .args(arguments(&self.options, address, model))
            .env("VLLM_SERVER_DEV_MODE", "1")
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C in a terminal is for this program, which ends its servers when it is ready
            .process_group(0);
        if let Some(gpu) = self.options.gpus.get(self.server) {
            command.env("CUDA_VISIBLE_DEVICES", gpu);
        }
        command.spawn()
    }

    /// How a server ended; `None` if it was ended because the run is over.
    fn watch(&self, mut child: Child) -> Option<String> {
        let leash = child.stdin.take();
        let status = loop {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => break Some(status.to_string()),
                Err(error) => break Some(error.to_string()),
            }
            if self.fleet.is_closing() {
                break None;
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        // also ends what a dead server left behind
        drop(leash);
        if !ends_within(&mut child, SHUTDOWN_TIMEOUT) {
            kill_group(&child);
            if !ends_within(&mut child, KILL_TIMEOUT) {
                let (address, id) = (self.fleet.address(self.server), child.id());
                self.notices.say(&format!("server {address}: process {id} was killed and has not ended"));
            }
        }
        status
    }
}

fn ends_within(child: &mut Child, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    loop {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills a process and everything in its group: it has one of its own.
fn kill_group(child: &Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // an error means that nothing is left of it
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// What is added to the user's command. An option that the command has already is left out; the model comes last, where no
/// option before it takes it for its value.
fn arguments(options: &StartOptions, address: &str, model: &Path) -> Vec<String> {
    let (host, port) =
        address.trim_start_matches("http://").rsplit_once(':').unwrap_or(("127.0.0.1", "8000"));
    let images = format!("{{\"image\": {}}}", options.images);
    let (given, model) = (&options.command, model.to_string_lossy().into_owned());
    let wanted: &[(&str, Option<&str>)] = match options.engine {
        RolloutEngine::Sglang => {
            &[("--dtype", Some(options.dtype)), ("--host", Some(host)), ("--port", Some(port))]
        }
        _ => &[
            ("--enable-scale-out", None),
            ("--disable-uvicorn-access-log", None),
            ("--logprobs-mode", Some("processed_logprobs")),
            ("--limit-mm-per-prompt", Some(&images)),
            ("--dtype", Some(options.dtype)),
            ("--host", Some(host)),
            ("--port", Some(port)),
        ],
    };
    let mut arguments = vec![];
    for (name, value) in wanted {
        if !has_option(given, name) {
            arguments.push((*name).to_owned());
            arguments.extend(value.map(str::to_owned));
        }
    }
    match options.engine {
        RolloutEngine::Sglang => arguments.extend(["--model-path".into(), model]),
        _ => arguments.push(model),
    }
    arguments
}

fn last_line(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let mut lines = text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    lines.next().map_or_else(|| "its log is empty".into(), |line| line.chars().take(300).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(engine: RolloutEngine, command: &str) -> StartOptions {
        StartOptions {
            engine,
            command: command.into(),
            gpus: vec![],
            folder: PathBuf::new(),
            images: 12,
            dtype: "float32",
        }
    }

    #[test]
    fn a_command_gets_what_training_needs_and_keeps_what_it_has() {
        let arguments = |engine, command| {
            arguments(&options(engine, command), "http://127.0.0.1:9", Path::new("/w/version-000001"))
                .join(" ")
        };
        assert_eq!(
            arguments(
                RolloutEngine::Vllm,
                "vllm serve --dtype=bfloat16 --port-range 1 --logprobs-mode raw_logprobs"
            ),
            "--enable-scale-out --disable-uvicorn-access-log --limit-mm-per-prompt {\"image\": 12} --host 127.0.0.1 \
             --port 9 /w/version-000001"
        );
        assert_eq!(
            arguments(RolloutEngine::Sglang, "python -m sglang.launch_server"),
            "--dtype float32 --host 127.0.0.1 --port 9 --model-path /w/version-000001"
        );
    }

    #[test]
    fn every_gpu_has_a_server_of_its_own() {
        let with = |gpus: &[&str]| {
            let gpus = gpus.iter().map(|&gpu| gpu.into()).collect();
            let mut found = addresses(&StartOptions { gpus, ..options(RolloutEngine::Vllm, "x") }).unwrap();
            found.sort();
            found.dedup();
            found.len()
        };
        assert_eq!((with(&[]), with(&["0"]), with(&["0", "1", "2"])), (1, 1, 3));
    }
}
