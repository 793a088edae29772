//! The ranks of a run's learner: how the others are started or join, and how they get the model that rank 0 has read.
//!
//! Only rank 0 reads and writes files: base model, checkpoints, run folder. The others are told the configuration and get
//! tokenizer, weights and moments over the network, so that they need nothing but the program and a device.

use super::setup;
use crate::TrainError;
use crate::agent::Agent;
use crate::learner::LocalLearner;
use crate::learner::ranks::RankTensors;
use crate::learner::ranks::follower::follow;
use crate::memory::guarded;
use crate::run::stop::StopSwitch;
use arpo_core::config::{Config, LearnConfig, OptimiserConfig};
use arpo_model::checkpoint::Weights;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::config::ModelConfig;
use arpo_model::training::Learner as ModelLearner;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::nccl::{Connected, NcclTensors};
use arpo_model::training::ranks::HostTensors;
use arpo_model::training::shard;
use arpo_model::training::step::Updater;
use arpo_ranks::rendezvous::{self, Rendezvous};
use arpo_ranks::{Group, GroupOptions, RankError, token};
use arpo_torch::runtime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tch::{Device, Kind, Tensor};

/// The key of the address that ranks connect to.
const LISTEN_KEY: &str = "learn.listen";

/// The port for ranks of other machines, if none is configured.
const LISTEN_PORT: u16 = 7701;

/// Time for a rank's process to end by itself.
const END: Duration = Duration::from_secs(10);

/// Says which GPUs a process sees.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The ranks of a run, gathered.
pub(super) struct Gathered {
    pub(super) group: Group,
    pub(super) processes: Processes,
}

/// What another rank is told before it gets the weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelOfRun {
    config: Config,
    /// As `config.json` has them.
    dimensions: Value,
    /// Rank 0 computes in bf16, on a GPU.
    bf16: bool,
    /// The names of tokenizer, image processor and the like, which follow.
    side_files: Vec<String>,
    optimiser: OptimiserConfig,
    /// Updates that were skipped so far.
    skipped: u64,
    /// Where records of skipped updates go, if this rank has such a folder.
    incidents: PathBuf,
}

/// Checks what can be checked before anything is started.
pub(super) fn check(config: &Config) -> Result<(), TrainError> {
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
pub(super) fn gather(
    config: &Config,
    folder: &Path,
    stop: &StopSwitch,
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
        say(&format!("waiting for {missing} ranks: arpo train --join HOST:{}", dialled.port()));
    }
    let options =
        GroupOptions { deadline: Duration::from_secs_f64(learn.deadline_seconds), ..GroupOptions::default() };
    let limit = Duration::from_secs_f64(learn.start_seconds);
    let group = rendezvous.gather(learn.ranks, options, limit, &mut say, &mut || {
        if stop.requested() {
            return Err(RankError::Stopped);
        }
        processes.check()
    });
    Ok(Some(Gathered { group: group.map_err(stopped)?, processes }))
}

/// Connects the devices of a group: by NCCL where all ranks have GPUs and it, else through the memory of the hosts. Every
/// rank does this at the same time.
pub fn connect(group: Group, device: Device) -> Result<Box<dyn RankTensors>, TrainError> {
    if device == Device::Cpu {
        return Ok(Box::new(HostTensors::new(group)));
    }
    match NcclTensors::connect(group, device)? {
        Connected::With(tensors) => Ok(Box::new(tensors)),
        Connected::Without(group, reason) => {
            say(&format!(
                "slower than necessary: gradients go through the hosts' memory, not by NCCL: {reason}"
            ));
            Ok(Box::new(HostTensors::new(group)))
        }
    }
}

/// A line beside the progress of the run.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
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
        let deadline = Instant::now() + END;
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

/// What rank 0 gives the others.
pub struct Shared<'a> {
    /// The configuration of the run.
    pub config: &'a Config,
    /// The model's dimensions.
    pub dimensions: &'a ModelConfig,
    /// Tokenizer, image processor and the like, by file name.
    pub side_files: &'a BTreeMap<String, Vec<u8>>,
    /// The weights, with gradients.
    pub weights: &'a Weights,
    /// The moments of a checkpoint.
    pub restored: Option<&'a AdamW>,
    /// The optimiser's options.
    pub optimiser: OptimiserConfig,
    /// Updates that were skipped so far.
    pub skipped: u64,
    /// Where records of skipped updates go.
    pub incidents: PathBuf,
}

impl Shared<'_> {
    /// Gives the other ranks the model; returns rank 0's shard of the optimiser, and what connects the ranks' tensors.
    pub fn give(self, group: Group) -> Result<(AdamW, Box<dyn RankTensors>), TrainError> {
        let kind = self.weights.kind();
        let model = ModelOfRun {
            config: self.config.clone(),
            dimensions: self.dimensions.to_json(if kind == Kind::Float { "float32" } else { "bfloat16" }),
            bf16: kind == Kind::BFloat16,
            side_files: self.side_files.keys().cloned().collect(),
            optimiser: self.optimiser.clone(),
            skipped: self.skipped,
            incidents: self.incidents,
        };
        for rank in 1..group.size() {
            group.send(rank, &model, vec![])?;
            for bytes in self.side_files.values() {
                group.send(rank, &(), bytes.clone())?;
            }
        }
        let device = self.weights.iter().next().map_or(Device::Cpu, |(_, tensor)| tensor.device());
        let mut tensors = connect(group, device)?;
        shard::broadcast(self.weights, tensors.as_mut())?;
        let shard = AdamW::scattered(self.restored, self.weights, self.optimiser, tensors.as_mut())?;
        Ok((shard, tensors))
    }
}

