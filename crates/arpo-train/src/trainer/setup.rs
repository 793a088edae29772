//! What a run is made of, from its configuration: the model, the agent around it, the tasks, the desktops.

use super::osworld;
pub use super::task_lists::{evaluated_training_tasks, held_out_tasks, training_tasks, unseen_tasks};
use super::task_sets::TaskSets;
use crate::TrainError;
use crate::agent::{Agent, pocket_style};
use crate::base_model;
use crate::collect::{CollectOptions, Collector, DesktopFactory};
use crate::memory::{available_gib, guarded};
use crate::memory_plan::{self, MemoryPlan, PROMPT_TOKENS, Work};
use crate::policy::EnginePolicy;
use crate::policy::engine::ResponseOptions;
use arpo_agent::conversation::ConversationStyle;
use arpo_agent::geometry::Size;
use arpo_agent::prompt;
use arpo_agent::window::ScreenshotWindow;
use arpo_core::config::{
    Config, DeviceChoice, FontChoice, PromptStyle, SuiteChoice, SystemPrompt, ThemeChoice,
};
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Engine, EngineOptions};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::faults::{FaultCounts, FaultyDesktop};
use arpo_env::look::{Font, ScreenOptions, Theme};
use arpo_env::tasks::Suite;
use arpo_model::checkpoint::{Checkpoint, Weights};
use arpo_model::config::ModelConfig;
use arpo_model::learner::{Learner, LearnerOptions};
use arpo_model::model::Model;
use arpo_torch::driver;
use arpo_torch::runtime::{self, CudaHalf};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

const GIB: f64 = (1u64 << 30) as f64;

/// A model with what belongs to it.
#[derive(Debug)]
pub struct Loaded {
    /// Its dimensions.
    pub config: ModelConfig,
    /// Its parameters.
    pub weights: Weights,
    /// Tokenizer, image processor and the like, by file name.
    pub side_files: BTreeMap<String, Vec<u8>>,
    /// How it reads and speaks.
    pub agent: Arc<Agent>,
}

/// Where a configuration wants to compute, and with which numbers.
pub fn place(config: &Config) -> Result<(Kind, Device), TrainError> {
    let torch = runtime::start().map_err(|error| TrainError::Options(error.to_string()))?;
    let gpu = matches!(torch.cuda, CudaHalf::Open) && runtime::usable_cuda_devices() > 0;
    let wanted = match config.model.device {
        DeviceChoice::Cuda => true,
        DeviceChoice::Auto => config.model.base != base_model::POCKET,
        DeviceChoice::Cpu => false,
    };
    if gpu && wanted {
        check_bf16()?;
    }
    match config.model.device {
        DeviceChoice::Cuda if !gpu => Err(TrainError::Options(
            "model.device = \"cuda\": no CUDA device that libtorch can use; `arpo doctor` says why".into(),
        )),
        DeviceChoice::Cuda => Ok((Kind::BFloat16, Device::Cuda(0))),
        DeviceChoice::Auto if gpu && config.model.base != base_model::POCKET => {
            Ok((Kind::BFloat16, Device::Cuda(0)))
        }
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok((Kind::Float, Device::Cpu)),
    }
}

/// GPUs without bf16 are refused: libtorch would emulate it, many times slower.
fn check_bf16() -> Result<(), TrainError> {
    // a driver that cannot be asked says so where memory is planned
    let devices = driver::ask().map(|driver| driver.devices).unwrap_or_default();
    match devices.first() {
        Some(device) if !device.has_bf16() => {
            let (major, minor) = device.compute_capability;
            Err(TrainError::Options(format!(
                "{} has compute capability {major}.{minor} and no bf16: expected 8.0 or newer, or \
                 `model.device` = \"cpu\"",
                device.name
            )))
        }
        _ => Ok(()),
    }
}

