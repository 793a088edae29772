//! The processes of one learner, its ranks: how they find each other, sums and copies between them, and what happens when
//! one of them is lost.
//!
//! Rank 0 listens, the others dial it ([`rendezvous`]). Afterwards there are two kinds of connections. Each rank keeps one
//! with rank 0, for messages and signs of life ([`group`]); and the ranks form a ring over which values travel ([`ring`]).
//!
//! Every wait has an end. Rank 0 waits for an answer for the deadline, which begins again with every step of work that the
//! other rank completes; in a sum or copy every rank waits for its neighbour for the deadline. The others wait for what rank 0
//! says next as long as it lives: until its connection ends, or nothing, not even a sign of life, has come for the time of
//! silence. A rank that dies, hangs or is cut off, rank 0 included, ends the group: every other rank gets an error that names it.
//!
//! | to change | look in |
//! |---|---|
//! | who is let in, which rank and which group it gets | [`rendezvous`], [`token`] |
//! | which address of a name is connected to | [`connect`] |
//! | signs of life and of progress, messages, who is blamed for a failure | [`group`], `watch` |
//! | how sums and copies travel; sums beside a computation | [`ring`]; `async_reduce` |
//! | the types of values | [`values`] |
//! | how messages are delimited | [`frame`] |
//! | what ranks say to each other, and how long it may be | `hello`, `kind` |

mod async_reduce;
pub mod connect;
pub mod deadline;
mod error;
pub mod frame;
pub mod group;
mod hello;
mod kind;
pub mod rendezvous;
pub mod ring;
pub mod token;
pub mod values;
mod watch;

pub use error::RankError;
pub use group::{Group, GroupOptions, Message, Sentinel};
pub use values::{HostValues, Parts};

use std::time::Duration;

/// Operations that all ranks of a group carry out together, in the same order. `B` is a buffer of values: memory of the host
/// ([`HostValues`]), or a tensor on a device.
///
/// Sums have a fixed order, so that all ranks get the same bits, and the same in every run.
pub trait Collectives<B> {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Copies the values of `root` to all ranks.
    fn broadcast(&mut self, root: usize, values: &mut B) -> Result<(), RankError>;

    /// Replaces the values by their sums over all ranks.
    fn all_reduce(&mut self, values: &mut B) -> Result<(), RankError>;

    /// Replaces this rank's part of the values by its sums over all ranks; the other parts are then without meaning.
    fn reduce_scatter(&mut self, values: &mut B, parts: &Parts) -> Result<(), RankError>;

    /// Begins [`Self::reduce_scatter`] of some buffers, a bucket, which goes on while this rank computes. Nobody may use a buffer
    /// until [`Self::wait_reduce_scatter`] has returned it. All ranks begin the same buckets in the same order.
    fn reduce_scatter_async(&mut self, bucket: Vec<(B, Parts)>) -> Result<(), RankError>;

    /// Waits until at most `left` buckets are on their way; returns the buffers of the others with their sums, in the order in
    /// which they were begun. Whatever went wrong on the way is an error here, too.
    fn wait_reduce_scatter(&mut self, left: usize) -> Result<Vec<B>, RankError>;

    /// How long computations were held up by [`Self::wait_reduce_scatter`] since this was last asked.
    fn take_wait_time(&mut self) -> Duration;

    /// Copies each rank's part of the values to all ranks.
    fn all_gather(&mut self, values: &mut B, parts: &Parts) -> Result<(), RankError>;

    /// Waits until all ranks are here.
    fn barrier(&mut self) -> Result<(), RankError>;

    /// Ends the group: this and every other rank gets an error with this reason.
    fn abort(&self, reason: &str);

    /// Sums of a few numbers over all ranks, in the order of the ranks, with the precision of `f64`.
    fn all_reduce_f64(&mut self, numbers: &[f64]) -> Result<Vec<f64>, RankError>;
}
