//! The sections for OSWorld: its desktops, how its tasks are run, and chat servers as the policy.

use crate::generation::Generation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// OSWorld's tasks and desktops, for `tasks.suite = "osworld"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OsworldConfig {
    /// The folder of task files: the one that contains `examples`.
    pub tasks: String,
    /// The folder of OSWorld's settings files, which hold the user's own Google account (`google/settings.json`,
    /// `googledrive/settings.yml`). Empty: `settings` beside `examples`.
    pub settings: String,
    /// Skip tasks that need a metric, getter or set-up step that is not implemented, a program that is not installed, or an
    /// account without credentials; `arpo eval` names them. Otherwise such a task is an error.
    pub skip_missing: bool,
    /// The kind of desktop.
    pub desktop: DesktopChoice,
    /// The image of the container desktop; `./x image` builds it.
    pub image: String,
    /// The image that runs the virtual machine.
    pub vm_image: String,
    /// The disk of the virtual machine.
    pub vm_disk: String,
    /// Desktops that are already running, as `http://host:port`.
    pub running: Vec<String>,
    /// The bearer token of the servers in desktops. Empty: a random one for every run of containers, none for running desktops.
    pub token: String,
    /// The cache of downloaded task files. A cache of OSWorld's own can be used as it is.
    pub cache: String,
    /// Download nothing: a file that is not in the cache is an error that names it.
    pub offline: bool,
    /// A mirror that replaces `https://huggingface.co`; empty for none.
    pub mirror: String,
    /// Which network containers can reach.
    pub network: NetworkChoice,
    /// Memory limit of a container in GiB; 0 for no limit.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub memory_gib: f64,
    /// CPU limit of a container; 0 for no limit.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub processors: f64,
    /// Process limit of a container; 0 for no limit.
    #[schemars(range(max = 1_000_000))]
    pub processes: u32,
    /// Containers started in advance, so that a reset does not wait for one.
    #[schemars(range(max = 1000))]
    pub spares: usize,
    /// The container desktop's time zone. Not UTC, because a task of OSWorld asks for that.
    pub time_zone: String,
    /// Seconds to wait after the set-up of a task, before the first screenshot.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub settle_seconds: f64,
    /// Seconds to wait after every action, before its screenshot.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub pause_seconds: f64,
    /// Pause containers while the policy generates.
    pub freeze: bool,
    /// `call_user()` counts as a wait this many times, then as giving up.
    #[schemars(range(max = 1000))]
    pub calls_tolerated: usize,
    /// The response at this turn counts as giving up, as in OSWorld's agent for UI-TARS; 0 switches it off (hard mode).
    #[schemars(range(max = 10_000))]
    pub give_up_at: usize,
    /// The OSWorld version whose set-up steps, getters and metrics are used.
    #[serde(with = "super::generation")]
    #[schemars(schema_with = "super::generation::schema")]
    pub generation: Option<Generation>,
    /// The guest's password.
    pub password: String,
}

impl Default for OsworldConfig {
    fn default() -> Self {
        Self {
            tasks: "evaluation_examples".into(),
            settings: String::new(),
            skip_missing: false,
            desktop: DesktopChoice::Container,
            image: "arpo-desktop:latest".into(),
            vm_image: "happysixd/osworld-docker".into(),
            vm_disk: "docker_vm_data/Ubuntu.qcow2".into(),
            running: vec![],
            token: String::new(),
            cache: "cache".into(),
            offline: false,
            mirror: String::new(),
            network: NetworkChoice::Internal,
            memory_gib: 3.0,
            processors: 0.0,
            processes: 1024,
            spares: 1,
            time_zone: "America/New_York".into(),
            settle_seconds: 1.0,
            pause_seconds: 0.5,
            freeze: true,
            calls_tolerated: 0,
            give_up_at: 0,
            generation: None,
            password: "password".into(),
        }
    }
}

/// The kind of desktop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DesktopChoice {
    /// Our container with real applications.
    Container,
    /// OSWorld's virtual machine, in a container.
    Vm,
    /// A desktop that is already running.
    Running,
}

/// What a container can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkChoice {
    /// Nothing: no outside network, no other desktop, no server of the host. A firewall in the container sees to it.
    Internal,
    /// Servers of the host that listen on all its addresses; no outside network, no other desktop. For engines on which
    /// a container can have no firewall.
    InternalOpenToHost,
    /// Whatever Docker's default bridge can reach.
    Bridge,
}

/// A chat server as the policy: `arpo eval --policy chat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChatConfig {
    /// Base URLs of OpenAI-compatible servers.
    pub servers: Vec<String>,
    /// The name of the model on the server.
    pub model: String,
    /// The environment variable that holds the API key, if the server needs one.
    pub key_variable: String,
    /// Nucleus sampling: only the most likely tokens whose probabilities add up to this; 1 for all.
    #[schemars(range(min = 0.01, max = 1.0))]
    pub top_p: f64,
    /// `OpenAI`'s `frequency_penalty`: tokens become less likely the more often a response contains them. 0 for none;
    /// OSWorld's agent uses 1.
    #[schemars(range(min = -2.0, max = 2.0))]
    pub frequency_penalty: f64,
    /// Timeout of one request, in seconds.
    #[schemars(range(min = 0.1, max = 86_400.0))]
    pub limit_seconds: f64,
    /// Maximum number of requests for one response.
    #[schemars(range(min = 1, max = 100))]
    pub tries: u32,
    /// Send a seed with every request, for servers that then answer the same again. vLLM 0.32 on a CPU (not on a GPU) dies of
    /// seeded requests when it splits long prompts.
    pub seeded: bool,
    /// Retry at temperature 1 if a response cannot be parsed, as OSWorld's agent does; otherwise it ends the episode, as
    /// with the built-in engine.
    pub retry_unparsable: bool,
}

impl Default for ChatConfig {
    fn default() -> Self {
        Self {
            servers: vec!["http://127.0.0.1:9000/v1".into()],
            model: "ui-tars".into(),
            key_variable: "OPENAI_API_KEY".into(),
            top_p: 1.0,
            frequency_penalty: 0.0,
            limit_seconds: 300.0,
            tries: 3,
            seeded: true,
            retry_unparsable: false,
        }
    }
}
