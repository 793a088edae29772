//! Collecting and learning.
//!
//! | to change | look in |
//! |---|---|
//! | how a conversation becomes tokens, and which of them are trained | [`dialogue`] |
//! | what the agent is made of besides its weights | [`agent`] |
//! | which style an agent has | [`style_choice`] |
//! | the environments port: tasks and desktops of a suite | [`arpo_suite`] |
//! | the rollout-policy port: the engine, a chat server, a script | [`policy`] |
//! | the learner port: micro-batches, updates | [`learner`] |
//! | how episodes are collected on many desktops | [`collect`] |
//! | an episode while it is collected, and after | [`episode`] |
//! | replay, rewards and advantages: from groups to a batch | [`batch`] |
//! | the updates of an iteration | [`updates`] |
//! | demonstrations: oracle episodes, questions about screens | [`demonstrations`] |
//! | plans that guide rollouts | [`hints`] |
//! | supervised training | [`supervised`] |
//! | rejection sampling, DPO, KTO | [`offline`] |
//! | the training loop | [`trainer`] |
//! | the run folder, checkpoints, resuming | [`run`] |
//! | the memory that a run needs, and errors when it runs out | [`memory_plan`], [`memory`] |

pub mod agent;
pub mod base_model;
pub mod batch;
pub mod collect;
pub mod demonstrations;
pub mod dialogue;
pub mod episode;
mod episode_screen;
mod error;
pub mod hints;
mod images;
pub mod learner;
pub mod memory;
pub mod memory_plan;
pub mod offline;
pub mod policy;
pub mod run;
pub mod screens;
pub mod style_choice;
pub mod supervised;
pub mod trainer;
pub mod updates;

pub use error::TrainError;
