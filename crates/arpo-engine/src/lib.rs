//! Rollout inference: the policy's responses, for many episodes at once.
//!
//! | to change | look in |
//! |---|---|
//! | which requests run, when weights change | [`engine`] |
//! | options, completions, errors, counters | `interface` |
//! | prefix caching across turns, and eviction | `pages`, `cache` |
//! | attention of new tokens over the cache | `attention` |
//! | how tokens are sampled | [`sampling`] |
//! | which images are encoded, and the cache of their features | [`image_features`] |

mod attention;
mod cache;
pub mod engine;
pub mod image_features;
mod interface;
mod pages;
pub mod sampling;
pub mod sequence;

pub use engine::Engine;
pub use image_features::{FeatureCache, ImageSource, Screenshot};
pub use interface::{Completion, EngineCounts, EngineError, EngineLoad, EngineOptions, RequestId};
pub use sampling::{Penalties, SampledToken, Sampling};
pub use sequence::{FinishReason, Request};
