//! The server against a real X server, which is started for each test and ended with it. Where Xvfb is not installed
//! these tests say so and pass.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

mod display;
mod guest;
mod image;
mod input;
mod screen;
mod windows;
