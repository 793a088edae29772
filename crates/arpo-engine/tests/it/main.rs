//! The engine against the model computed without a cache, and against itself: alone, in company, short of memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod engine;
mod episode;
#[path = "../../../arpo-model/tests/it/golden.rs"]
#[expect(dead_code, reason = "the golden model of the model's own tests; here only a part of it is needed")]
mod golden;
