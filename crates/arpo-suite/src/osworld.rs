//! OSWorld, as configured: its tasks and desktops.

use crate::task_lists::chosen_by;
use crate::{EnvironmentSource, SuiteError};
use arpo_agent::style::Grammar;
use arpo_core::config::{Config, DesktopChoice, NetworkChoice, OsworldConfig, StyleChoice};
use arpo_core::generation::Generation;
use arpo_core::task::{Task, TaskId};
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_osworld::coverage::{missing, runnable};
use arpo_osworld::download::{Cache, Sources};
use arpo_osworld::environment::{EpisodeOptions, OsworldDesktop, Shared};
use arpo_osworld::google::Accounts;
use arpo_osworld::provider::{
    Addresses, Container, Limits, Machine, Network, Options, Provider, Spares, TOKEN_VARIABLE, Vm,
};
use arpo_osworld::task::suite::{self, SuiteTask};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const GIB: f64 = (1u64 << 30) as f64;

/// The embedded task lists.
const LISTS: [(&str, &str); 2] = [
    ("osworld-128", include_str!("../../../configs/osworld-128.txt")),
    ("osworld-32", include_str!("../../../configs/osworld-32.txt")),
];

/// Whether a value of `tasks.list` is the name of an embedded list, not a file's.
pub fn is_embedded_list(list: &str) -> bool {
    list.is_empty() || LISTS.iter().any(|(name, _)| *name == list)
}

/// The task files that a configuration names; an error if one needs something that is missing: not
/// implemented, a program that is not installed on this host, or credentials of an account.
fn files(config: &Config) -> Result<Vec<SuiteTask>, SuiteError> {
    let mut tasks = chosen(config)?;
    let accounts = accounts(&config.osworld);
    if config.osworld.skip_missing {
        tasks.retain(|task| missing(&task.task, &accounts).is_empty());
    }
    runnable(tasks, &accounts).map_err(|error| SuiteError::Configuration(error.to_string()))
}

/// The user's own accounts, in the folder of the configuration or beside its tasks.
pub fn accounts(wanted: &OsworldConfig) -> Accounts {
    match wanted.settings.as_str() {
        "" => Accounts::beside(Path::new(&wanted.tasks)),
        folder => Accounts::new(folder),
    }
}

/// The tasks of `tasks.list` that `tasks.only` names.
fn chosen(config: &Config) -> Result<Vec<SuiteTask>, SuiteError> {
    let tasks = listed(config)?;
    let only = &config.tasks.only;
    if only.is_empty() {
        return Ok(tasks);
    }
    let names = tasks.iter().map(|task| (task.domain.as_str(), task.task.id.as_str()));
    let chosen = chosen_by(only, names)?;
    Ok(tasks.into_iter().zip(chosen).filter_map(|(task, is_chosen)| is_chosen.then_some(task)).collect())
}

/// The tasks of `tasks.list`. A preset's list is of OSWorld's tasks: it does not apply to tasks of one's own, nor to tasks
/// that are named one by one.
fn listed(config: &Config) -> Result<Vec<SuiteTask>, SuiteError> {
    let folder = Path::new(&config.osworld.tasks);
    if !folder.is_dir() {
        return Err(SuiteError::Configuration(format!(
            "`osworld.tasks` = {:?}: no such folder; expected the one of OSWorld that holds `examples`, or one of task files",
            config.osworld.tasks
        )));
    }
    let list = &config.tasks.list;
    let tasks = match LISTS.iter().find(|(name, _)| name == list) {
        Some((name, text)) => {
            let chosen = suite::parse_list(text).map_err(|problem| {
                SuiteError::Configuration(format!("`tasks.list` = {name:?}: {problem}"))
            })?;
            if config.tasks.only.is_empty() && suite::has_any(folder, &chosen) {
                suite::load_chosen(folder, chosen)
            } else {
                suite::load(folder, None)
            }
        }
        None => suite::load(folder, (!list.is_empty()).then_some(Path::new(list))),
    };
    tasks.map_err(|error| SuiteError::Configuration(error.to_string()))
}

