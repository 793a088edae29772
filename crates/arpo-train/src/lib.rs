//! Collecting and learning.
//!
//! | to change | look in |
//! |---|---|
//! | how a conversation becomes tokens, which of them are the agent's | [`dialogue`] |
//! | what the agent is made of besides its weights | [`agent`] |
//! | how episodes are played by the engine | [`rollout`] |
//! | what is imitated: oracle episodes, questions about screens | [`demonstrations`] |
//! | supervised training | [`supervised`] |

pub mod agent;
pub mod base;
pub mod demonstrations;
pub mod dialogue;
mod error;
pub mod layout;
pub mod learn;
pub mod lesson;
mod pictures;
pub mod offline;
pub mod rollout;
pub mod screens;
pub mod supervised;
pub mod trainer;

pub use error::TrainError;