/// Finds what would stop a run before anything of it is made: tasks, screen, model, memory.
pub fn check(config: &Config, work: Work) -> Result<(), TrainError> {
    check_tasks(config)?;
    if config.tasks.suite != SuiteChoice::Osworld {
        screen(config)?;
    }
    check_model(config, work)
}

/// Finds what is wrong with the tasks.
pub fn check_tasks(config: &Config) -> Result<(), TrainError> {
    TaskSets::new(config).map(drop)
}

/// Finds what is wrong with the model, without reading its weights.
pub fn check_model(config: &Config, work: Work) -> Result<(), TrainError> {
    let (dimensions, side_files) = base_model::check(&config.model.base)?;
    agent(config, &dimensions, &side_files)?;
    checked_memory(config, &dimensions, work).map(drop)
}

/// Loads the model that the configuration names.
pub fn load(config: &Config) -> Result<Loaded, TrainError> {
    let (kind, device) = place(config)?;
    checked_memory(config, &base_model::dimensions(&config.model.base)?, Work::Sampling)?;
    guarded("loading the model", "a smaller `model.base`, or nothing else on the device", || {
        let Checkpoint { config: dimensions, weights, side_files } =
            base_model::load(&config.model.base, kind, device)?;
        let agent = Arc::new(agent(config, &dimensions, &side_files)?);
        Ok(Loaded { config: dimensions, weights, side_files, agent })
    })
}

/// How memory is shared out on a device.
pub fn memory(config: &Config, dimensions: &ModelConfig, device: Device, work: Work) -> MemoryPlan {
    MemoryPlan::new(dimensions, config, screen_size(config), memory_place(device), work)
}

/// How memory is shared out, before anything is loaded; an error if something does not fit.
pub fn checked_memory(
    config: &Config,
    dimensions: &ModelConfig,
    work: Work,
) -> Result<MemoryPlan, TrainError> {
    let (_, device) = place(config)?;
    let plan = memory_plan::fitting(dimensions, config, screen_size(config), memory_place(device), work)
        .map_err(TrainError::Options)?;
    let host = memory_plan::total(&plan.host) as f64 / GIB;
    match available_gib() {
        Some(available) if host > available => Err(TrainError::Options(format!(
            "the optimiser's moments need {host:.1} GiB of the machine's memory, which has {available:.1} free: \
             expected more of it, or `model.freeze_vision` = true"
        ))),
        _ => Ok(plan),
    }
}

/// What a device has.
pub fn memory_place(device: Device) -> memory_plan::Place {
    const GPU_WITHOUT_AN_ANSWER: u64 = 80 << 30;
    match device {
        Device::Cuda(number) => {
            let devices = driver::ask().map(|driver| driver.devices).unwrap_or_default();
            let bytes = devices.get(number).map_or(GPU_WITHOUT_AN_ANSWER, |device| device.memory_bytes);
            memory_plan::Place::Gpu(bytes)
        }
        _ => memory_plan::Place::Cpu(available_gib().map(|gib| (gib * GIB) as u64)),
    }
}

/// Memory of a GPU that a run is not to use, held for as long as this is.
pub fn held_back(config: &Config, device: Device) -> Result<Option<Tensor>, TrainError> {
    let memory_plan::Place::Gpu(bytes) = memory_place(device) else { return Ok(None) };
    let limit = (config.model.memory_gib * GIB) as u64;
    let more = bytes.saturating_sub(limit) as i64;
    if limit == 0 || more == 0 {
        return Ok(None);
    }
    guarded("holding memory back", "a larger `model.memory_gib`, or nothing else on the device", || {
        Ok(Some(Tensor::empty([more], (Kind::Uint8, device))))
    })
}

/// The size of the screens that episodes are played on.
pub fn screen_size(config: &Config) -> Size {
    const OSWORLD: Size = Size { width: 1920, height: 1080 };
    screen(config).map_or(OSWORLD, |screen| Size { width: screen.width, height: screen.height })
}

