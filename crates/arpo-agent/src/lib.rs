//! Prompts, conversations, the action parser and screen geometry, pure: no model, no desktop.
//!
//! | to change | look in |
//! |---|---|
//! | the prompt and the conversation | [`prompt`], [`conversation`] |
//! | which screenshots stay in the context, and so the slices in which an episode is trained | [`window`] |
//! | which tokens are trained | [`labels`] |
//! | how a response is parsed | [`parse`] (thought and action), `grammar` (calls), `vocabulary` (their meaning) |
//! | how actions are rendered as text | [`render`] |
//! | how coordinates are mapped to the screen | [`geometry`] |
//! | the pyautogui code for OSWorld desktops | [`pyautogui`] |

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
