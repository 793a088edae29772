//! What an agent reads and what its words mean, pure: text and geometry, no model, no desktop.
//!
//! | to change | look in |
//! |---|---|
//! | what the model is told | [`prompt`], [`conversation`] |
//! | which screenshots it still sees, and so in which slices an episode is trained | [`window`] |
//! | which tokens are trained | [`labels`] |
//! | how a response becomes actions | [`parse`] (thought and action), `grammar` (calls), `vocabulary` (their meaning) |
//! | how actions become text again | [`render`] |
//! | how pixels of the model become pixels of the screen | [`geometry`] |
//! | what an OSWorld desktop is sent | [`pyautogui`] |

pub mod conversation;
pub mod geometry;
mod grammar;
pub mod labels;
pub mod parse;
pub mod prompt;
pub mod pyautogui;
pub mod render;
mod vocabulary;
pub mod window;