/// The tasks that are left out because they need something that is missing, each with what that is.
pub fn left_out(config: &Config) -> Result<Vec<String>, SuiteError> {
    if !config.osworld.skip_missing {
        return Ok(vec![]);
    }
    let accounts = accounts(&config.osworld);
    let lacking = |task: SuiteTask| {
        let missing: Vec<String> = missing(&task.task, &accounts).into_iter().collect();
        (!missing.is_empty()).then(|| format!("{}: {}", task.name(), missing.join(", ")))
    };
    Ok(chosen(config)?.into_iter().filter_map(lacking).collect())
}

/// A task in the common form; its setup and evaluator stay in the task file.
fn task(file: SuiteTask) -> Task {
    Task {
        id: TaskId::new(file.name()),
        instruction: file.task.instruction,
        application: file.domain,
        setup: serde_json::Value::Null,
        evaluator: serde_json::Value::Null,
    }
}

/// A task file and its domain, for a host that does not have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskText {
    /// The folder it is in.
    pub domain: String,
    /// The text of the file.
    pub text: String,
}

/// The texts of the task files that a configuration names.
pub fn texts(config: &Config) -> Result<Vec<TaskText>, SuiteError> {
    Ok(files(config)?.into_iter().map(|SuiteTask { domain, text, .. }| TaskText { domain, text }).collect())
}

fn parsed(texts: &[TaskText]) -> Result<Vec<SuiteTask>, SuiteError> {
    let parse = |TaskText { domain, text }: &TaskText| {
        let wrong = |problem| SuiteError::Configuration(format!("a task of {domain}: {problem}"));
        SuiteTask::parse(domain.as_str(), text.clone()).map_err(wrong)
    };
    texts.iter().map(parse).collect()
}

/// OSWorld's tasks, and desktops that share one provider.
pub struct OsworldSource {
    config: Config,
    /// The task files, if they do not come from the folder of the configuration.
    texts: Option<Vec<TaskText>>,
    film: bool,
    state: Mutex<SourceState>,
}

#[derive(Default)]
enum SourceState {
    #[default]
    New,
    Open(Arc<Shared>),
    /// A desktop that is made now would start containers that nobody removes.
    Closed,
}

impl OsworldSource {
    /// A source for a configuration.
    pub fn new(config: Config) -> Self {
        Self { config, texts: None, film: false, state: Mutex::default() }
    }

    /// With a video of every episode, for [`RecordedSource`](crate::RecordedSource).
    #[must_use]
    pub fn filmed(self, film: bool) -> Self {
        Self { film, ..self }
    }

    /// The same with these task files instead of those in the configuration's folder.
    pub fn with_texts(config: Config, texts: Vec<TaskText>) -> Self {
        Self { texts: Some(texts), ..Self::new(config) }
    }

    fn files(&self) -> Result<Vec<SuiteTask>, SuiteError> {
        self.texts.as_deref().map_or_else(|| files(&self.config), parsed)
    }

    /// What its desktops share, created on first use.
    fn shared(&self) -> Result<Arc<Shared>, SuiteError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            SourceState::Open(shared) => Ok(Arc::clone(shared)),
            SourceState::Closed => Err(SuiteError::Service("the desktops are closed".into())),
            SourceState::New => {
                let created = Arc::new(shared_by(&self.config, self.files()?, self.film)?);
                *state = SourceState::Open(Arc::clone(&created));
                Ok(created)
            }
        }
    }
}

impl EnvironmentSource for OsworldSource {
    fn tasks(&self) -> Result<Vec<Task>, SuiteError> {
        Ok(self.files()?.into_iter().map(task).collect())
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn open(&self) -> Result<(), SuiteError> {
        self.shared().map(drop)
    }

    fn make(&self, _: usize) -> Result<Box<dyn Environment>, EnvironmentError> {
        let shared = self.shared().map_err(|error| EnvironmentError::Broken { reason: error.to_string() })?;
        Ok(Box::new(OsworldDesktop::new(shared)))
    }

    fn close(&self) -> Result<(), SuiteError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, SourceState::Closed) {
            SourceState::Open(shared) => {
                shared.desktops.close().map_err(|error| SuiteError::Service(error.to_string()))
            }
            SourceState::New | SourceState::Closed => Ok(()),
        }
    }
}

