//! Conversations become the tokens transformers makes of them, episodes are collected whatever fails and are what the
//! engine sampled, and imitation makes what is imitated likelier.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod batches;
mod collecting;
mod dialogue;
mod embedded;
mod learning;
mod reinforcement;
mod run_checkpoints;
mod run_folder;
mod run_processes;
mod run_training_state;
mod slices;
mod toy;
