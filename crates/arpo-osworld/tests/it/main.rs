//! Tests of the public interface: against OSWorld's own scores, against a fake guest, on hostile input.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod cache;
mod client;
mod environment;
mod fake_google;
mod fake_guest;
mod files;
mod getters;
mod golden;
mod google_account;
mod google_drive;
mod google_retries;
mod hostile;
mod image_text;
mod own_tasks;
mod sandbox;
mod scoring;
mod server;
mod setup;
mod sounds;
mod suites;
mod videos;
