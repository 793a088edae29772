//! The engine compared with the model without a cache, and with itself: unbatched, batched, short of memory.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod engine;
mod episode;
#[path = "../../../arpo-model/tests/it/golden.rs"]
#[expect(dead_code, reason = "the golden model of arpo-model's tests; only a part of it is used here")]
mod golden;
