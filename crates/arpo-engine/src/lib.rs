//! Rollout inference: what the policy answers, for many episodes at once.
//!
//! | to change | look in |
//! |---|---|
//! | which requests run, when weights change | [`engine`] |
//! | what is kept of earlier turns, and what is forgotten | `pages`, `cache` |
//! | what new tokens see | `attention` |
//! | how a single new token is computed on a GPU | `single` |
//! | how tokens are drawn | [`sampling`] |
//! | which pictures are encoded | [`pictures`] |

mod attention;
mod cache;
pub mod engine;
mod pages;
pub mod pictures;
pub mod sampling;
pub mod sequence;
mod single;

pub use engine::{Completion, Engine, EngineError, EngineOptions};
pub use pictures::{KnownFeatures, Screenshot};
pub use sampling::Sampling;
pub use sequence::{Ended, Request};