/// The words around a task.
pub fn style(config: &Config) -> ConversationStyle {
    let window = ScreenshotWindow::new(config.agent.max_screenshots, config.agent.window_advance);
    let system = match config.agent.system_prompt {
        SystemPrompt::Original => prompt::SYSTEM,
        SystemPrompt::Corrected => prompt::SYSTEM_CORRECTED,
    };
    match config.agent.prompt {
        PromptStyle::Uitars => {
            ConversationStyle { system: system.into(), ..ConversationStyle::uitars(window) }
        }
        PromptStyle::Short => ConversationStyle { window, ..pocket_style() },
    }
}

/// The other files of a model, with the sizes of screenshots it is trained with: a server that reads them shows it the
/// same.
pub fn side_files_of(config: &Config, mut files: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    const PROCESSOR: &str = "preprocessor_config.json";
    let parsed = files.get(PROCESSOR).and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let Some(Value::Object(mut processor)) = parsed else { return files };
    let (least, most) = (config.agent.min_pixels, config.agent.max_pixels);
    processor.insert("min_pixels".into(), least.into());
    processor.insert("max_pixels".into(), most.into());
    // newer files have them under another name, too
    if let Some(size) = processor.get_mut("size").and_then(Value::as_object_mut) {
        size.insert("shortest_edge".into(), least.into());
        size.insert("longest_edge".into(), most.into());
    }
    if let Ok(text) = serde_json::to_vec_pretty(&processor) {
        files.insert(PROCESSOR.into(), text);
    }
    files
}

/// How the model reads and speaks.
pub fn agent(
    config: &Config,
    dimensions: &ModelConfig,
    side_files: &BTreeMap<String, Vec<u8>>,
) -> Result<Agent, TrainError> {
    let mut agent = Agent::new(dimensions, side_files, Path::new(&config.model.base), style(config))?;
    agent.processor.limits.min = config.agent.min_pixels;
    agent.processor.limits.max = config.agent.max_pixels;
    Ok(agent)
}

/// A policy that answers with these weights, which it shares, on a device that has nothing else to do.
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

/// The same within a plan of the memory.
pub fn policy_within(
    plan: &MemoryPlan,
    config: &Config,
    dimensions: &ModelConfig,
    weights: &Weights,
    agent: &Arc<Agent>,
    version: PolicyVersion,
) -> EnginePolicy {
    let options = EngineOptions {
        cache_bytes: plan.cache_bytes,
        feature_bytes: plan.feature_bytes as usize,
        fixed_vision: config.model.freeze_vision,
        page_tokens: 16,
        most_running: config.collect.desktops,
        prompt_tokens: PROMPT_TOKENS,
        forbidden: agent.forbidden.clone(),
    };
    let model = Model::new(dimensions.clone(), weights.share());
    let engine = Engine::new(model, agent.processor.clone(), options, version);
    let responses =
        ResponseOptions { temperature: config.collect.temperature, max_tokens: config.agent.max_tokens };
    EnginePolicy::new(engine, version, Arc::clone(agent), responses).with_capacity(plan.running)
}

/// A learner of these weights, which have gradients.
pub fn learner(config: &Config, dimensions: &ModelConfig, weights: Weights, agent: &Agent) -> Learner {
    let model = Model::new(dimensions.clone(), weights);
    let plan = memory(config, dimensions, model.device(), Work::Training);
    let options = LearnerOptions {
        temperature: config.collect.temperature,
        forbidden: agent.forbidden.clone(),
        activation_bytes: plan.activation_bytes,
        logit_rows: plan.logit_rows,
        // a GPU's libraries look for a plan for every new length, which takes as long as 3 % of a long episode
        length_step: if model.device() == Device::Cpu { 16 } else { 256 },
        share_beginnings: model.device() == Device::Cpu,
    };
    Learner::new(model, options)
}

