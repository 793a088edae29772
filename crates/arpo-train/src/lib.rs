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

pub mod agent;
pub mod collect;
pub mod demonstrations;
pub mod dialogue;
pub mod episode;
mod error;
pub mod policy;
pub mod supervised;

pub use error::TrainError;
