//! The sections for OSWorld: its desktops, how its tasks are played, and the chat server that may play them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// OSWorld's tasks and the desktops they are played on, for `tasks.suite = "osworld"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OsworldConfig {
    /// The folder of task files: the one that holds `examples`.
    pub tasks: String,
    /// Leave out tasks that need a metric, getter or set-up step that is not here, which `arpo eval` names; otherwise
    /// they are an error.
    pub skip_missing: bool,
    /// What a desktop is.
    pub desktop: DesktopChoice,
    /// The container desktop's image; `desktop/build` makes it.
    pub image: String,
    /// The image that runs the virtual machine ...
    pub vm_image: String,
    /// ... and the machine's disk.
    pub vm_disk: String,
    /// Desktops that run already, `http://host:port`, with spaces between several.
    pub running: String,
    /// The bearer's token that their servers ask for; empty for none.
    pub token: String,
    /// Where files of tasks are kept once they were fetched. OSWorld's own cache is used as it is.
    pub cache: String,
    /// Fetch nothing: a file that is not in the cache is an error that names it.
    pub offline: bool,
    /// Takes the place of `https://huggingface.co`; empty for none.
    pub mirror: String,
    /// Whether containers reach the network.
    pub network: NetworkChoice,
    /// Memory of a container in GiB; 0 for no limit.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub memory_gib: f64,
    /// Processors of a container; 0 for no limit.
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub processors: f64,
    /// Processes in a container; 0 for no limit.
    #[schemars(range(max = 1_000_000))]
    pub processes: u32,
    /// Containers started ahead, so that a reset does not wait for one.
    #[schemars(range(max = 1000))]
    pub spares: usize,
    /// The container desktop's time zone. Not UTC, because a task of OSWorld asks for that.
    pub time_zone: String,
    /// Seconds after the set-up of a task, before the first screenshot.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub settle_seconds: f64,
    /// Seconds after every action, before its screenshot.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub pause_seconds: f64,
    /// Containers stand still while the policy thinks.
    pub freeze: bool,
    /// The agent may call the user so often before that is giving up.
    #[schemars(range(max = 1000))]
    pub calls_tolerated: usize,
    /// What the agent says at this turn is giving up, as in OSWorld's agent for UI-TARS; 0 for the hard mode without.
    #[schemars(range(max = 10_000))]
    pub give_up_at: usize,
    /// Whose functions tasks are prepared and judged with.
    pub generation: GenerationChoice,
    /// The guest's password.
    pub password: String,
    /// A Python on this host that may run files of the guest, for the two tasks whose checker is a Python file; empty
    /// for none.
    pub python: String,
}

impl Default for OsworldConfig {
    fn default() -> Self {
        Self {
            tasks: "evaluation_examples".into(),
            skip_missing: false,
            desktop: DesktopChoice::Container,
            image: "arpo-desktop:latest".into(),
            vm_image: "happysixd/osworld-docker".into(),
            vm_disk: "docker_vm_data/Ubuntu.qcow2".into(),
            running: String::new(),
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
            generation: GenerationChoice::Task,
            password: "password".into(),
            python: String::new(),
        }
    }
}

/// What a desktop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DesktopChoice {
    /// Our container with real applications.
    Container,
    /// OSWorld's virtual machine, in a container.
    Vm,
    /// One that runs already.
    Running,
}

/// What a container reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkChoice {
    /// Nothing outside, and no other desktop.
    Internal,
    /// Whatever the engine's own bridge reaches.
    Bridge,
}

/// A generation of OSWorld.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GenerationChoice {
    /// As each task file says.
    Task,
    /// As ARPO used it.
    ArpoEra,
    /// After OSWorld's own revision.
    Verified,
}

/// A chat server that acts: `arpo eval --policy chat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChatConfig {
    /// Addresses of OpenAI-compatible servers, with spaces between several.
    pub servers: String,
    /// The model's name there.
    pub model: String,
    /// The environment variable that holds the key, where a server asks for one.
    pub key_variable: String,
    /// Only the likeliest tokens that together have this probability; 1 for all.
    #[schemars(range(min = 0.01, max = 1.0))]
    pub top_p: f64,
    /// The `frequency_penalty` of `OpenAI`: tokens become less likely the more often a response has them. 0 for what the model
    /// says by itself; OSWorld's agent has 1.
    #[schemars(range(min = -2.0, max = 2.0))]
    pub frequency_penalty: f64,
    /// For one request.
    #[schemars(range(min = 0.1, max = 86_400.0))]
    pub limit_seconds: f64,
    /// Requests for one response at most.
    #[schemars(range(min = 1, max = 100))]
    pub tries: u32,
    /// Ask again, at temperature 1, for a response that cannot be parsed, as OSWorld's agent does; otherwise it ends the
    /// episode, as it does in the built-in engine.
    pub retry_unparsable: bool,
}

impl Default for ChatConfig {
    fn default() -> Self {
        Self {
            servers: "http://127.0.0.1:9000/v1".into(),
            model: "ui-tars".into(),
            key_variable: "OPENAI_API_KEY".into(),
            top_p: 1.0,
            frequency_penalty: 0.0,
            limit_seconds: 300.0,
            tries: 3,
            retry_unparsable: false,
        }
    }
}
