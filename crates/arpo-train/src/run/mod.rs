//! The run folder: everything a run writes, and everything it needs to resume.
//!
//! ```text
//! config.toml              the resolved configuration
//! run.json                 when and where the run was started, and how it ended
//! metrics.jsonl            one line per iteration
//! failures.jsonl           one line per failure of a desktop
//! status.json, live/       what the run and its desktops are doing now
//! episodes/                episodes of training and evaluation
//! checkpoints/step-000123/ model/ (Hugging Face's layout), optimiser.safetensors, state.json, manifest.json
//! best/                    model/ and best.json of the best checkpoint
//! screens/ab/abcd….png     screenshots by digest, shared by the replay buffer and all checkpoints
//! ```
//!
//! | to change | look in |
//! |---|---|
//! | what a folder must hold; its lock | [`folder`]; `lock` |
//! | how checkpoints are kept, found and checked | [`checkpoints`], `manifest` |
//! | what a checkpoint of a training run is made of | [`training_state`] |
//! | atomic writes | `durable` |
//! | what may change when a run resumes | [`config_changes`] |
//! | screenshots | [`screens`] |
//! | how episodes are stored and read back | [`episodes`] |
//! | what a run writes for a viewer, on a thread of its own | [`recording`] |
//! | when and where a run was started | [`about`] |
//! | metrics | [`metrics`] |
//! | stopping a run | [`stop`] |
//! | the events of a run | [`events`] |
//! | lines for the user from any thread | [`notices`] |

pub mod about;
pub mod checkpoints;
pub mod config_changes;
mod durable;
pub mod episodes;
mod error;
pub mod events;
pub mod folder;
pub(crate) mod lock;
mod manifest;
pub mod metrics;
pub mod notices;
pub mod recording;
pub mod screens;
pub mod stop;
pub mod training_state;

pub use error::RunError;
pub use folder::{RunFolder, Start};