/// The model before any training, to which the policy is tied; none if nothing ties it.
pub fn reference(config: &Config, agent: &Agent) -> Result<Option<Learner>, TrainError> {
    if config.loss.kl_coefficient <= 0.0 {
        return Ok(None);
    }
    let (kind, device) = place(config)?;
    let Checkpoint { config: dimensions, weights, .. } = base_model::load(&config.model.base, kind, device)?;
    Ok(Some(learner(config, &dimensions, weights, agent)))
}

/// The seed of an episode's desktop. Faults are drawn for every episode anew, so where they are played the upper half
/// tells episodes of the same world apart; see [`FaultyDesktop`].
pub fn world_seed(world: u64, sampling_seed: u64, faulty: bool) -> u64 {
    let lower = u64::from(u32::MAX);
    world & lower | if faulty { sampling_seed & !lower } else { 0 }
}

/// The embedded desktop's suite; none for OSWorld.
pub fn suite(config: &Config) -> Option<Suite> {
    match config.tasks.suite {
        SuiteChoice::Pocket => Some(Suite::Pocket),
        SuiteChoice::Desktop => Some(Suite::Desktop),
        SuiteChoice::Osworld => None,
    }
}

/// The screen that episodes are played on: the suite's, with what the configuration wants otherwise.
pub fn screen(config: &Config) -> Result<ScreenOptions, TrainError> {
    let suite = suite(config).ok_or_else(|| {
        TrainError::Options(
            "`tasks.suite` = \"osworld\" has no embedded desktop: expected \"pocket\" or \"desktop\"".into(),
        )
    })?;
    let mut screen = suite.screen();
    let wanted = &config.screen;
    if wanted.width > 0 {
        screen.width = wanted.width;
    }
    if wanted.height > 0 {
        screen.height = wanted.height;
    }
    screen.theme = match wanted.theme {
        ThemeChoice::Suite => screen.theme,
        ThemeChoice::Light => Some(Theme::Light),
        ThemeChoice::Dark => Some(Theme::Dark),
        ThemeChoice::Vary => None,
    };
    screen.font = match wanted.font {
        FontChoice::Suite => screen.font,
        FontChoice::Pixel => Some(Font::Pixel),
        FontChoice::Proportional => Some(Font::Proportional),
        FontChoice::Monospace => Some(Font::Monospace),
    };
    screen.jitter &= wanted.jitter;
    screen.check().map_err(|problem| TrainError::Options(format!("`[screen]`: {problem}")))?;
    Ok(screen)
}

/// Desktops of the suite, and how episodes are played on them. Faults that the configuration asks for are counted.
pub fn collector(config: &Config, faults: &Arc<FaultCounts>) -> Result<Collector, TrainError> {
    if config.tasks.suite == SuiteChoice::Osworld {
        let desktops = osworld::desktops(config, None)?;
        return Ok(collector_of(config, desktops.make, faults).removing(desktops.remove_all));
    }
    let screen = screen(config)?;
    let factory: Arc<DesktopFactory> = Arc::new(move |_| Ok(Box::new(EmbeddedDesktop::new(screen.clone())?)));
    Ok(collector_of(config, factory, faults))
}

/// The same with desktops that are made otherwise.
pub fn collector_of(config: &Config, make: Arc<DesktopFactory>, faults: &Arc<FaultCounts>) -> Collector {
    let (played, counts, seed) = (config.faults.clone(), Arc::clone(faults), config.seed);
    let faulty: Arc<DesktopFactory> = Arc::new(move |place| {
        let desktop = make(place)?;
        Ok(if played.any() {
            Box::new(FaultyDesktop::new(desktop, played.clone(), seed, Arc::clone(&counts)))
        } else {
            desktop
        })
    });
    Collector::new(faulty, config.collect.desktops, CollectOptions::from(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_model_says_which_screenshots_it_was_trained_on() {
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
        // what cannot be read is left as it is
        assert_eq!(side_files_of(&config, files("[]")), files("[]"));
        assert_eq!(side_files_of(&config, BTreeMap::new()), BTreeMap::new());
    }
}
