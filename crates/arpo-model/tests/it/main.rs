//! Tests of the public interface: against transformers' own answers, and of checkpoints that are not what they seem.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod checkpoints;
mod golden;
mod golden_model;
mod learner;
mod optimiser_file;
