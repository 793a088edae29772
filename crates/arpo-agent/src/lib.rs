//! Prompts, conversations, the action parser and screen geometry, pure: no model, no desktop.
//!
//! | to change | look in |
//! |---|---|
//! | what makes an agent UI-TARS or `computer_use` | [`style`] |
//! | the prompt and the conversation | [`prompt`], [`conversation`] |
//! | which screenshots stay in the context, and so the slices in which an episode is trained | [`window`] |
//! | which tokens are trained | [`labels`] |
//! | how a response of UI-TARS is parsed | [`parse`] (thought and action), `grammar` (calls), `vocabulary` (their meaning) |
//! | how actions are rendered as UI-TARS writes them | [`render`] |
//! | the tool calls of Qwen3-VL's agents | [`computer_use`] |
//! | how coordinates are mapped to the screen | [`coordinates`], [`geometry`] |
//! | the pyautogui code for OSWorld desktops | [`pyautogui`] |

pub mod computer_use;
pub mod conversation;
pub mod coordinates;
pub mod geometry;
mod grammar;
pub mod labels;
pub mod parse;
pub mod prompt;
pub mod pyautogui;
pub mod render;
pub mod style;
mod vocabulary;
pub mod window;
