//! The server inside a desktop container: the guest that OSWorld's clients expect.
//!
//! | to change | look in |
//! |---|---|
//! | which Python of clients runs natively | [`script`] |
//! | how commands run | [`command`] |
//! | the screen, the pointer and the keyboard | [`x11`] |
//! | the accessibility tree | [`tree`] |
//! | the HTTP interface | [`server`] |
//! | command-line options | [`options`] |
//! | the session's programs and their bus | [`session`] |
//! | what process 1 does | [`init`] |

pub mod command;
pub mod init;
pub mod options;
pub mod script;
pub mod server;
pub mod session;
pub mod tree;
pub mod x11;
