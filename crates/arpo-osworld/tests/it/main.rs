//! Tests of the public interface: against OSWorld's own scores, against a guest that is not there, on hostile input.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cache;
mod client;
mod environment;
mod fake_guest;
mod getters;
mod golden;
mod hostile;
mod judgement;
mod server;
mod setup;
mod sounds;
mod suites;