/// Gives the other ranks the reference model, which they wait for if there is one.
pub fn give_reference(
    reference: Option<&ModelLearner>,
    tensors: &mut dyn RankTensors,
) -> Result<(), TrainError> {
    let Some(reference) = reference else { return Ok(()) };
    let group = tensors.group();
    for rank in 1..group.size() {
        group.send(rank, &(), vec![])?;
    }
    Ok(shard::broadcast(reference.model().weights(), tensors)?)
}

/// Joins the run of the rank 0 at `HOST:PORT` and learns with it until it is over; with more than one rank on this machine,
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
    let (sentinel, stop) = (group.sentinel(), stop.clone());
    std::thread::spawn(move || {
        while sentinel.wait(Duration::from_millis(200)) {
            if stop.requested() {
                sentinel.end("one of its ranks was asked to stop");
            }
        }
    });
    take_part(group)
}

/// Gets the model from rank 0 and follows it.
pub fn take_part(group: Group) -> Result<(), TrainError> {
    let sentinel = group.sentinel();
    let received = receive(group);
    match received {
        Ok((learner, tensors)) => follow(learner, tensors),
        Err(_) if sentinel.is_over() => Ok(()),
        Err(error) => Err(error),
    }
}

/// What this rank has before it gets the weights.
struct Prepared {
    config: Config,
    dimensions: ModelConfig,
    agent: Agent,
    weights: Weights,
    reserved: Option<Tensor>,
    optimiser: OptimiserConfig,
    skipped: u64,
    incidents: PathBuf,
}

/// The model that rank 0 gives, with this rank's shard of the optimiser. The other ranks are told what goes wrong.
fn receive(group: Group) -> Result<(LocalLearner, Box<dyn RankTensors>), TrainError> {
    const ADVICE: &str = "nothing else on the device";
    let prepared = guarded("loading the model", ADVICE, || prepare(&group))
        .inspect_err(|error| group.end(&error.to_string()))?;
    let device = prepared.weights.iter().next().map_or(Device::Cpu, |(_, tensor)| tensor.device());
    let mut tensors = connect(group, device)?;
    let learner = guarded("loading the model", ADVICE, || complete(prepared, tensors.as_mut()))
        .inspect_err(|error| tensors.abort(&error.to_string()))?;
    Ok((learner, tensors))
}

/// Everything but the values of weights and moments.
fn prepare(group: &Group) -> Result<Prepared, TrainError> {
    let ModelOfRun { mut config, dimensions, bf16, side_files: names, optimiser, skipped, incidents } =
        group.receive(0, None)?.fields()?;
    let mut side_files = BTreeMap::new();
    for name in names {
        side_files.insert(name, group.receive(0, None)?.payload);
    }
    // rank 0 has its own GPU; this process sees only those that are meant for it
    config.model.gpu = 0;
    let (kind, device) = setup::dtype_and_device(&config)?;
    if (kind == Kind::BFloat16) != bf16 {
        let device = format!("{device:?}").to_lowercase();
        return Err(TrainError::Configuration(format!(
            "this rank computes on {device}, unlike rank 0: expected GPUs on all ranks, or `model.device` = \"cpu\""
        )));
    }
    let dimensions = arpo_model::config::parse(dimensions).map_err(TrainError::Configuration)?;
    let agent = setup::agent(&config, &dimensions, &side_files)?;
    let reserved = setup::reserved_memory(&config, device)?;
    let buffer_of = |layout: &ParameterLayout| setup::gradient_buffer(&config, layout);
    let weights = Weights::zeros(&dimensions, kind, device).with_gradients(buffer_of);
    Ok(Prepared { config, dimensions, agent, weights, reserved, optimiser, skipped, incidents })
}

/// The learner with rank 0's weights and this rank's moments.
fn complete(prepared: Prepared, tensors: &mut dyn RankTensors) -> Result<LocalLearner, TrainError> {
    let Prepared { config, dimensions, agent, weights, reserved, optimiser, skipped, incidents } = prepared;
    shard::broadcast(&weights, tensors)?;
    let optimiser = AdamW::scattered(None, &weights, optimiser, tensors)?;
    let reference = if config.loss.kl_coefficient > 0.0 {
        tensors.group().receive(0, None)?;
        let (kind, device) = setup::dtype_and_device(&config)?;
        let weights = Weights::zeros(&dimensions, kind, device);
        shard::broadcast(&weights, tensors)?;
        Some(setup::learner(&config, &dimensions, weights, &agent))
    } else {
        None
    };
    let model = setup::learner(&config, &dimensions, weights, &agent);
    // only where rank 0's folder is, too: on its machine, or on a shared file system
    let here = incidents.parent().is_some_and(Path::is_dir);
    let incidents = here.then(|| incidents.join(format!("rank-{}", tensors.rank())));
    let updater = Updater::new(model, optimiser, incidents).with_skipped(skipped);
    Ok(LocalLearner::new(updater, agent.processor.clone(), config.model.micro_batch_tokens)
        .with_reference(reference)
        .reserving(reserved))
}