fn shared_by(config: &Config, files: Vec<SuiteTask>, film: bool) -> Result<Shared, SuiteError> {
    let wanted = &config.osworld;
    let problem = |error: &dyn std::fmt::Display| SuiteError::Service(error.to_string());
    let tasks: BTreeMap<String, SuiteTask> = files.into_iter().map(|task| (task.name(), task)).collect();
    let generation = wanted.generation.unwrap_or_else(|| guest_generation(&tasks));
    let sources = Sources {
        offline: wanted.offline,
        mirror: (!wanted.mirror.is_empty()).then(|| wanted.mirror.clone()),
        ..Sources::default()
    };
    let cache = Cache::new(&wanted.cache, sources).map_err(|error| problem(&error))?;
    let options =
        Options { run: format!("arpo-{}", std::process::id()), machine: machine(wanted, generation)? };
    let provider = Provider::new(options).map_err(|error| problem(&error))?;
    let spares = if provider.starts_fresh() { wanted.spares } else { 0 };
    Ok(Shared {
        tasks,
        desktops: Spares::new(provider, spares),
        cache,
        options: EpisodeOptions { film, ..episode_options(config) },
    })
}

/// The generation of the server in the guests, which tasks of both generations share: the later one if any needs it.
fn guest_generation(tasks: &BTreeMap<String, SuiteTask>) -> Generation {
    let is_later = tasks.values().any(|task| task.task.generation == Generation::Verified);
    if is_later { Generation::Verified } else { Generation::ArpoEra }
}

fn machine(wanted: &OsworldConfig, generation: Generation) -> Result<Machine, SuiteError> {
    let some = |number: f64| (number > 0.0).then_some(number);
    let network = match wanted.network {
        NetworkChoice::Internal => Network::Isolated,
        NetworkChoice::InternalOpenToHost => Network::Internal,
        NetworkChoice::Bridge => Network::Bridge,
    };
    Ok(match wanted.desktop {
        DesktopChoice::Container => Machine::Container(Container {
            image: wanted.image.clone(),
            limits: Limits {
                memory_bytes: some(wanted.memory_gib).map(|gib| (gib * GIB) as u64),
                cpus: some(wanted.processors),
                processes: (wanted.processes > 0).then_some(wanted.processes),
                ..Limits::default()
            },
            network,
            environment: environment(wanted, generation),
            ..Container::default()
        }),
        DesktopChoice::Vm => {
            Machine::Vm(Vm { image: wanted.vm_image.clone(), ..Vm::new(PathBuf::from(&wanted.vm_disk)) })
        }
        DesktopChoice::Running => {
            let addresses = wanted.running.iter().map(|address| Addresses::parse(address));
            let addresses: Result<Vec<Addresses>, _> = addresses.collect();
            Machine::Fixed(
                addresses
                    .map_err(|error| SuiteError::Configuration(format!("`osworld.running`: {error}")))?,
            )
        }
    })
}

fn environment(wanted: &OsworldConfig, generation: Generation) -> Vec<String> {
    let generation = format!("ARPO_DESKTOP_GENERATION={}", generation.key());
    let zone = (!wanted.time_zone.is_empty()).then(|| format!("ARPO_TIMEZONE={}", wanted.time_zone));
    zone.into_iter()
        .chain([generation])
        .chain(token(wanted).map(|token| format!("{TOKEN_VARIABLE}={token}")))
        .collect()
}

fn token(wanted: &OsworldConfig) -> Option<String> {
    (!wanted.token.is_empty()).then(|| wanted.token.clone())
}

fn grammar(config: &Config) -> Grammar {
    match config.agent.style {
        StyleChoice::Auto | StyleChoice::Uitars => Grammar::Uitars,
        StyleChoice::ComputerUse | StyleChoice::Evocua => Grammar::ComputerUse,
    }
}

fn episode_options(config: &Config) -> EpisodeOptions {
    let wanted = &config.osworld;
    EpisodeOptions {
        grammar: grammar(config),
        settle: Duration::from_secs_f64(wanted.settle_seconds),
        pause: Duration::from_secs_f64(wanted.pause_seconds),
        freeze: wanted.freeze && wanted.desktop != DesktopChoice::Running,
        calls_tolerated: wanted.calls_tolerated,
        give_up_at: (wanted.give_up_at > 0).then_some(wanted.give_up_at),
        generation: wanted.generation,
        password: wanted.password.clone(),
        token: token(wanted),
        film: false,
        accounts: accounts(wanted),
    }
}
