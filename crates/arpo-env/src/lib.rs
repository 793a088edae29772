//! Environments: the contract they all keep, and the embedded desktop with its applications, tasks and oracle.

pub(crate) mod apps;
pub mod conformance;
pub mod desktop;
pub(crate) mod draw;
pub mod embedded;
pub mod environment;
pub mod evaluator;
pub mod faults;
pub mod grounding;
pub(crate) mod interact;
pub mod keys;
pub mod layout;
pub mod letters;
pub mod look;
pub mod offscreen;
pub mod oracle;
pub mod policies;
pub mod scores;
mod screen;
pub mod setup;
pub mod speed;
pub mod tasks;
pub mod view;
pub mod world;
