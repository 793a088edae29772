//! Collecting and learning.
//!
//! | to change | look in |
//! |---|---|
//! | how a conversation becomes tokens, which of them are the agent's | [`dialogue`] |
//! | what the agent is made of besides its weights | [`agent`] |
//! | how episodes are played on many desktops | [`collect`] |
//! | what an episode is while it is played, and after | [`episode`] |
//! | who answers: the engine, a script | [`policy`] |
//! | what is imitated: oracle episodes, questions about screens | [`demonstrations`] |
//! | supervised training | [`supervised`] |
//! | what a run leaves on disk and goes on from | [`run`] |
//! | what a run needs of its device, and what happens where that is not enough | [`memory_plan`], [`memory`] |

pub mod agent;
pub mod base_model;
pub mod collect;
pub mod demonstrations;
pub mod dialogue;
pub mod episode;
mod error;
pub mod layout;
pub mod learn;
pub mod lesson;
pub mod memory;
pub mod memory_plan;
pub mod offline;
mod pictures;
pub mod policy;
pub mod run;
pub mod screens;
pub mod supervised;
pub mod trainer;

pub use error::TrainError;
