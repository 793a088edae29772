//! What runs inside a desktop container, to be the guest that OSWorld's clients expect.
//!
//! | to change | look in |
//! |---|---|
//! | which Python clients send is carried out without Python | [`script`] |
//! | how commands run | [`command`] |
//! | how the screen is read and worked on | [`x11`] |
//! | how the tree of accessible things is read | [`tree`] |
//! | what is answered to whom | [`server`] |
//! | what the program can be told | [`options`] |
//! | the display's programs and their bus | [`session`] |
//! | what process 1 does | [`init`] |

pub mod command;
pub mod init;
pub mod options;
pub mod script;
pub mod server;
pub mod session;
pub mod tree;
pub mod x11;
