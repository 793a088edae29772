//! The ranks of a run: how the others are started or join, and how they get the model that rank 0 has read.
//!
//! Only rank 0 reads and writes files: base model, checkpoints, run folder. The others are told the configuration and get
//! tokenizer, weights and moments over the network, so that they need nothing but the program and a device. With `learn.gpus`
//! there are two groups, those that learn and those that only sample; rank 0 is in both.
//!
//! | to change | look in |
//! |---|---|
//! | how processes are started, and how they join | `processes` |
//! | what a rank gets from rank 0, and what it makes of that | `model` |
//! | what ranks do afterwards | [`crate::learner::ranks`], [`crate::policy::ranks`] |

mod model;
mod processes;

pub use model::{Shared, connect, give_reference, take_part};
pub(super) use processes::{Gathered, check, gather};
pub use processes::{Processes, join, visible_devices};

use arpo_core::config::{CollectMode, Config, RolloutEngine};

/// Whether all ranks of a run sample, each with the weights that it trains. If sampling and learning overlap, rank 0 alone
/// samples, with a copy, unless some ranks do only that.
pub fn all_sample(config: &Config) -> bool {
    config.rollout.engine == RolloutEngine::Builtin
        && config.collect.mode == CollectMode::Synchronous
        && !config.learn.is_split()
}
