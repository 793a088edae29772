//! The program as a user meets it, and the workspace as the design says it is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench_collect;
mod commands;
mod env_commands;
mod generated_tasks;
mod osworld_eval;
mod stopping;
mod structure;
mod training;
