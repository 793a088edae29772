//! Tests of the program from a user's point of view, and of the structure of the workspace.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench_collect;
mod cluster;
mod commands;
mod env_commands;
mod generated_tasks;
mod osworld_eval;
mod rank_split;
mod ranks;
mod seeding;
mod serving;
mod stopping;
mod structure;
mod training;
mod viewing;
#[path = "../../../arpo-ranks/tests/it/wire.rs"]
mod wire;

use std::time::{Duration, Instant};

/// Waits until something holds, and fails if it never does.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(3);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
