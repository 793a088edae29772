//! The section for a learner that is several processes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A learner that is several processes, its ranks, each with a device of its own: they share the episodes of every update and
/// divide the optimiser's moments between them. In a synchronous run with the built-in engine they share the sampling, too, each
/// with the weights that it trains; with `learn.gpus` some of them only sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LearnConfig {
    /// Processes that sample and learn together, this one included. `--gpus` sets it, too. Sums are rounded
    /// differently with another number, so that single episodes differ; a run may be resumed with any number.
    #[schemars(range(min = 1, max = 1024))]
    pub ranks: usize,
    /// How many of them learn, the first ones; the others only sample, and are sent the weights after the updates of every
    /// iteration. So an overlapped run (`collect.mode`) samples on some GPUs while it learns on the others. Only with the built-in
    /// engine. 0: all learn.
    #[schemars(range(max = 1024))]
    pub gpus: usize,
    /// How many of them are on this machine, one for each GPU; the others join with `arpo train --join HOST:PORT`. 0: all.
    #[schemars(range(max = 1024))]
    pub local: usize,
    /// What is divided between the ranks that learn: 1, the optimiser's moments; 2, the gradients, too, which takes less memory,
    /// but they are summed between the ranks after every micro-batch instead of once an update.
    #[schemars(range(min = 1, max = 2))]
    pub zero_stage: usize,
    /// The address that this program listens on for the other ranks. Empty: any free port of this machine, for its own only, or
    /// `0.0.0.0:7701` if others join. Beyond this machine a token is required: the same `ARPO_CLUSTER_TOKEN` in the
    /// environment of every rank.
    pub listen: String,
    /// How long a run waits for all ranks to join, in seconds.
    #[schemars(range(min = 1.0, max = 86_400.0))]
    pub start_seconds: f64,
    /// Longest wait for another rank, in seconds: for it to come to a sum, or to complete a micro-batch or a pass of sampling. A
    /// rank that is later ends the run, which can be resumed; a rank that dies ends it at once.
    #[schemars(range(min = 1.0, max = 86_400.0))]
    pub deadline_seconds: f64,
}

impl Default for LearnConfig {
    fn default() -> Self {
        Self {
            ranks: 1,
            gpus: 0,
            local: 0,
            zero_stage: 1,
            listen: String::new(),
            start_seconds: 300.0,
            deadline_seconds: 600.0,
        }
    }
}

impl LearnConfig {
    /// How many of the ranks are on this machine.
    pub fn local_ranks(&self) -> usize {
        if self.local == 0 { self.ranks } else { self.local }
    }

    /// How many ranks learn.
    pub fn learners(&self) -> usize {
        if self.gpus == 0 { self.ranks } else { self.gpus }
    }

    /// How many ranks only sample.
    pub fn samplers(&self) -> usize {
        self.ranks.saturating_sub(self.learners())
    }

    /// Whether some ranks only learn and the others only sample.
    pub fn is_split(&self) -> bool {
        self.samplers() > 0
    }

    /// Whether the gradients are divided between the ranks.
    pub fn shards_gradients(&self) -> bool {
        self.zero_stage > 1 && self.learners() > 1
    }

    /// An error if more ranks learn, or are here, than there are.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.gpus > self.ranks {
            return Err(format!(
                "`learn.gpus` = {}: expected at most `learn.ranks`, which is {}, or 0 if all learn",
                self.gpus, self.ranks
            ));
        }
        if self.local > self.ranks {
            return Err(format!(
                "`learn.local` = {}: expected at most `learn.ranks`, which is {}",
                self.local, self.ranks
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_are_here_unless_fewer_are_asked_for() {
        let of = |ranks, local| LearnConfig { ranks, local, ..LearnConfig::default() };
        assert_eq!((of(8, 0).local_ranks(), of(16, 8).local_ranks()), (8, 8));
        assert!(of(16, 8).check().is_ok() && of(1, 0).check().is_ok());
        assert!(of(2, 3).check().unwrap_err().starts_with("`learn.local` = 3: expected at most"));
    }

    #[test]
    fn all_ranks_learn_unless_some_only_sample() {
        let of = |ranks, gpus| LearnConfig { ranks, gpus, zero_stage: 2, ..LearnConfig::default() };
        let roles = |learn: &LearnConfig| (learn.learners(), learn.samplers(), learn.is_split());
        assert_eq!(roles(&of(8, 0)), (8, 0, false));
        assert_eq!(roles(&of(8, 6)), (6, 2, true));
        assert_eq!(roles(&of(4, 4)), (4, 0, false));
        // one rank that learns has nobody to divide its gradients with
        assert!(of(8, 6).shards_gradients() && !of(8, 1).shards_gradients());
        assert!(of(8, 6).check().is_ok());
        assert_eq!(
            of(2, 4).check().unwrap_err(),
            "`learn.gpus` = 4: expected at most `learn.ranks`, which is 2, or 0 if all learn"
        );
    }
}
