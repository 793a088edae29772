//! Creates what a run needs from its configuration: the model, the agent, the policy, the learner, the desktops.

use super::task_sets::TaskSets;
use super::{ranks, seeding};
use crate::TrainError;
use crate::agent::Agent;
use crate::base_model;
use crate::collect::{CollectOptions, Collector};
use crate::memory::{available_gib, guarded};
use crate::memory_plan::{self, MemoryPlan, PROMPT_TOKENS, Work};
use crate::policy::engine::ResponseOptions;
use crate::policy::served::ServedModel;
use crate::policy::{EnginePolicy, ServedPolicy};
use crate::run::notices::Notices;
use crate::run::stop::StopSwitch;
use crate::style_choice;
use arpo_core::config::{Config, DeviceChoice};
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Engine, EngineOptions};
use arpo_env::faults::FaultCounts;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::checkpoint::{Checkpoint, GradientBuffer, Weights};
use arpo_model::config::ModelConfig;
use arpo_model::model::Model;
use arpo_model::training::{PassOptions, TrainableModel};
use arpo_suite::{EnvironmentSource, FaultySource};
use arpo_torch::driver;
use arpo_torch::runtime::{self, CudaLibrary};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

const GIB: f64 = (1u64 << 30) as f64;

/// A loaded model with its agent.
#[derive(Debug)]
pub struct Loaded {
    /// Its dimensions.
    pub config: ModelConfig,
    /// Its parameters.
    pub weights: Weights,
    /// Tokenizer, image processor and the like, by file name.
    pub side_files: BTreeMap<String, Vec<u8>>,
    /// Tokenizer, image processor and prompt format.
    pub agent: Arc<Agent>,
}

/// Where the gradient of a parameter is: a rank that keeps only its shard of their sums needs one layer's at a time.
pub fn gradient_buffer(config: &Config, layout: &ParameterLayout) -> GradientBuffer {
    if config.model.freeze_vision && layout.is_vision() {
        GradientBuffer::Absent
    } else if config.learn.shards_gradients() {
        GradientBuffer::Shared
    } else {
        GradientBuffer::Own
    }
}

/// The dtype and the device of a configuration.
pub fn dtype_and_device(config: &Config) -> Result<(Kind, Device), TrainError> {
    let torch = runtime::start().map_err(|error| TrainError::Configuration(error.to_string()))?;
    let gpus = if matches!(torch.cuda, CudaLibrary::Loaded) { runtime::usable_cuda_devices() } else { 0 };
    let (gpu, number) = (gpus > 0, config.model.gpu);
    let wanted = match config.model.device {
        DeviceChoice::Cuda => true,
        DeviceChoice::Auto => config.model.base != base_model::POCKET,
        DeviceChoice::Cpu => false,
    };
    if gpu && wanted {
        if number >= gpus {
            return Err(TrainError::Configuration(format!(
                "`model.gpu` = {number}: expected less than {gpus}, the number of GPUs that libtorch can use"
            )));
        }
        check_bf16(number)?;
    }
    match config.model.device {
        DeviceChoice::Cuda if !gpu => Err(TrainError::Configuration(
            "model.device = \"cuda\": no CUDA device that libtorch can use; `arpo doctor` says why".into(),
        )),
        DeviceChoice::Cuda => Ok((Kind::BFloat16, Device::Cuda(number))),
        DeviceChoice::Auto if gpu && config.model.base != base_model::POCKET => {
            Ok((Kind::BFloat16, Device::Cuda(number)))
        }
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok((Kind::Float, Device::Cpu)),
    }
}

/// GPUs without bf16 are refused: libtorch would emulate it, many times slower.
fn check_bf16(number: usize) -> Result<(), TrainError> {
    // a driver that cannot be queried is treated as a GPU with bf16
    let devices = driver::query().map(|driver| driver.devices).unwrap_or_default();
    match devices.get(number) {
        Some(device) if !device.has_bf16() => {
            let (major, minor) = device.compute_capability;
            Err(TrainError::Configuration(format!(
                "{} has compute capability {major}.{minor} and no bf16: expected 8.0 or newer, or \
                 `model.device` = \"cpu\"",
                device.name
            )))
        }
        _ => Ok(()),
    }
}

