//! What another rank gets from rank 0, and what it makes of that: the learner that it computes its share of every update
//! with, and on the same weights the engine that it samples with; or one of the two, if some ranks learn and the others sample.

use super::all_sample;
use crate::TrainError;
use crate::agent::Agent;
use crate::learner::LocalLearner;
use crate::learner::ranks::follower::follow;
use crate::learner::ranks::{RankTensors, SharedRanks};
use crate::memory::guarded;
use crate::memory_plan::{MemoryPlan, Work};
use crate::policy::EnginePolicy;
use crate::run::notices::Notices;
use crate::trainer::setup;
use arpo_core::config::{Config, OptimiserConfig};
use arpo_core::trajectory::PolicyVersion;
use arpo_model::checkpoint::Weights;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::config::ModelConfig;
use arpo_model::training::TrainableModel;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::nccl::{Connected, NcclTensors};
use arpo_model::training::ranks::HostTensors;
use arpo_model::training::shard;
use arpo_model::training::step::Updater;
use arpo_ranks::Group;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// What another rank receives before the weights.
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
    /// `None` for a rank that only samples.
    learning: Option<Learning>,
}

/// What only a rank that learns receives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Learning {
    optimiser: OptimiserConfig,
    /// Updates that were skipped so far.
    skipped: u64,
    /// Where records of skipped updates go, if this rank has such a folder.
    incidents: PathBuf,
}

