//! What a run is made of, from its configuration: the model, the agent around it, the tasks, the desktops.

use super::osworld;
use crate::TrainError;
use crate::agent::{Agent, pocket_style};
use crate::base_model;
use crate::collect::{CollectOptions, Collector, DesktopFactory};
use crate::memory::available_gib;
use crate::policy::EnginePolicy;
use crate::policy::engine::ResponseOptions;
use arpo_agent::conversation::ConversationStyle;
use arpo_agent::prompt;
use arpo_agent::window::ScreenshotWindow;
use arpo_core::config::{
    Config, DeviceChoice, FontChoice, PromptStyle, SuiteChoice, SystemPrompt, ThemeChoice,
};
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Engine, EngineOptions};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::faults::{FaultCounts, FaultyDesktop};
use arpo_env::look::{Font, ScreenOptions, Theme};
use arpo_env::tasks::{Part, Suite, own};
use arpo_model::checkpoint::{Checkpoint, Weights};
use arpo_model::config::ModelConfig;
use arpo_model::learner::{Learner, LearnerOptions};
use arpo_model::model::Model;
use arpo_torch::runtime::{self, CudaHalf};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tch::{Device, Kind};

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

/// Loads the model that the configuration names.
pub fn load(config: &Config) -> Result<Loaded, TrainError> {
    let (kind, device) = place(config)?;
    check_memory(config, device, available_gib())?;
    let Checkpoint { config: dimensions, weights, side_files } =
        base_model::load(&config.model.base, kind, device)?;
    let agent = Arc::new(agent(config, &dimensions, &side_files)?);
    Ok(Loaded { config: dimensions, weights, side_files, agent })
}

/// The cache is taken at once: more than a machine has would end the program without a word.
fn check_memory(config: &Config, device: Device, available: Option<f64>) -> Result<(), TrainError> {
    let wanted = config.model.cache_gib;
    match available {
        Some(available) if device == Device::Cpu && wanted > available => Err(TrainError::Options(format!(
            "`model.cache_gib` = {wanted}: expected less than the {available:.1} GiB that this machine has free, or a GPU"
        ))),
        _ => Ok(()),
    }
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

/// A policy that answers with these weights, which it shares.
pub fn policy(
    config: &Config,
    dimensions: &ModelConfig,
    weights: &Weights,
    agent: &Arc<Agent>,
    version: PolicyVersion,
) -> EnginePolicy {
    let options = EngineOptions {
        cache_bytes: (config.model.cache_gib * GIB) as u64,
        feature_bytes: (config.model.cache_gib * GIB / 8.0) as usize,
        fixed_vision: config.model.freeze_vision,
        page_tokens: 16,
        most_running: config.collect.desktops,
        prompt_tokens: 1 << 14,
        forbidden: agent.forbidden.clone(),
    };
    let model = Model::new(dimensions.clone(), weights.share());
    let engine = Engine::new(model, agent.processor.clone(), options, version);
    let responses =
        ResponseOptions { temperature: config.collect.temperature, max_tokens: config.agent.max_tokens };
    EnginePolicy::new(engine, version, Arc::clone(agent), responses)
}

/// A learner of these weights, which have gradients.
pub fn learner(config: &Config, dimensions: &ModelConfig, weights: Weights, agent: &Agent) -> Learner {
    let model = Model::new(dimensions.clone(), weights);
    let options = LearnerOptions {
        temperature: config.collect.temperature,
        forbidden: agent.forbidden.clone(),
        activation_bytes: (config.model.activation_gib * GIB) as u64,
        logit_rows: 4096,
        length_step: 16,
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
    let factory: Arc<DesktopFactory> = if config.tasks.suite == SuiteChoice::Osworld {
        osworld::desktops(config, None)?.make
    } else {
        let screen = screen(config)?;
        Arc::new(move |_| Ok(Box::new(EmbeddedDesktop::new(screen.clone())?)))
    };
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

/// The tasks to train on: the suite's or the user's own; of them those of a list, or so many of them, the applications taking turns.
pub fn training_tasks(config: &Config) -> Result<Vec<Arc<Task>>, TrainError> {
    let own;
    let all = if config.tasks.suite == SuiteChoice::Osworld {
        own = osworld::tasks(config)?;
        &own
    } else if let (Some(suite), true) = (suite(config), config.tasks.files.is_empty()) {
        suite.tasks(Part::Train)
    } else {
        own = own::read(Path::new(&config.tasks.files), screen(config)?)
            .map_err(|problem| TrainError::Options(format!("`tasks.files`: {problem}")))?;
        &own
    };
    let chosen = config.tasks.list.is_empty() || config.tasks.suite == SuiteChoice::Osworld;
    let tasks: Vec<Arc<Task>> = if chosen {
        all.iter().map(|task| Arc::new(task.clone())).collect()
    } else {
        listed(&config.tasks.list, all)?
    };
    let (wanted, there) = (config.tasks.count, tasks.len());
    if wanted > there {
        return Err(TrainError::Options(format!(
            "`tasks.count` = {wanted}: there are {there} training tasks"
        )));
    }
    Ok(if wanted == 0 { tasks } else { spread(tasks, wanted) })
}

/// So many of the tasks, the applications taking turns.
fn spread(tasks: Vec<Arc<Task>>, wanted: usize) -> Vec<Arc<Task>> {
    let mut queues: BTreeMap<String, VecDeque<Arc<Task>>> = BTreeMap::new();
    for task in tasks {
        queues.entry(task.application.clone()).or_default().push_back(task);
    }
    let mut chosen = Vec::with_capacity(wanted);
    while chosen.len() < wanted {
        chosen.extend(queues.values_mut().filter_map(VecDeque::pop_front));
    }
    chosen.truncate(wanted);
    chosen
}

/// The tasks that are never trained on.
pub fn held_out_tasks(config: &Config) -> Vec<Arc<Task>> {
    let tasks = suite(config).map_or(&[][..], |suite| suite.tasks(Part::HeldOut));
    tasks.iter().map(|task| Arc::new(task.clone())).collect()
}

/// The list that the program carries.
const QUICK_LIST: (&str, &str) = ("quick", include_str!("../../../../configs/quick-tasks.txt"));

fn listed(path: &str, all: &[Task]) -> Result<Vec<Arc<Task>>, TrainError> {
    let text = if path == QUICK_LIST.0 {
        QUICK_LIST.1.to_owned()
    } else {
        fs::read_to_string(path)
            .map_err(|error| TrainError::Options(format!("`tasks.list` = {path:?}: {error}")))?
    };
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    names
        .map(|name| {
            let task = all.iter().find(|task| task.id.as_str() == name);
            task.map(|task| Arc::new(task.clone()))
                .ok_or_else(|| TrainError::Options(format!("{path}: {name:?} is none of the training tasks")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_larger_than_the_machine_is_refused() {
        let mut config = Config::default();
        config.model.cache_gib = 22.0;
        let problem = check_memory(&config, Device::Cpu, Some(20.0)).unwrap_err().to_string();
        assert!(problem.starts_with("`model.cache_gib` = 22: expected less than the 20.0 GiB"), "{problem}");
        assert!(check_memory(&config, Device::Cpu, Some(30.0)).is_ok());
        assert!(check_memory(&config, Device::Cuda(0), Some(20.0)).is_ok());
        assert!(check_memory(&config, Device::Cpu, None).is_ok());
    }
}