/// Checks tasks, screen, model and memory before anything is created.
pub fn check(config: &Config, work: Work) -> Result<(), TrainError> {
    check_tasks(config)?;
    seeding::check(config)?;
    check_model(config, work)
}

/// Checks the tasks, and where their desktops are to be.
pub fn check_tasks(config: &Config) -> Result<(), TrainError> {
    arpo_cluster::check(config)?;
    ranks::check(config)?;
    TaskSets::new(config).map(drop)
}

/// Checks the model without reading its weights.
pub fn check_model(config: &Config, work: Work) -> Result<(), TrainError> {
    let (dimensions, side_files) = base_model::check(&config.model.base)?;
    agent(config, &dimensions, &side_files)?;
    if work == Work::Training {
        checked_sampling_memory(config, &dimensions)?;
    }
    checked_memory(config, &dimensions, work).map(drop)
}

/// Loads the model that the configuration names.
pub fn load(config: &Config) -> Result<Loaded, TrainError> {
    let (kind, device) = dtype_and_device(config)?;
    checked_memory(config, &base_model::dimensions(&config.model.base)?, Work::Sampling)?;
    guarded("loading the model", "a smaller `model.base`, or nothing else on the device", || {
        let Checkpoint { config: dimensions, weights, side_files } =
            base_model::load(&config.model.base, kind, device)?;
        let agent = Arc::new(agent(config, &dimensions, &side_files)?);
        Ok(Loaded { config: dimensions, weights, side_files, agent })
    })
}

/// The memory plan for a device.
pub fn memory(config: &Config, dimensions: &ModelConfig, device: Device, work: Work) -> MemoryPlan {
    MemoryPlan::new(dimensions, config, arpo_suite::screen_size(config), device_memory(device), work)
}

/// The memory plan before anything is loaded; an error if it does not fit.
pub fn checked_memory(
    config: &Config,
    dimensions: &ModelConfig,
    work: Work,
) -> Result<MemoryPlan, TrainError> {
    let (_, device) = dtype_and_device(config)?;
    let plan = memory_plan::fitting(
        dimensions,
        config,
        arpo_suite::screen_size(config),
        device_memory(device),
        work,
    )
    .map_err(TrainError::Configuration)?;
    let host = memory_plan::total(&plan.host) as f64 / GIB;
    match available_gib() {
        Some(available) if host > available => Err(TrainError::Configuration(format!(
            "the optimiser's moments need {host:.1} GiB of host memory, of which {available:.1} are free: \
             expected more, or `model.freeze_vision` = true"
        ))),
        _ => Ok(plan),
    }
}

/// The same for a rank that only samples, on a device like this one; `None` if there is none.
pub fn checked_sampling_memory(
    config: &Config,
    dimensions: &ModelConfig,
) -> Result<Option<MemoryPlan>, TrainError> {
    config.learn.is_split().then(|| checked_memory(config, dimensions, Work::Sampling)).transpose()
}

/// The memory of a device.
pub fn device_memory(device: Device) -> memory_plan::DeviceMemory {
    /// Assumed if the driver cannot be queried.
    const DEFAULT_GPU_BYTES: u64 = 80 << 30;
    match device {
        Device::Cuda(number) => {
            let devices = driver::query().map(|driver| driver.devices).unwrap_or_default();
            let bytes = devices.get(number).map_or(DEFAULT_GPU_BYTES, |device| device.memory_bytes);
            memory_plan::DeviceMemory::Gpu(bytes)
        }
        _ => memory_plan::DeviceMemory::Cpu(available_gib().map(|gib| (gib * GIB) as u64)),
    }
}

/// Allocates the GPU memory beyond `model.memory_gib`, so that the run cannot use it while the tensor lives.
pub fn reserved_memory(config: &Config, device: Device) -> Result<Option<Tensor>, TrainError> {
    let memory_plan::DeviceMemory::Gpu(bytes) = device_memory(device) else { return Ok(None) };
    let limit = (config.model.memory_gib * GIB) as u64;
    let excess = bytes.saturating_sub(limit) as i64;
    if limit == 0 || excess == 0 {
        return Ok(None);
    }
    guarded("reserving memory", "a larger `model.memory_gib`, or nothing else on the device", || {
        Ok(Some(Tensor::empty([excess], (Kind::Uint8, device))))
    })
}