/// Connects the devices of a group: by NCCL where all ranks have GPUs and it, else through the memory of the hosts. Every
/// rank does this at the same time.
pub fn connect(group: Group, device: Device, notices: &Notices) -> Result<Box<dyn RankTensors>, TrainError> {
    if device == Device::Cpu {
        return Ok(Box::new(HostTensors::new(group)));
    }
    match NcclTensors::connect(group, device)? {
        Connected::With(tensors) => Ok(Box::new(tensors)),
        Connected::Without(group, reason) => {
            notices.say(&format!(
                "slower than necessary: gradients go through the hosts' memory, not by NCCL: {reason}"
            ));
            Ok(Box::new(HostTensors::new(group)))
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
    /// Where lines for the user go.
    pub notices: &'a Notices,
}

impl Shared<'_> {
    /// Gives the other ranks that learn the model; returns rank 0's shard of the optimiser, and what connects the ranks'
    /// tensors.
    pub fn give(&self, group: Group) -> Result<(AdamW, Box<dyn RankTensors>), TrainError> {
        let learning = Learning {
            optimiser: self.optimiser.clone(),
            skipped: self.skipped,
            incidents: self.incidents.clone(),
        };
        let mut tensors = self.give_weights(group, Some(learning))?;
        let shard = AdamW::scattered(self.restored, self.weights, self.optimiser.clone(), tensors.as_mut())?;
        Ok((shard, tensors))
    }

    /// Gives ranks that only sample the model; returns what connects the ranks' tensors.
    pub fn give_samplers(&self, group: Group) -> Result<Box<dyn RankTensors>, TrainError> {
        self.give_weights(group, None)
    }

    fn give_weights(
        &self,
        group: Group,
        learning: Option<Learning>,
    ) -> Result<Box<dyn RankTensors>, TrainError> {
        let kind = self.weights.kind();
        let model = ModelOfRun {
            config: self.config.clone(),
            dimensions: self.dimensions.to_json(if kind == Kind::Float { "float32" } else { "bfloat16" }),
            bf16: kind == Kind::BFloat16,
            side_files: self.side_files.keys().cloned().collect(),
            learning,
        };
        for rank in 1..group.size() {
            group.send(rank, &model, vec![])?;
            for bytes in self.side_files.values() {
                group.send(rank, &(), bytes.clone())?;
            }
        }
        let device = self.weights.iter().next().map_or(Device::Cpu, |(_, tensor)| tensor.device());
        let mut tensors = connect(group, device, self.notices)?;
        shard::broadcast(self.weights, tensors.as_mut())?;
        Ok(tensors)
    }
}

/// Gives the other ranks the reference model, which they wait for if there is one.
pub fn give_reference(reference: Option<&TrainableModel>, ranks: &SharedRanks) -> Result<(), TrainError> {
    let Some(reference) = reference else { return Ok(()) };
    let mut ranks = ranks.lock();
    let group = ranks.tensors.group();
    for rank in 1..group.size() {
        group.send(rank, &(), vec![])?;
    }
    Ok(shard::broadcast(reference.model().weights(), ranks.tensors.as_mut())?)
}

/// Gets the model from rank 0 and follows it.
pub fn take_part(group: Group) -> Result<(), TrainError> {
    let sentinel = group.sentinel();
    let received = receive(group);
    match received {
        Ok((Received { learner, sampler, reserved }, tensors)) => {
            let followed = follow(learner, sampler, tensors);
            drop(reserved);
            followed
        }
        Err(_) if sentinel.is_over() => Ok(()),
        Err(error) => Err(error),
    }
}

/// What this rank has before it gets the weights.
struct Prepared {
    config: Config,
    dimensions: ModelConfig,
    agent: Arc<Agent>,
    weights: Weights,
    /// The plan of this rank's own device, if it samples.
    plan: Option<MemoryPlan>,
    reserved: Option<Tensor>,
    learning: Option<Learning>,
}

/// What this rank learns and samples with.
struct Received {
    /// `None` if this rank only samples.
    learner: Option<LocalLearner>,
    /// On the learner's own weights, if there is a learner; `None` if this rank only learns.
    sampler: Option<EnginePolicy>,
    /// Device memory that must stay unused.
    reserved: Option<Tensor>,
}

/// The model that rank 0 gives, with this rank's shard of the optimiser. The other ranks are told what goes wrong.
fn receive(group: Group) -> Result<(Received, Box<dyn RankTensors>), TrainError> {
    const ADVICE: &str = "nothing else on the device";
    let prepared = guarded("loading the model", ADVICE, || prepare(&group))
        .inspect_err(|error| group.end(&error.to_string()))?;
    let device = prepared.weights.iter().next().map_or(Device::Cpu, |(_, tensor)| tensor.device());
    // no bars here: this rank's stderr is a file, or its own terminal
    let mut tensors = connect(group, device, &Notices::default())?;
    let received = guarded("loading the model", ADVICE, || complete(prepared, tensors.as_mut()))
        .inspect_err(|error| tensors.abort(&error.to_string()))?;
    Ok((received, tensors))
}

/// Everything but the values of weights and moments.
fn prepare(group: &Group) -> Result<Prepared, TrainError> {
    let ModelOfRun { mut config, dimensions, bf16, side_files: names, learning } =
        group.receive(0, None)?.fields()?;
    let mut side_files = BTreeMap::new();
    for name in names {
        side_files.insert(name, group.receive(0, None)?.payload);
    }
    // rank 0 has its own GPU; this process sees only those that are meant for it
    config.model.gpu = 0;
    if let Some(learning) = &learning {
        // where rank 0's plan has put them
        config.optimiser.moments = learning.optimiser.moments;
    }
    let (kind, device) = setup::dtype_and_device(&config)?;
    if (kind == Kind::BFloat16) != bf16 {
        let device = format!("{device:?}").to_lowercase();
        return Err(TrainError::Configuration(format!(
            "this rank computes on {device}, unlike rank 0: expected GPUs on all ranks, or `model.device` = \"cpu\""
        )));
    }
    let dimensions = arpo_model::config::parse(dimensions).map_err(TrainError::Configuration)?;
    let agent = Arc::new(setup::agent(&config, &dimensions, &side_files)?);
    let work = match &learning {
        None => Some(Work::Sampling),
        Some(_) if all_sample(&config) => Some(Work::Training),
        Some(_) => None,
    };
    let plan = work.map(|work| setup::checked_memory(&config, &dimensions, work)).transpose()?;
    let reserved = setup::reserved_memory(&config, device)?;
    let buffer_of = |layout: &ParameterLayout| setup::gradient_buffer(&config, layout);
    let weights = Weights::zeros(&dimensions, kind, device);
    let weights = if learning.is_some() { weights.with_gradients(buffer_of) } else { weights };
    Ok(Prepared { config, dimensions, agent, weights, plan, reserved, learning })
}

/// The learner with rank 0's weights and this rank's moments, and what it samples with.
fn complete(prepared: Prepared, tensors: &mut dyn RankTensors) -> Result<Received, TrainError> {
    let Prepared { config, dimensions, agent, weights, plan, reserved, learning } = prepared;
    shard::broadcast(&weights, tensors)?;
    // rank 0 says the version before it asks for anything
    let version = PolicyVersion::default();
    let sampler =
        plan.map(|plan| setup::policy_within(&plan, &config, &dimensions, &weights, &agent, version));
    let Some(Learning { optimiser, skipped, incidents }) = learning else {
        return Ok(Received { learner: None, sampler, reserved });
    };
    let optimiser = AdamW::scattered(None, &weights, optimiser, tensors)?;
    let reference = if config.loss.kl_coefficient > 0.0 {
        tensors.group().receive(0, None)?;
        let (kind, device) = setup::dtype_and_device(&config)?;
        let weights = Weights::zeros(&dimensions, kind, device);
        shard::broadcast(&weights, tensors)?;
        Some(setup::trainable_model(&config, &dimensions, weights, &agent))
    } else {
        None
    };
    let features = sampler.as_ref().filter(|_| config.model.freeze_vision);
    let features = features.map(|sampler| sampler.engine().features());
    let model = setup::trainable_model(&config, &dimensions, weights, &agent);
    // only where rank 0's folder is, too: on its machine, or on a shared file system
    let here = incidents.parent().is_some_and(Path::is_dir);
    let incidents = here.then(|| incidents.join(format!("rank-{}", tensors.rank())));
    let updater = Updater::new(model, optimiser, incidents).with_skipped(skipped);
    let learner = LocalLearner::new(updater, agent.processor.clone(), config.model.micro_batch_tokens)
        .with_reference(reference)
        .with_features(features);
    Ok(Received { learner: Some(learner), sampler, reserved })
}
