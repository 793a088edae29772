//! The run folder: everything a run leaves behind, and everything it needs to go on.
//!
//! ```text
//! config.toml              the resolved configuration
//! metrics.jsonl            one line per iteration
//! episodes/                what was collected
//! checkpoints/step-000123/ model/ (Hugging Face's layout), optimiser.safetensors, state.json, manifest.json
//! best/                    model/ and best.json of the checkpoint that did best
//! screens/ab/abcd….png     screenshots by digest, shared by the replay buffer and all checkpoints
//! ```
//!
//! | to change | look in |
//! |---|---|
//! | who may write, what a folder must hold | [`folder`] |
//! | how checkpoints are kept, found and checked | [`checkpoints`], `manifest` |
//! | what a checkpoint of a training run is made of | [`training_state`] |
//! | how files come to be whole or not at all | `durable` |
//! | what may change when a run goes on | [`resume`] |
//! | screenshots | [`screens`] |
//! | episodes read back | [`episodes`] |
//! | metrics | [`metrics`] |
//! | how a run is asked to stop | [`stop`] |
//! | what a run tells whoever watches | [`events`] |

pub mod checkpoints;
mod durable;
pub mod episodes;
mod error;
pub mod events;
pub mod folder;
mod manifest;
pub mod metrics;
pub mod resume;
pub mod screens;
pub mod stop;
pub mod training_state;

pub use error::RunError;
pub use folder::{RunFolder, Start};