/// The other files of a model, with the screenshot sizes it is trained with, so that a server that reads them uses the
/// same sizes.
pub fn side_files_of(config: &Config, mut files: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    const PROCESSOR: &str = "preprocessor_config.json";
    let parsed = files.get(PROCESSOR).and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let Some(Value::Object(mut processor)) = parsed else { return files };
    let limits = [
        ("min_pixels", "shortest_edge", config.agent.min_pixels),
        ("max_pixels", "longest_edge", config.agent.max_pixels),
    ];
    // 0 leaves the model's own
    for (name, edge, pixels) in limits.into_iter().filter(|(_, _, pixels)| *pixels > 0) {
        processor.insert(name.into(), pixels.into());
        // newer files also have them under another name
        if let Some(size) = processor.get_mut("size").and_then(Value::as_object_mut) {
            size.insert(edge.into(), pixels.into());
        }
    }
    if let Ok(text) = serde_json::to_vec_pretty(&processor) {
        files.insert(PROCESSOR.into(), text);
    }
    files
}

/// The agent of a model.
pub fn agent(
    config: &Config,
    dimensions: &ModelConfig,
    side_files: &BTreeMap<String, Vec<u8>>,
) -> Result<Agent, TrainError> {
    let style = style_choice::style(&config.agent, style_choice::of_model(config, dimensions));
    let mut agent = Agent::new(dimensions, side_files, Path::new(&config.model.base), style)?;
    // 0 leaves the model's own
    let limits = &mut agent.processor.limits;
    limits.min = if config.agent.min_pixels > 0 { config.agent.min_pixels } else { limits.min };
    limits.max = if config.agent.max_pixels > 0 { config.agent.max_pixels } else { limits.max };
    Ok(agent)
}

/// A policy that samples with these weights, which it shares, on a device that is not used for training.
pub fn policy(
    config: &Config,
    dimensions: &ModelConfig,
    weights: &Weights,
    agent: &Arc<Agent>,
    version: PolicyVersion,
) -> EnginePolicy {
    let device = weights.iter().next().map_or(Device::Cpu, |(_, tensor)| tensor.device());
    let plan = memory(config, dimensions, device, Work::Sampling);
    policy_within(&plan, config, dimensions, weights, agent, version)
}

/// The same within a memory plan.
pub fn policy_within(
    plan: &MemoryPlan,
    config: &Config,
    dimensions: &ModelConfig,
    weights: &Weights,
    agent: &Arc<Agent>,
    version: PolicyVersion,
) -> EnginePolicy {
    let engine = engine_within(plan, config, dimensions, weights, agent, version);
    EnginePolicy::new(engine, version, Arc::clone(agent), response_options(config))
        .with_max_episodes(plan.running)
}

/// How responses are sampled while training.
pub fn response_options(config: &Config) -> ResponseOptions {
    ResponseOptions { temperature: config.collect.temperature, max_tokens: config.agent.max_tokens }
}

/// The engine alone, within a memory plan.
pub fn engine_within(
    plan: &MemoryPlan,
    config: &Config,
    dimensions: &ModelConfig,
    weights: &Weights,
    agent: &Agent,
    version: PolicyVersion,
) -> Engine {
    let options = EngineOptions {
        cache_bytes: plan.cache_bytes,
        feature_bytes: plan.feature_bytes as usize,
        frozen_vision: config.model.freeze_vision,
        page_tokens: 16,
        max_running: config.collect.desktops,
        max_prefill_tokens: PROMPT_TOKENS,
        forbidden: agent.forbidden.clone(),
    };
    let model = Model::new(dimensions.clone(), weights.share());
    Engine::new(model, agent.processor.clone(), options, version)
}

/// A policy that samples on the servers of the configuration; weights go there through this folder.
pub fn served(
    config: &Config,
    model: ServedModel,
    folder: &Path,
    notices: &Notices,
) -> Result<ServedPolicy, TrainError> {
    let key = std::env::var(&config.rollout.key_variable).ok().filter(|key| !key.is_empty());
    ServedPolicy::new(config, model, folder, key.as_deref(), notices)
}

