//! Tests of the public interface: against the reference's own answers, by properties, and of the configuration.

mod config;
mod golden;
mod golden_policy_loss;
mod golden_replay;
mod loss_properties;
mod replay_properties;
