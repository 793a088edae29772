//! Tests of the public interface: compared with transformers' results, and with invalid checkpoints.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod checkpoints;
mod golden;
mod golden_model;
mod optimiser_file;
mod overlap;
mod ranks;
mod trainable_model;