/// A model with these weights, as training computes with it.
pub fn trainable_model(
    config: &Config,
    dimensions: &ModelConfig,
    weights: Weights,
    agent: &Agent,
) -> TrainableModel {
    let model = Model::new(dimensions.clone(), weights);
    let plan = memory(config, dimensions, model.device(), Work::Training);
    let options = PassOptions {
        temperature: config.collect.temperature,
        forbidden: agent.forbidden.clone(),
        activation_bytes: plan.activation_bytes,
        logit_rows: plan.logit_rows,
        // GPU libraries search for a kernel plan for every new length, which takes as long as 3 % of a long episode
        pad_to_multiple: if model.device() == Device::Cpu { 16 } else { 256 },
        share_prefixes: model.device() == Device::Cpu,
    };
    TrainableModel::new(model, options)
}

/// The reference model for the KL term: the model before training; `None` without a KL term.
pub fn reference(config: &Config, agent: &Agent) -> Result<Option<TrainableModel>, TrainError> {
    if config.loss.kl_coefficient <= 0.0 {
        return Ok(None);
    }
    let (kind, device) = dtype_and_device(config)?;
    let Checkpoint { config: dimensions, weights, .. } = base_model::load(&config.model.base, kind, device)?;
    Ok(Some(trainable_model(config, &dimensions, weights, agent)))
}

/// A collector with the desktops of the configuration, here or on workers. Injected faults are counted. Workers have
/// something to write in the folder: their logs, and where they are asked how they are.
pub fn collector(
    config: &Config,
    folder: Option<&Path>,
    faults: &Arc<FaultCounts>,
    stop: &StopSwitch,
) -> Result<Collector, TrainError> {
    let source = source(config, folder, stop, &Notices::default())?;
    open(source.as_ref(), stop)?;
    Ok(collector_of(config, source, faults).stopped_by(stop.clone()))
}

/// The desktops of the configuration, here or on workers, not opened yet. What becomes of a worker goes to the notices: it
/// does not stop the run.
pub fn source(
    config: &Config,
    folder: Option<&Path>,
    stop: &StopSwitch,
    notices: &Notices,
) -> Result<Arc<dyn EnvironmentSource>, TrainError> {
    let (notices, stopped) = (notices.clone(), stop.clone());
    let log = move |line: &str| notices.say(line);
    Ok(arpo_cluster::source(config, folder, log, move || stopped.requested())?)
}

/// Connects to the provider of the desktops, or to workers.
pub fn open(source: &dyn EnvironmentSource, stop: &StopSwitch) -> Result<(), TrainError> {
    source.open().map_err(|error| {
        // workers that have come are told to go
        let _ = source.close();
        if stop.requested() { TrainError::Interrupted } else { error.into() }
    })
}

/// The same with desktops of another source.
pub fn collector_of(
    config: &Config,
    source: Arc<dyn EnvironmentSource>,
    faults: &Arc<FaultCounts>,
) -> Collector {
    let source = FaultySource::wrap(source, config, faults);
    Collector::new(source, config.collect.desktops, CollectOptions::from(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_model_records_the_screenshot_sizes_it_was_trained_with() {
        let mut config = Config::default();
        (config.agent.min_pixels, config.agent.max_pixels) = (784, 50176);
        let files = |processor: &str| {
            BTreeMap::from([
                ("preprocessor_config.json".to_owned(), processor.as_bytes().to_vec()),
                ("merges.txt".to_owned(), b"a b".to_vec()),
            ])
        };
        let written = side_files_of(&config, files(r#"{"patch_size": 14, "size": {"shortest_edge": 3}}"#));
        let processor: Value = serde_json::from_slice(&written["preprocessor_config.json"]).unwrap();
        let edges = serde_json::json!({"shortest_edge": 784, "longest_edge": 50176});
        assert_eq!(
            processor,
            serde_json::json!({"patch_size": 14, "min_pixels": 784, "max_pixels": 50176, "size": edges})
        );
        assert_eq!(written["merges.txt"], b"a b");
        // files that cannot be parsed stay unchanged
        assert_eq!(side_files_of(&config, files("[]")), files("[]"));
        assert_eq!(side_files_of(&config, BTreeMap::new()), BTreeMap::new());
    }
}
