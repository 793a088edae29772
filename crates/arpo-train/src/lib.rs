//! Collecting and learning.
//!
//! | to change | look in |
//! |---|---|
//! | how a conversation becomes tokens, which of them are the agent's | [`dialogue`] |
//! | what the agent is made of besides its weights | [`agent`] |
//! | how episodes are played by the engine | [`rollout`] |
//! | what is imitated: oracle episodes, questions about screens | [`demonstrations`] |
//! | supervised training | [`supervised`] |
//! | what a run leaves on disk and goes on from | [`run`] |

pub mod agent;
pub mod demonstrations;
pub mod dialogue;
mod error;
pub mod rollout;
pub mod run;
pub mod supervised;

pub use error::TrainError;
