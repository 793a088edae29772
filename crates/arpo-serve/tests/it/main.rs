//! A server with the pocket model, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod chat;
mod fixture;
mod fuzzed;
mod ids;
mod limits;
