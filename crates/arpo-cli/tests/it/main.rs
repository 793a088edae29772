//! Tests of the program from a user's point of view, and of the structure of the workspace.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench_collect;
mod cluster;
mod commands;
mod env_commands;
mod generated_tasks;
mod osworld_eval;
mod ranks;
mod serving;
mod stopping;
mod structure;
mod training;
mod viewing;
