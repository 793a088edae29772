//! Tests of the public interface: against golden files of the reference, by properties, and with a million inputs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod computer_use_properties;
mod computer_use_survives;
mod golden;
mod golden_actions;
mod golden_computer_use;
mod golden_conversation;
mod golden_labels;
mod parser_properties;
mod parser_survives;
