//! Tests of the public interface: against golden files of the reference, by properties, and of the configuration.

mod config;
mod golden;
mod golden_policy_loss;
mod golden_replay;
mod loss_properties;
mod replay_properties;
