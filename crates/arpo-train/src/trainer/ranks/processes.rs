//! The processes of a run's ranks: how they are started on this machine, or join from others, and how they come together.

use super::model::take_part;
use crate::TrainError;
use crate::run::notices::Notices;
use crate::run::stop::StopSwitch;
use crate::trainer::setup;
use arpo_core::config::{Config, LearnConfig};
use arpo_ranks::rendezvous::{self, Rendezvous};
use arpo_ranks::{Group, GroupOptions, RankError, Sentinel, token};
use arpo_torch::runtime;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tch::Device;

/// The key of the address that ranks connect to.
const LISTEN_KEY: &str = "learn.listen";

/// The port for ranks of other machines, if none is configured.
const LISTEN_PORT: u16 = 7701;

/// Time for a rank's process to end by itself.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Says which GPUs a process sees.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The ranks of a run, gathered.
pub(in crate::trainer) struct Gathered {
    /// Those that learn.
    pub(in crate::trainer) learners: Group,
    /// Rank 0 and those that only sample, if there are any.
    pub(in crate::trainer) samplers: Option<Group>,
    pub(in crate::trainer) processes: Processes,
}

/// Checks what can be checked before anything is started.
pub(in crate::trainer) fn check(config: &Config) -> Result<(), TrainError> {
    if config.learn.ranks == 1 {
        return Ok(());
    }
    let address = listen_address(&config.learn)?;
    token::check_address(LISTEN_KEY, address, &token::from_environment())
        .map_err(TrainError::Configuration)?;
    if let Device::Cuda(_) = setup::dtype_and_device(config)?.1 {
        visible_devices(config.learn.local_ranks())?;
    }
    Ok(())
}

/// Starts the other ranks of this machine and waits until all have come; `None` for a learner that is one process.
pub(in crate::trainer) fn gather(
    config: &Config,
    folder: &Path,
    stop: &StopSwitch,
    notices: &Notices,
) -> Result<Option<Gathered>, TrainError> {
    let learn = &config.learn;
    if learn.ranks == 1 {
        return Ok(None);
    }
    let address = listen_address(learn)?;
    let own = token::from_environment();
    // a token of its own where nobody needs to know it, because everybody on this machine can connect
    let token = if own.is_empty() && learn.local_ranks() == learn.ranks {
        token::random().map_err(|error| TrainError::Io(error.to_string()))?
    } else {
        own
    };
    let rendezvous = Rendezvous::listen(LISTEN_KEY, address, &token)?;
    let dialled = reachable(rendezvous.address());
    let devices = match setup::dtype_and_device(config)?.1 {
        Device::Cuda(_) => Some(visible_devices(learn.local_ranks())?),
        _ => None,
    };
    let mut processes = Processes::default();
    for number in 1..learn.local_ranks() {
        let device = devices.as_ref().map(|devices| devices[number].as_str());
        let arguments = ["train".into(), "--join".into(), dialled.to_string()];
        processes.start(&arguments, &token, number, device, Some(folder))?;
    }
    if learn.local_ranks() < learn.ranks {
        let missing = learn.ranks - learn.local_ranks();
        notices.say(&format!("waiting for {missing} ranks: arpo train --join HOST:{}", dialled.port()));
    }
    let options =
        GroupOptions { deadline: Duration::from_secs_f64(learn.deadline_seconds), ..GroupOptions::default() };
    let limit = Duration::from_secs_f64(learn.start_seconds);
    let others = [learn.learners() - 1, learn.samplers()];
    let mut news = |line: &str| notices.say(line);
    let groups = rendezvous.gather_groups(others, options, limit, &mut news, &mut || {
        if stop.requested() {
            return Err(RankError::Stopped);
        }
        processes.check()
    });
    let [learners, samplers] = groups.map_err(stopped)?;
    Ok(Some(Gathered { learners, samplers: learn.is_split().then_some(samplers), processes }))
}

fn stopped(error: RankError) -> TrainError {
    match error {
        RankError::Stopped => TrainError::Interrupted,
        error => error.into(),
    }
}

fn listen_address(learn: &LearnConfig) -> Result<SocketAddr, TrainError> {
    let text = learn.listen.as_str();
    if text.is_empty() {
        let everybody = learn.local_ranks() < learn.ranks;
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, LISTEN_PORT));
        return Ok(if everybody { any } else { SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) });
    }
    let wrong = |problem: String| {
        TrainError::Configuration(format!(
            "`{LISTEN_KEY}` = {text:?}: {problem}; expected an address of this machine, such as \"0.0.0.0:{LISTEN_PORT}\""
        ))
    };
    let mut addresses = text.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    addresses.next().ok_or_else(|| wrong("it has no address".into()))
}

