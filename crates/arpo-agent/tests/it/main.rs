//! Tests of the public interface: against the reference's own answers, by properties, and by a million inputs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod golden;
mod golden_actions;
mod golden_conversation;
mod golden_labels;
mod parser_properties;
mod parser_survives;
