//! Conversations are tokenised as by transformers, episodes are collected despite failures and match what the engine
//! sampled, and imitation reduces its loss.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod batches;
mod collecting;
mod conformance;
mod coordinator;
mod dialogue;
mod embedded;
mod hints;
mod large_screens;
mod learning;
mod lost_requests;
mod rank_rollouts;
mod rank_split;
mod ranks;
mod recording;
mod reinforcement;
mod run_checkpoints;
mod run_folder;
mod run_processes;
mod run_training_state;
mod served;
mod slices;
mod started_servers;
mod supervised;
mod toy;