/// An address that this machine reaches itself under.
fn reachable(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()))
    } else {
        address
    }
}

/// The GPUs of this machine's ranks, as `CUDA_VISIBLE_DEVICES` names them.
pub fn visible_devices(needed: usize) -> Result<Vec<String>, TrainError> {
    let count = runtime::usable_cuda_devices();
    if count < needed {
        return Err(TrainError::Configuration(format!(
            "{needed} ranks on this machine, which has {count} usable GPUs: expected one for each rank, with \
             `learn.local` for those that are here"
        )));
    }
    let named = std::env::var(VISIBLE).unwrap_or_default();
    let named: Vec<String> =
        named.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    Ok(if named.len() >= needed { named } else { (0..count).map(|number| number.to_string()).collect() })
}

/// Processes of other ranks on this machine; none outlives this.
#[derive(Debug, Default)]
pub struct Processes {
    children: Vec<(Child, Option<PathBuf>)>,
}

impl Processes {
    /// Starts this program with other arguments as the `number`-th process beside this one, on a device as
    /// `CUDA_VISIBLE_DEVICES` names it; what it says goes to a file in the run folder, or to this process's stderr.
    pub fn start(
        &mut self,
        arguments: &[String],
        token: &str,
        number: usize,
        device: Option<&str>,
        folder: Option<&Path>,
    ) -> Result<(), TrainError> {
        let failed = |error: io::Error| TrainError::Io(format!("a process for rank {number}: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let log = folder.map(|folder| folder.join("ranks").join(format!("process-{number}.log")));
        let output: Stdio = match &log {
            None => Stdio::inherit(),
            Some(path) => {
                fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
                OpenOptions::new().create(true).append(true).open(path).map_err(failed)?.into()
            }
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env(token::TOKEN_VARIABLE, token)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            // Ctrl-C in a terminal is for rank 0, which needs the others to save the run
            .process_group(0);
        if let Some(device) = device {
            command.env(VISIBLE, device);
        }
        self.children.push((command.spawn().map_err(failed)?, log));
        Ok(())
    }

    /// An error if one has ended.
    pub fn check(&mut self) -> Result<(), RankError> {
        for (number, (child, log)) in self.children.iter_mut().enumerate() {
            if let Ok(Some(status)) = child.try_wait() {
                let said = log.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
                let last = said.lines().last().unwrap_or("it said nothing");
                return Err(RankError::Rendezvous(format!(
                    "the process {} of this machine's ranks ended before the run began ({status}): {last}",
                    number + 1
                )));
            }
        }
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while Instant::now() < deadline
            && self.children.iter_mut().any(|(child, _)| matches!(child.try_wait(), Ok(None)))
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        for (child, _) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Joins the run of the rank 0 at `HOST:PORT` and works for it until it is over; with more than one rank on this machine,
/// each has a GPU of its own.
pub fn join(address: &str, ranks: usize, limit: Duration, stop: &StopSwitch) -> Result<(), TrainError> {
    let token = token::from_environment();
    let mut processes = Processes::default();
    if ranks > 1 {
        runtime::start().map_err(|error| TrainError::Configuration(error.to_string()))?;
        let on_gpus = runtime::usable_cuda_devices() > 0;
        let devices = if on_gpus { Some(visible_devices(ranks)?) } else { None };
        for number in 1..ranks {
            let device = devices.as_ref().map(|devices| devices[number].as_str());
            let arguments = ["train".into(), "--join".into(), address.into()];
            processes.start(&arguments, &token, number, device, None)?;
        }
    }
    let mut look = || if stop.requested() { Err(RankError::Stopped) } else { Ok(()) };
    let group = rendezvous::join(address, &token, limit, &mut look).map_err(stopped)?;
    end_on_stop(group.sentinel(), stop.clone())?;
    take_part(group)
}

/// Ends the group when this rank is asked to stop: it cannot leave without the others.
fn end_on_stop(sentinel: Sentinel, stop: StopSwitch) -> Result<(), TrainError> {
    let watch = move || {
        while sentinel.wait(Duration::from_millis(200)) {
            if stop.requested() {
                sentinel.end("asked to stop");
            }
        }
    };
    let started = std::thread::Builder::new().name("stop".into()).spawn(watch);
    started.map(drop).map_err(|error| TrainError::Io(format!("no thread to watch for a stop: {error}")))
}
