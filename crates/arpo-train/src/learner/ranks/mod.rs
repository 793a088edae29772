//! A learner that is several processes, its ranks. In a synchronous run with the built-in engine all of them also sample
//! ([`crate::policy::ranks`]), with the weights that they train, unless other ranks do only that (`learn.gpus`).
//!
//! Rank 0 is the trainer's own process. It hands out the slices of every update, and the others compute their share as it
//! computes its own: in rounds, one micro-batch of each rank a round. After its forward pass a rank sends rank 0 its
//! log-probabilities and gets the loss's coefficients, because only rank 0 knows the loss. Then gradients are summed between
//! the ranks, each rank updates its shard of the weights, and these are gathered in place (`arpo_model::training::shard`).
//! With `learn.zero_stage` = 1 gradients are summed while the backward pass of the last round goes on; with 2 while that of
//! every round does. All ranks take part, also one without a micro-batch (`arpo_model::training::gradients`).
//!
//! The order of everything that rank 0 computes is fixed by rounds and ranks, not by who is first, so that runs with the same
//! number of ranks are the same to the bit where one process's are: shown with one thread of libtorch for each rank.
//!
//! | to change | look in |
//! |---|---|
//! | which rank computes which slices | `division` |
//! | what rank 0 and the others say to each other | `messages` |
//! | rank 0 | [`leader`] |
//! | what rank 0 knows of the others | `others` |
//! | the other ranks | [`follower`] |
//! | how a run's ranks are started and given their model | [`crate::trainer::ranks`] |

mod division;
pub mod follower;
pub mod leader;
pub(crate) mod messages;
mod others;

pub use division::SliceCosts;
pub use leader::RankedLearner;
pub use others::SharedRanks;

use arpo_model::training::nccl::NcclTensors;
use arpo_model::training::ranks::HostTensors;
use arpo_ranks::{Collectives, Group};
use tch::Tensor;

/// Operations on tensors between ranks, and the group for everything else.
pub trait RankTensors: Collectives<Tensor> + std::fmt::Debug + Send {
    /// The group.
    fn group(&self) -> &Group;
}

impl RankTensors for HostTensors {
    fn group(&self) -> &Group {
        Self::group(self)
    }
}

impl RankTensors for NcclTensors {
    fn group(&self) -> &Group {
        Self::group(self)
    }
}
